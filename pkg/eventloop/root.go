package eventloop

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"geminga/pkg/invariant"
)

const (
	minRootSize   = 256
	maxPooledRoot = 8 << 20
	poison        = 0xDB
)

// Root is a counted, pooled buffer that frames point into. It is born with one reference; the last Release gives it
// back. Retain and Release may be called from any goroutine.
//
// With the build tag invariants a released root is filled with 0xDB and never reused, so that reading it too late shows
// and a second release, or a retain after the last release, is caught for certain. Other builds catch those too, unless
// the root has found its next user before.
type Root struct {
	refs atomic.Int32
	pool *pool
	buf  []byte
}

// Retain adds a reference. The caller holds one already.
func (r *Root) Retain() {
	if n := r.refs.Add(1); n <= 1 {
		invariant.Broken("root retained after its last release (%d references)", n)
	}
}

// Release gives a reference back.
func (r *Root) Release() {
	n := r.refs.Add(-1)
	if n > 0 {
		return
	}
	if n < 0 {
		invariant.Broken("root released twice (%d references)", n)
	}
	r.pool.put(r)
}

// Cap returns the size of the buffer, which is what a reference to any part of it keeps in memory.
func (r *Root) Cap() int { return len(r.buf) }

// sole reports whether the caller holds the only reference.
func (r *Root) sole() bool { return r.refs.Load() == 1 }

// wipe poisons a part that nobody may read any more.
func (r *Root) wipe(from, to int) {
	if invariant.Enabled {
		fill(r.buf[from:to])
	}
}

func fill(b []byte) {
	for i := range b {
		b[i] = poison
	}
}

// pool keeps free roots by size class. Classes are four steps per doubling, so rounding up wastes at most a quarter.
// Roots above 8 MiB are left to the garbage collector.
//
// One sync.Pool per class: roots are released on any goroutine, and what is not used goes with the next collections.
type pool struct {
	classes [classCount]sync.Pool
	live    atomic.Int64 // roots given out and not given back; for tests and metrics
	bytes   atomic.Int64 // their sizes
}

const (
	minClassBits = 8 // minRootSize
	classCount   = (23-minClassBits)*4 + 1
)

// classOf returns the smallest class of roots that hold n bytes, and their size.
func classOf(n int) (class, size int) {
	if n <= minRootSize {
		return 0, minRootSize
	}
	top := bits.Len(uint(n-1)) - 1 // 2^top < n <= 2^(top+1), for n-1 >= 2^top
	step := 1 << (top - 2)
	quarter := (n - 1 - 1<<top) / step // 0…3
	return (top-minClassBits)*4 + quarter + 1, 1<<top + (quarter+1)*step
}

// get returns a root of at least n bytes with one reference.
func (p *pool) get(n int) *Root {
	class, size := classOf(n)
	var r *Root
	if size <= maxPooledRoot {
		r, _ = p.classes[class].Get().(*Root)
	}
	if r == nil {
		r = &Root{pool: p, buf: make([]byte, size)}
	}
	r.refs.Store(1)
	p.live.Add(1)
	p.bytes.Add(int64(size))
	return r
}

func (p *pool) put(r *Root) {
	p.live.Add(-1)
	p.bytes.Add(-int64(len(r.buf)))
	if invariant.Enabled {
		fill(r.buf)
		return
	}
	if len(r.buf) <= maxPooledRoot {
		class, _ := classOf(len(r.buf))
		p.classes[class].Put(r)
	}
}
