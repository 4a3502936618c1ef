package managedledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"geminga/pkg/ledger"
)

var testBounds = bounds{ranges: 1000, parts: 1000, bytes: mostRecordBytes}

func (d *deletions) text() string {
	text := d.mark.String()
	for r := range d.acks.ranges() {
		text += fmt.Sprint(" ", r)
	}
	for p, b := range d.parts.all() {
		text += fmt.Sprint(" ", p, b)
	}
	return text
}

// chained is a random history of deletions with the records that were made of it.
type chained struct {
	rnd     *rand.Rand
	s       snapshot
	all     []ledger.Position
	d       deletions
	changes changes
	chain   chain
	records [][]byte
	states  []string
}

var testRef = ledger.Ref{ID: 7, Group: 1}

func newChained(seed uint64, records int) *chained {
	h := &chained{rnd: rand.New(rand.NewPCG(seed, 3))}
	var closed []segment
	for id := ledger.ID(1); id < 4; id++ {
		n := 1 + h.rnd.IntN(200)
		closed = append(closed, segment{ref: ledger.Ref{ID: id, Group: 1}, entries: int64(n)})
		for e := range n {
			h.all = append(h.all, ledger.Position{Ledger: id, Entry: ledger.EntryID(e)})
		}
	}
	h.s = newView(closed, ledger.Ref{ID: 4, Group: 1}, empty()).snapshot()
	h.d.mark = before(h.all[0])
	for i := range records {
		for range h.rnd.IntN(12) {
			h.step()
		}
		b, _ := h.chain.next(testRef, ledger.EntryID(i), &h.d, &h.changes, testBounds)
		h.records = append(h.records, b)
		h.states = append(h.states, h.d.text())
	}
	return h
}

func (h *chained) step() {
	p := h.all[h.rnd.IntN(len(h.all))]
	if p.Compare(h.d.mark) <= 0 || h.d.acks.has(p) {
		return
	}
	switch h.rnd.IntN(20) {
	case 0:
		if h.rnd.IntN(8) == 0 {
			h.d = deletions{mark: p}
			h.changes.everything()
		}
	case 1, 2, 3, 4:
		h.d.parts.set(p, ackBits{1 + h.rnd.Int64N(1000)})
		h.changes.part(p)
	case 5:
		if q := h.s.next(h.d.mark); !h.d.acks.has(q) {
			h.d.parts.removeBetween(h.d.mark, q)
			h.d.mark = q
		}
	default:
		h.d.acks.add(p)
		h.d.parts.remove(p)
		h.changes.ack(p)
	}
}

// recover reads the records as an opening does: the last one, and then its chain.
func recoverFrom(records [][]byte, s snapshot) (string, error) {
	last := len(records) - 1
	n, err := recordDistance(records[last])
	if err != nil {
		return "", err
	}
	if n > uint64(last) {
		return "", ErrCorrupt
	}
	r := recovery{ledger: testRef.ID}
	for i := last - int(n); i <= last; i++ {
		if err := r.apply(records[i], ledger.EntryID(i), s); err != nil {
			return "", err
		}
	}
	r.tidy()
	return r.text(), nil
}

// TestChainOfRecords: after every record the state is what it was; a chain never takes more bytes than twice its whole
// record.
func TestChainOfRecords(t *testing.T) {
	deltas := 0
	for seed := range uint64(100) {
		h := newChained(seed, 60)
		for i := range h.records {
			got, err := recoverFrom(h.records[:i+1], h.s)
			if err != nil || got != h.states[i] {
				t.Fatalf("seed %d, record %d:\n got %s, %v\nwant %s", seed, i, got, err, h.states[i])
			}
			if n, _ := recordDistance(h.records[i]); n > 0 {
				deltas++
			}
		}
		if h.chain.deltas > h.chain.whole {
			t.Fatalf("seed %d: %d bytes of deltas after %d", seed, h.chain.deltas, h.chain.whole)
		}
	}
	if deltas < 1000 {
		t.Errorf("%d deltas in all", deltas)
	}
}

// TestBrokenChainIsNoticed: a record of the last chain that is lost, doubled, swapped with its neighbour, or of which a
// byte is another one, makes the state unreadable; it never gives another state.
func TestBrokenChainIsNoticed(t *testing.T) {
	for seed := range uint64(60) {
		h := newChained(seed, 40)
		last := len(h.records) - 1
		n, _ := recordDistance(h.records[last])
		at := last - h.rnd.IntN(min(int(n)+1, last))
		for what, records := range map[string][][]byte{
			"lost":    append(append([][]byte{}, h.records[:at]...), h.records[at+1:]...),
			"doubled": append(append([][]byte{}, h.records[:at+1]...), h.records[at:]...),
			"swapped": swapped(h.records, at),
			"damaged": damaged(h.records, at, h.rnd),
		} {
			got, err := recoverFrom(records, h.s)
			if err == nil && got == h.states[last-1] && what == "lost" && at == last {
				continue // the end of the ledger was never written
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("seed %d: record %d of %d %s, distance %d: %s, %v", seed, at, last, what, n, got, err)
			}
		}
	}
}

func swapped(records [][]byte, at int) [][]byte {
	b := append([][]byte{}, records...)
	b[at], b[at-1] = b[at-1], b[at]
	return b
}

func damaged(records [][]byte, at int, rnd *rand.Rand) [][]byte {
	b := append([][]byte{}, records...)
	b[at] = append([]byte{}, b[at]...)
	b[at][rnd.IntN(len(b[at]))] ^= 1 << rnd.IntN(8)
	return b
}

// TestRecordOfAnotherLedgerIsNoticed: records are tied to their ledger, and a state in the metadata to the metadata.
func TestRecordOfAnotherLedgerIsNoticed(t *testing.T) {
	h := newChained(1, 1)
	for _, id := range []ledger.ID{0, testRef.ID + 1} {
		r := recovery{ledger: id}
		if err := r.apply(h.records[0], 0, h.s); !errors.Is(err, ErrCorrupt) {
			t.Errorf("in ledger %d: %v", id, err)
		}
	}
}

// TestWhatIsBeyondIsCutAndCounted: the ranges and batches farthest ahead are left out.
func TestWhatIsBeyondIsCutAndCounted(t *testing.T) {
	var d deletions
	for e := ledger.EntryID(1); e < 40; e += 2 {
		d.acks.add(ledger.Position{Ledger: 1, Entry: e})
		d.parts.set(ledger.Position{Ledger: 1, Entry: e + 1}, ackBits{5})
	}
	view := newView(nil, ledger.Ref{ID: 1, Group: 1}, empty())
	view.confirmed.Store(100)
	b, _, over := appendRecord(nil, link{}, d.content(), bounds{ranges: 3, parts: 2, bytes: 1000})
	if over != (cut{17, 18}) {
		t.Errorf("cut %v", over)
	}
	var r recovery
	if err := r.apply(b, 0, view.snapshot()); err != nil {
		t.Fatal(err)
	}
	if got, want := r.text(), fmt.Sprint(ledger.Position{}, " {1 1 1} {1 3 3} {1 5 5} ", ledger.Position{Ledger: 1, Entry: 2}, " [5] ",
		ledger.Position{Ledger: 1, Entry: 4}, " [5]"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b, _, over = appendRecord(nil, link{}, d.content(), bounds{ranges: 100, parts: 100, bytes: 80})
	if len(b) > 100 || over.parts == 0 || over.ranges != 0 {
		t.Errorf("%d bytes, cut %v", len(b), over)
	}
}

func FuzzRecovery(f *testing.F) {
	for _, b := range newChained(2, 3).records {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, _ := randomView(rand.New(rand.NewPCG(uint64(len(b)), 4)))
		if len(b) > checksumSize { // or nothing would get past the checksum
			binary.LittleEndian.PutUint32(b, link{ledger: testRef.ID}.checksum(b[checksumSize:]))
		}
		r := recovery{ledger: testRef.ID}
		if err := r.apply(b, 0, s); err == nil && r.acks.count() > s.total() {
			t.Errorf("%d entries of %d", r.acks.count(), s.total())
		}
	})
}

// empty is the last entry of a ledger without entries.
func empty() *atomic.Int64 {
	n := new(atomic.Int64)
	n.Store(int64(ledger.NoEntry))
	return n
}
