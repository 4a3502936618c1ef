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

// Root is a counted, pooled buffer that frames point into. Two kinds of references are counted in one word, so that
// both cost one atomic operation:
//
//	63 … 32   holds: of the loop or connection that reads into the root, or writes from it. Born with one.
//	31 …  0   keeps: of whoever keeps a frame, by Retain and Release, on any goroutine
//
// With the last reference of both kinds it goes back to its pool. The first keep charges the root's whole size to its
// Account, the last one takes it off: that a loop still reads behind the frames does not matter, or a loop that reads
// no more would seem to keep what nobody needs.
//
// With the build tag invariants a released root is filled with 0xDB and never reused, so that reading it too late shows
// and a second release, or a retain after the last release, is caught for certain. Other builds catch those too, unless
// the root has found its next user before.
type Root struct {
	refs atomic.Int64
	pool *pool
	buf  []byte
	// account is changed by the holder only, and only while nobody keeps a part. So it may be read by whoever keeps one.
	account *Account
}

const oneHold = 1 << 32

// Account is told of the memory that kept frames pin.
type Account struct {
	// Changed is called with the size of a root, positive when the first part of it is kept, negative after the last one
	// was given back. It runs where Retain or Release was called: on any goroutine, several at once.
	Changed func(delta int64)
}

// Retain adds a reference. The caller holds one already.
func (r *Root) Retain() {
	n := r.refs.Add(1)
	if n <= 1 {
		invariant.Broken("root retained after its last release (%d references)", n)
	}
	if int32(n) == 1 && r.account != nil {
		r.account.Changed(int64(len(r.buf)))
	}
}

// Release gives a reference back.
func (r *Root) Release() {
	account, size := r.account, int64(len(r.buf)) // afterwards the root may be another's
	n := r.refs.Add(-1)
	switch keeps := int32(n); {
	case keeps > 0:
		return
	case keeps < 0:
		invariant.Broken("root released twice (%d references)", keeps)
	}
	if n == 0 {
		r.pool.put(r)
	}
	if account != nil {
		account.Changed(-size)
	}
}

// unhold gives the hold back.
func (r *Root) unhold() {
	n := r.refs.Add(-oneHold)
	if n < 0 {
		invariant.Broken("root is not held (%d)", n)
	}
	if n == 0 {
		r.pool.put(r)
	}
}

// kept reports whether somebody keeps a part.
func (r *Root) kept() bool { return int32(r.refs.Load()) != 0 }

// chargeTo sets the account, unless parts of the root are kept on another one. For the holder.
func (r *Root) chargeTo(a *Account) {
	if r.account != a && !r.kept() {
		r.account = a
	}
}

// Cap returns the size of the buffer, which is what a reference to any part of it keeps in memory.
func (r *Root) Cap() int { return len(r.buf) }

// sole reports whether the caller's hold is the only reference.
func (r *Root) sole() bool { return r.refs.Load() == oneHold }

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

// get returns a root of at least n bytes that is held once and charged to nobody.
func (p *pool) get(n int) *Root {
	class, size := classOf(n)
	var r *Root
	if size <= maxPooledRoot {
		r, _ = p.classes[class].Get().(*Root)
	}
	if r == nil {
		r = &Root{pool: p, buf: make([]byte, size)}
	}
	r.refs.Store(oneHold)
	r.account = nil
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
