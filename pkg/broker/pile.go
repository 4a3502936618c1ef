package broker

import "sync"

// pieceSize is how many elements a piece of a pile has. A topic's batch ends at as many messages.
const pieceSize = 512

// pile gathers elements that are worked off together. It grows by whole pieces, so that a burst of any size costs neither
// copies of what is there already nor a large slice that the next burst has to make anew.
type pile[T any] struct {
	pieces []*piece[T] // none is empty
	free   *sync.Pool  // of *piece[T]
}

type piece[T any] struct{ items []T }

// add returns the place for one more element, for the caller to fill.
func (p *pile[T]) add() *T {
	n := len(p.pieces)
	if n == 0 || len(p.pieces[n-1].items) == pieceSize {
		q, _ := p.free.Get().(*piece[T])
		if q == nil {
			q = new(piece[T])
		}
		p.pieces = append(p.pieces, q)
		n++
	}
	q := p.pieces[n-1]
	if at := len(q.items); at < cap(q.items) {
		q.items = q.items[:at+1]
	} else {
		var none T
		q.items = append(q.items, none)
	}
	return &q.items[len(q.items)-1]
}

// drain calls f for the pieces in order and leaves the pile empty.
func (p *pile[T]) drain(f func([]T)) {
	for i, q := range p.pieces {
		f(q.items)
		clear(q.items)
		q.items = q.items[:0]
		p.free.Put(q)
		p.pieces[i] = nil
	}
	p.pieces = p.pieces[:0]
}
