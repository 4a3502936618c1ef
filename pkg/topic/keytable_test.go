package topic

import (
	"math/rand/v2"
	"testing"

	"geminga/pkg/ledger"
)

// count returns the number of hashes with a holder, and of those with a queue.
func (t *keyStates) count() (held, queues int) {
	t.each(func(_ keyHash, s keyState) {
		if s.n > 0 {
			held++
		}
		if s.queue != nil {
			queues++
		}
	})
	return held, queues
}

// TestWaitingSetIsAMap does random things to a set and to a map.
func TestWaitingSetIsAMap(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var w waitingSet
		m := map[ledger.Position]waitingItem{}
		for range 5000 {
			p := ledger.Position{Ledger: ledger.ID(rnd.IntN(2)), Entry: ledger.EntryID(rnd.IntN(3 * waitPage))}
			h := waitingItem{keyHash(rnd.Uint32()), rnd.Int32()}
			had, has := m[p]
			switch got, ok := w.get(p); {
			case ok != has || ok && got != had:
				t.Fatalf("%v has %v, %v; want %v, %v", p, got, ok, had, has)
			case rnd.IntN(2) == 0:
				if w.add(p, h) == has {
					t.Fatalf("%v is new: %v", p, has)
				}
				if !has {
					m[p] = h
				}
			default:
				if got, ok := w.remove(p); ok != has || ok && got != had {
					t.Fatalf("removed %v with %v, %v; want %v, %v", p, got, ok, had, has)
				}
				delete(m, p)
			}
			if w.len() != len(m) || !w.check() {
				t.Fatalf("%d positions, want %d", w.len(), len(m))
			}
			if rnd.IntN(1000) == 0 {
				w.clear()
				clear(m)
			}
		}
		for p := range m {
			w.remove(p)
		}
		if w.len()+len(w.pages) != 0 {
			t.Errorf("%d positions in %d pages are left", w.len(), len(w.pages))
		}
	}
}
