package topic

import "geminga/pkg/ledger"

// replaySet holds the positions that have to be delivered again and gives them back in order.
//
// members is the truth; heap orders it and may hold positions that are no members any more (removed ones), which are
// skipped when they surface. A position that was removed and added again may be in the heap twice; the second one is
// skipped because the first one took the member away. When most of the heap is dead it is rebuilt.
type replaySet struct {
	members map[ledger.Position]struct{}
	heap    positionHeap
}

func (s *replaySet) len() int { return len(s.members) }

func (s *replaySet) has(p ledger.Position) bool {
	_, ok := s.members[p]
	return ok
}

func (s *replaySet) add(p ledger.Position) {
	if s.members == nil {
		s.members = make(map[ledger.Position]struct{})
	}
	if _, ok := s.members[p]; ok {
		return
	}
	s.members[p] = struct{}{}
	s.heap.push(p)
}

func (s *replaySet) remove(p ledger.Position) {
	if len(s.members) == 0 {
		return
	}
	delete(s.members, p)
	if len(s.heap) > 64 && len(s.heap) > 4*len(s.members) {
		s.rebuild()
	}
}

// removeTo removes all positions up to and including p.
func (s *replaySet) removeTo(p ledger.Position) {
	for len(s.heap) > 0 && !p.Less(s.heap[0]) {
		delete(s.members, s.heap.pop())
	}
}

// take moves the n smallest positions to dst.
func (s *replaySet) take(dst []ledger.Position, n int) []ledger.Position {
	for n > 0 && len(s.members) > 0 {
		p := s.heap.pop()
		if _, ok := s.members[p]; ok {
			delete(s.members, p)
			dst = append(dst, p)
			n--
		}
	}
	if len(s.members) == 0 {
		s.heap = s.heap[:0]
	}
	return dst
}

func (s *replaySet) clear() {
	clear(s.members)
	s.heap = s.heap[:0]
}

func (s *replaySet) rebuild() {
	s.heap = s.heap[:0]
	for p := range s.members {
		s.heap = append(s.heap, p)
	}
	s.heap.order()
}

// positionHeap has its least position first.
type positionHeap []ledger.Position

func (h *positionHeap) push(p ledger.Position) {
	s := append(*h, p)
	*h = s
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].Less(s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

// pop returns the least position; the heap must not be empty.
func (h *positionHeap) pop() ledger.Position {
	s := *h
	p := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	h.sink(0)
	return p
}

func (h positionHeap) sink(i int) {
	for {
		down := 2*i + 1
		if down >= len(h) {
			return
		}
		if r := down + 1; r < len(h) && h[r].Less(h[down]) {
			down = r
		}
		if !h[down].Less(h[i]) {
			return
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}

// order makes a heap of positions in any order.
func (h positionHeap) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}
