package managedledger

import (
	"strings"
	"testing"

	"geminga/pkg/ledger"
)

// The largest state that the options allow fits the entry, or the metadata value, that it is stored in: every second
// entry of ledgers of the default size.
func TestLargestStateFits(t *testing.T) {
	const perLedger, command, value = 50_000, 7 << 20, 4 << 20
	var acks ackSet
	for i := range ledger.EntryID(mostUnackedRanges) {
		acks.add(ledger.Position{Ledger: ledger.ID(1000 + i/perLedger), Entry: i % perLedger * 2})
	}
	state, truncated := appendState(nil, ledger.Position{Ledger: 1000}, &acks, mostUnackedRanges)
	if truncated || len(state) > command-1024 {
		t.Errorf("%d ranges take %d bytes, truncated: %t", mostUnackedRanges, len(state), truncated)
	}
	state, _ = appendState(nil, ledger.Position{Ledger: 1000}, &acks, mostUnackedRangesInMetadata)
	info := cursorInfo{Epoch: 1, State: state}
	if b, err := info.encode(); err != nil || len(b) > value {
		t.Errorf("%d ranges take %d bytes in the metadata: %v", mostUnackedRangesInMetadata, len(b), err)
	}
}

func TestOptionsBoundTheState(t *testing.T) {
	o := Options{MaxUnackedRanges: mostUnackedRanges + 1, MaxUnackedRangesInMetadata: mostUnackedRangesInMetadata + 1}
	o.EnsureDefaults()
	err := o.Validate()
	if err == nil || !strings.Contains(err.Error(), "MaxUnackedRanges,") || !strings.Contains(err.Error(), "MaxUnackedRangesInMetadata,") {
		t.Errorf("too many ranges: %v", err)
	}
	o.MaxUnackedRanges, o.MaxUnackedRangesInMetadata = mostUnackedRanges, mostUnackedRangesInMetadata
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}
