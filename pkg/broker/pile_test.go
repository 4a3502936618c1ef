package broker

import (
	"slices"
	"sync"
	"testing"
)

// TestPile fills piles of sizes around the borders of pieces, again and again: what comes out is what went in, in order, a
// pile that was drained is empty, and pieces come back without what was in them.
func TestPile(t *testing.T) {
	var free sync.Pool
	a, b := pile[*int]{free: &free}, pile[*int]{free: &free}
	for _, n := range []int{0, 1, pieceSize - 1, pieceSize, pieceSize + 1, 5 * pieceSize, 3, 2*pieceSize + 7} {
		for _, p := range []*pile[*int]{&a, &b} {
			var want, got []*int
			for i := range n {
				v := p.add()
				if *v != nil {
					t.Fatal("a new element has an old value")
				}
				*v = &i
				want = append(want, &i)
			}
			p.drain(func(some []*int) {
				if len(some) == 0 || len(some) > pieceSize {
					t.Errorf("piece of %d elements", len(some))
				}
				got = append(got, some...)
			})
			if !slices.Equal(got, want) || len(p.pieces) != 0 {
				t.Fatalf("%d elements went in, %d came out or in another order; %d pieces left", len(want), len(got), len(p.pieces))
			}
		}
	}
}
