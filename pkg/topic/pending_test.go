package topic

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"geminga/pkg/ledger"
)

// TestPendingSetIsAMap does random things to a set and to a map.
func TestPendingSetIsAMap(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		var s pendingSet
		m := map[ledger.Position]pendingEntry{}
		for range 3000 {
			p := ledger.Position{Ledger: ledger.ID(rnd.IntN(3)), Entry: ledger.EntryID(rnd.IntN(40))}
			e := pendingEntry{rnd.Int32(), keyHash(rnd.Uint32())}
			switch rnd.IntN(5) {
			case 0, 1:
				s.set(p, e)
				m[p] = e
			case 2, 3:
				s.delete(p)
				delete(m, p)
			case 4:
				if rnd.IntN(300) == 0 {
					s.clear()
					clear(m)
				}
			}
			got, ok := s.get(p)
			if want, has := m[p]; got != want || ok != has || s.len() != len(m) {
				t.Fatalf("%v is %v, %v, want %v, %v; %d of %d", p, got, ok, want, has, s.len(), len(m))
			}
		}
		if !maps.Equal(maps.Collect(s.all()), m) || !slices.Equal(s.positions(), slices.SortedFunc(maps.Keys(m), ledger.Position.Compare)) {
			t.Fatal("it holds something else")
		}
		for p := range m {
			s.delete(p)
		}
		if s.len() != 0 || len(s.ledgers) > 1 {
			t.Errorf("%d entries, %d ledgers are left", s.len(), len(s.ledgers))
		}
	}
}
