package bookiepb

import (
	"math/bits"
	"sync"
)

const (
	minPooled = 11 // 2 KiB: gRPC gives nothing smaller back
	maxPooled = 23 // 8 MiB
)

// pool keeps buffers of all powers of two between its bounds. It implements mem.BufferPool.
//
// gRPC's own pool knows 4, 16, 32 KiB and 1 MiB, and wipes a buffer each time: a message of 33 KiB cost it a wiped MiB,
// which was a sixth of a bookie's CPU. Whoever takes a buffer here writes all of it before anybody reads it.
type pool struct {
	bySize [maxPooled + 1]sync.Pool // of *[]byte; index n: 1 << n bytes
}

// Get implements mem.BufferPool. What is in the buffer is left from its last use.
func (p *pool) Get(n int) *[]byte {
	size := max(minPooled, bits.Len(uint(max(n, 1)-1)))
	if size > maxPooled {
		b := make([]byte, n)
		return &b
	}
	b, ok := p.bySize[size].Get().(*[]byte)
	if !ok {
		fresh := make([]byte, n, 1<<size)
		return &fresh
	}
	*b = (*b)[:n]
	return b
}

// Put implements mem.BufferPool. Buffers that are not of a size of the pool are left to the garbage collector.
func (p *pool) Put(b *[]byte) {
	size := bits.Len(uint(cap(*b))) - 1
	if size >= minPooled && size <= maxPooled && cap(*b) == 1<<size {
		p.bySize[size].Put(b)
	}
}
