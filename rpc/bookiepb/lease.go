package bookiepb

import (
	"runtime"
	"sync/atomic"
)

// Owner counts references to memory that is sent without copying.
type Owner interface {
	Retain()
	Release()
}

// lease holds references to payloads while gRPC has them. To gRPC it is the pool of the buffers that wrap the
// payloads: each buffer that gRPC frees comes back through Put, and the last one releases everything.
//
// gRPC drops what a broken connection had queued without freeing it. Nothing then holds the lease any more, and the
// garbage collector runs the cleanup, which releases the payloads instead. A lease belongs to one message, so this
// costs one object and one cleanup per message of up to a mebibyte, not per payload.
type lease struct {
	held    *leaseHeld
	pending atomic.Int32 // buffers not yet freed
	cleanup runtime.Cleanup
}

// leaseHeld is apart from the lease, because a cleanup must not reach what it cleans up after.
type leaseHeld struct {
	owners []Owner
	done   atomic.Bool
}

func newLease() *lease {
	l := &lease{held: &leaseHeld{}}
	l.cleanup = runtime.AddCleanup(l, (*leaseHeld).release, l.held)
	return l
}

// hold retains o until the lease ends.
func (l *lease) hold(o Owner) {
	o.Retain()
	l.held.owners = append(l.held.owners, o)
}

// seal says how many buffers will come back.
func (l *lease) seal(buffers int) { l.pending.Store(int32(buffers)) }

// Get implements mem.BufferPool. gRPC never takes buffers from a lease.
func (l *lease) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool.
func (l *lease) Put(*[]byte) {
	if l.pending.Add(-1) == 0 {
		l.release()
	}
}

func (l *lease) release() {
	l.cleanup.Stop()
	l.held.release()
}

func (h *leaseHeld) release() {
	if h.done.Swap(true) {
		return
	}
	for _, o := range h.owners {
		o.Release()
	}
	h.owners = nil
}
