package topic

import "geminga/pkg/ledger"

// replaySet holds the positions that have to be delivered again and gives them back in order.
//
// members is the truth; heap orders it and may hold positions that are no members any more (removed ones), which are
// skipped when they surface. A position that was removed and added again may be in the heap twice; the second one is
// skipped because the first one took the member away. When most of the heap is dead it is rebuilt.
type replaySet struct {
	members map[ledger.Position]struct{}
	heap    []ledger.Position
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
	s.heap = append(s.heap, p)
	for i := len(s.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !s.heap[i].Less(s.heap[up]) {
			break
		}
		s.heap[i], s.heap[up] = s.heap[up], s.heap[i]
		i = up
	}
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
		delete(s.members, s.popHeap())
	}
}

// take moves the n smallest positions to dst.
func (s *replaySet) take(dst []ledger.Position, n int) []ledger.Position {
	for n > 0 && len(s.members) > 0 {
		p := s.popHeap()
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

func (s *replaySet) popHeap() ledger.Position {
	p := s.heap[0]
	last := len(s.heap) - 1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	s.sink(0)
	return p
}

func (s *replaySet) sink(i int) {
	for {
		down := 2*i + 1
		if down >= len(s.heap) {
			return
		}
		if r := down + 1; r < len(s.heap) && s.heap[r].Less(s.heap[down]) {
			down = r
		}
		if !s.heap[down].Less(s.heap[i]) {
			return
		}
		s.heap[i], s.heap[down] = s.heap[down], s.heap[i]
		i = down
	}
}

func (s *replaySet) rebuild() {
	s.heap = s.heap[:0]
	for p := range s.members {
		s.heap = append(s.heap, p)
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sink(i)
	}
}
