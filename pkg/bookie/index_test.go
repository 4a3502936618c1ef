package bookie

import (
	"math/rand/v2"
	"testing"

	"geminga/pkg/ledger"
)

// The index finds each entry in the run that appended it, whatever appends, truncations and deletions went before.
func TestIndexAgainstMap(t *testing.T) {
	type place struct {
		run    uint64
		offset ledger.EntryID
	}
	rng := rand.New(rand.NewPCG(1, 2))
	x := newIndex()
	model := map[ledger.ID][]place{}
	for step := range uint64(5000) {
		id := ledger.ID(rng.IntN(4))
		last := ledger.EntryID(len(model[id])) - 1
		switch rng.IntN(20) {
		case 0:
			x.update(id, ledger.Change{Deleted: true}, run{})
			delete(model, id)
		case 1:
			to := ledger.EntryID(rng.IntN(len(model[id])+1)) - 1
			x.update(id, ledger.Change{Closed: true, Truncated: to < last, Last: to}, run{})
			model[id] = model[id][:to+1]
		default:
			n := 1 + rng.IntN(5)
			x.update(id, ledger.Change{Appended: true, First: last + 1, Count: n}, run{index: step})
			for i := range n {
				model[id] = append(model[id], place{step, ledger.EntryID(i)})
			}
		}
		for e := range ledger.EntryID(len(model[id]) + 2) {
			r, ok := x.find(id, e)
			if want := int(e) < len(model[id]); ok != want {
				t.Fatalf("step %d: find(%d, %d) = %t, want %t", step, id, e, ok, want)
			}
			if ok && (place{r.index, e - r.first}) != model[id][e] {
				t.Fatalf("step %d: entry %d:%d is in run %+v, want %+v", step, id, e, r, model[id][e])
			}
		}
	}
}
