package managedledger

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"geminga/pkg/ledger"
)

// TestAckSetAgainstAMap does random things to an ackSet and to a map, and compares all answers.
func TestAckSetAgainstAMap(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var set ackSet
		model := map[ledger.Position]bool{}
		most := int64(1 + rnd.IntN(400))
		pos := func() ledger.Position {
			return ledger.Position{Ledger: ledger.ID(1 + rnd.IntN(3)), Entry: ledger.EntryID(rnd.Int64N(most))}
		}
		for range 150 {
			p := pos()
			switch rnd.IntN(8) {
			default:
				if set.add(p) == model[p] {
					t.Fatalf("seed %d: add %s: was there %t", seed, p, model[p])
				}
				model[p] = true
			case 1:
				last := p.Entry + ledger.EntryID(rnd.IntN(150)) - 5
				set.addRange(p.Ledger, p.Entry, last)
				for e := p.Entry; e <= last; e++ {
					model[ledger.Position{Ledger: p.Ledger, Entry: e}] = true
				}
			case 2:
				if rnd.IntN(3) == 0 {
					set.removeTo(p)
					for q := range model {
						if q.Compare(p) <= 0 {
							delete(model, q)
						}
					}
				}
			}
			compareAckSet(t, &set, model, pos())
		}
	}
}

func compareAckSet(t *testing.T, set *ackSet, model map[ledger.Position]bool, p ledger.Position) {
	t.Helper()
	if set.count() != int64(len(model)) {
		t.Fatalf("count %d, want %d", set.count(), len(model))
	}
	if set.has(p) != model[p] {
		t.Fatalf("has %s: %t", p, set.has(p))
	}
	clear := p
	for model[clear] {
		clear.Entry++
	}
	if got := set.nextClear(p.Ledger, p.Entry); got != clear.Entry {
		t.Fatalf("clear from %s: %d, want %d", p, got, clear.Entry)
	}
	next, found := ledger.EntryID(0), false
	for e := p.Entry; e < 1000 && !found; e++ {
		if found = model[ledger.Position{Ledger: p.Ledger, Entry: e}]; found {
			next = e
		}
	}
	if got, ok := set.nextSet(p.Ledger, p.Entry); ok != found || ok && got != next {
		t.Fatalf("set from %s: %d %t, want %d %t", p, got, ok, next, found)
	}
	n := 0
	for r := range set.ranges() {
		for e := r.first; e <= r.last; e++ {
			if n++; !model[ledger.Position{Ledger: r.ledger, Entry: e}] {
				t.Fatalf("range %v holds too much", r)
			}
		}
		if model[ledger.Position{Ledger: r.ledger, Entry: r.last + 1}] {
			t.Fatalf("range %v is cut", r)
		}
	}
	if n != len(model) {
		t.Fatalf("ranges hold %d of %d", n, len(model))
	}
}

func TestAckSetTakesFewBytes(t *testing.T) {
	var set ackSet
	for e := ledger.EntryID(100_000); e > 0; e -= 2 {
		set.add(ledger.Position{Ledger: 1, Entry: e})
	}
	if words := cap(set.ledgers[0].words); words > 2*100_000/64+2 {
		t.Errorf("%d words for 100,000 entries", words)
	}
}

// randomView has some closed ledgers and an open one, with gaps between the ids.
func randomView(rnd *rand.Rand) (snapshot, []ledger.Position) {
	var closed []segment
	var all []ledger.Position
	id := ledger.ID(0)
	for range rnd.IntN(4) {
		id += ledger.ID(1 + rnd.IntN(3))
		n := rnd.IntN(6)
		closed = append(closed, segment{ref: ledger.Ref{ID: id, Group: 1}, entries: int64(n)})
		for e := range n {
			all = append(all, ledger.Position{Ledger: id, Entry: ledger.EntryID(e)})
		}
	}
	id += ledger.ID(1 + rnd.IntN(3))
	n := rnd.IntN(6)
	for e := range n {
		all = append(all, ledger.Position{Ledger: id, Entry: ledger.EntryID(e)})
	}
	var confirmed atomic.Int64
	confirmed.Store(int64(n) - 1)
	return newView(closed, ledger.Ref{ID: id, Group: 1}, &confirmed).snapshot(), all
}

// TestPositionsAgainstAList compares the arithmetic of positions with a list of all entries.
func TestPositionsAgainstAList(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s, all := randomView(rnd)
		if s.total() != int64(len(all)) {
			t.Fatalf("seed %d: total %d of %d", seed, s.total(), len(all))
		}
		if len(all) > 0 && (s.last() != all[len(all)-1] || s.lastConfirmed() != s.last()) {
			t.Fatalf("seed %d: last %s", seed, s.last())
		}
		for range 30 {
			p := ledger.Position{Ledger: ledger.ID(rnd.IntN(16)), Entry: ledger.EntryID(rnd.IntN(9) - 1)}
			rank, exists := 0, false
			for _, q := range all {
				if q.Compare(p) <= 0 {
					rank++
				}
				exists = exists || q == p
			}
			if s.rank(p) != int64(rank) || s.exists(p) != exists {
				t.Fatalf("seed %d: rank of %s %d, want %d; exists %t", seed, p, s.rank(p), rank, s.exists(p))
			}
			if f := s.floor(p); rank > 0 && f != all[rank-1] || rank == 0 && f != before(s.first()) {
				t.Fatalf("seed %d: floor of %s is %s", seed, p, f)
			}
			if exists {
				rank--
			}
			c := s.ceil(p)
			if rank < len(all) && c != all[rank] {
				t.Fatalf("seed %d: ceil of %s is %s, want %s", seed, p, c, all[rank])
			}
			if rank == len(all) && (s.exists(c) || c.Compare(s.last()) <= 0) {
				t.Fatalf("seed %d: ceil of %s is %s behind the end", seed, p, c)
			}
		}
		for _, extreme := range []ledger.Position{ledger.Earliest, ledger.Latest} {
			_ = s.ceil(extreme)
		}
		if s.floor(ledger.Latest) != s.floor(s.last()) || s.rank(ledger.Earliest) != 0 {
			t.Fatalf("seed %d: earliest and latest", seed)
		}
	}
}
