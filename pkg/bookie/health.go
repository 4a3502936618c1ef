package bookie

import "sync"

// health says whether a replica may still speak. Once it has failed it stays failed: its store takes no writes, its
// machine applies nothing, and no answer or request of it leaves the process any more.
//
// The last point is what makes it safe that the store of a failed replica lies to raft, which panics when it cannot
// persist its term and when it cannot read an entry that it applies:
//
//	raft's main loop                      transport
//	SetUint64(term) fails
//	  health.fail (before it returns)
//	  returns nil: raft goes on
//	Respond(vote granted)
//	                                      health.err() != nil: the answer is dropped
type health struct {
	mu     sync.Mutex
	cause  error
	failed chan struct{}
	onFail func(error) // called once, on a goroutine that must not block
}

func newHealth(onFail func(error)) *health {
	return &health{failed: make(chan struct{}), onFail: onFail}
}

// fail records the first cause.
func (h *health) fail(cause error) {
	h.mu.Lock()
	first := h.cause == nil
	if first {
		h.cause = cause
		close(h.failed)
	}
	h.mu.Unlock()
	if first && h.onFail != nil {
		h.onFail(cause)
	}
}

// ok is the cheap question.
func (h *health) ok() bool {
	select {
	case <-h.failed:
		return false
	default:
		return true
	}
}

// err returns the cause, or nil.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}
