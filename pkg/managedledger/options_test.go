package managedledger

import (
	"strings"
	"testing"

	"geminga/pkg/ledger"
)

// The largest state that the options allow fits the entry, or the metadata value, that it is stored in: every second
// entry of ledgers of the default size, and large batches.
func TestLargestStateFits(t *testing.T) {
	const perLedger, command, value = 50_000, 7 << 20, 4 << 20
	d := deletions{mark: ledger.Position{Ledger: 1000}}
	at := func(i, step ledger.EntryID) ledger.Position {
		return ledger.Position{Ledger: ledger.ID(1000 + i/perLedger), Entry: i%perLedger*2 + step}
	}
	for i := range ledger.EntryID(mostUnackedRanges) {
		d.acks.add(at(i, 0))
	}
	o := Options{MaxUnackedRanges: mostUnackedRanges, MaxUnackedRangesInMetadata: mostUnackedRangesInMetadata}
	o.EnsureDefaults()
	b, _, over := appendRecord(nil, link{}, d.content(), o.recordBounds())
	if over != (cut{}) || len(b) > command-1024 {
		t.Errorf("%d ranges take %d bytes, over: %v", mostUnackedRanges, len(b), over)
	}
	for i := range ledger.EntryID(mostUnackedRangesInMetadata) {
		d.parts.set(at(i, 1), make(ackBits, meanPartWords))
	}
	b, _, over = appendRecord(nil, link{}, d.content(), o.recordBounds())
	if over.parts == 0 || len(b) > command-1024 {
		t.Errorf("a full record takes %d bytes, over: %v", len(b), over)
	}
	b, _, _ = appendRecord(nil, link{}, d.content(), o.metadataBounds())
	info := cursorInfo{Epoch: 1, State: b}
	if b, err := info.encode(); err != nil || len(b) > value {
		t.Errorf("%d ranges take %d bytes in the metadata: %v", mostUnackedRangesInMetadata, len(b), err)
	}
}

func TestOptionsBoundTheState(t *testing.T) {
	o := Options{
		MaxUnackedRanges: mostUnackedRanges + 1, MaxUnackedRangesInMetadata: mostUnackedRangesInMetadata + 1,
		MaxBatchDeletedIndexes: mostUnackedRanges + 1,
	}
	o.EnsureDefaults()
	err := o.Validate()
	for _, name := range []string{"MaxUnackedRanges,", "MaxUnackedRangesInMetadata,", "MaxBatchDeletedIndexes,"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("too many ranges: %v", err)
		}
	}
	o.MaxUnackedRanges, o.MaxUnackedRangesInMetadata = mostUnackedRanges, mostUnackedRangesInMetadata
	o.MaxBatchDeletedIndexes = mostUnackedRanges
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}
