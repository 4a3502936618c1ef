package journal

import (
	"sort"
	"sync"

	"geminga/pkg/vfs"
)

// tail keeps the newest bytes of the journal in memory, and is at the same time the memory from which they are
// written. It is a ring: the writer reserves a piece, encodes a batch into it, writes it to the file, and commits it;
// from then on readers find it until the ring has come round.
//
// Readers copy under the read lock, because the memory is overwritten later. The piece between reserve and commit
// belongs to the writer alone: no span covers it.
type tail struct {
	mu    sync.RWMutex
	ring  []byte
	next  int    // where the next piece begins
	spans []span // what can be read, oldest first, which is also ascending by (segment, off)
}

// span says that ring[at:at+n] holds a segment's bytes from off on.
type span struct {
	segment uint64
	off     int64
	at, n   int
}

func newTail(size int) *tail { return &tail{ring: vfs.Aligned(size)} }

// reserve returns n bytes for a batch, aligned for vfs.File.WriteDirect as long as all n are multiples of its alignment.
// One that would take more than half of the ring gets memory of its own, and is not kept.
func (t *tail) reserve(n int) []byte {
	if n > len(t.ring)/2 {
		return vfs.Aligned(n)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next+n > len(t.ring) {
		for len(t.spans) > 0 && t.spans[0].at >= t.next {
			t.spans = t.spans[1:]
		}
		t.next = 0
	}
	t.evictLocked(t.next, t.next+n)
	return t.ring[t.next : t.next+n : t.next+n]
}

// evictLocked takes ring[from:to] away from the oldest spans.
func (t *tail) evictLocked(from, to int) {
	for len(t.spans) > 0 {
		s := &t.spans[0]
		if s.at >= to || s.at+s.n <= from {
			return
		}
		if s.at+s.n > to && s.at >= from {
			cut := to - s.at
			s.at, s.off, s.n = s.at+cut, s.off+int64(cut), s.n-cut
			return
		}
		t.spans = t.spans[1:]
	}
}

// commit makes the piece reserved last readable.
func (t *tail) commit(segment uint64, off int64, piece []byte) {
	if len(piece) > len(t.ring)/2 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.next
	t.next += len(piece)
	if k := len(t.spans); k > 0 {
		s := &t.spans[k-1]
		if s.segment == segment && s.off+int64(s.n) == off && s.at+s.n == at {
			s.n += len(piece)
			return
		}
	}
	t.spans = append(t.spans, span{segment: segment, off: off, at: at, n: len(piece)})
}

// read fills dst with the segment's bytes from off on, and reports whether they were here.
func (t *tail) read(segment uint64, off int64, dst []byte) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i := sort.Search(len(t.spans), func(i int) bool {
		s := &t.spans[i]
		return s.segment > segment || s.segment == segment && s.off > off
	}) - 1
	if i < 0 {
		return false
	}
	s := &t.spans[i]
	if s.segment != segment || off+int64(len(dst)) > s.off+int64(s.n) {
		return false
	}
	from := s.at + int(off-s.off)
	copy(dst, t.ring[from:from+len(dst)])
	return true
}
