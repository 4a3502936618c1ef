package topic

import "sync/atomic"

// UnackedLimit is what all Shared and Key_Shared subscriptions of a broker may have unacknowledged together
// (maxUnackedMessagesPerBroker). From the limit on, subscriptions that have more than their share of it
// (maxUnackedMessagesPerSubscriptionOnBrokerBlocked) read nothing new, until all together have half of the limit left, or
// the subscription itself half of its share. Small ones go on. As each learns of the limit after its delivery, they go
// beyond it by no more than what they were delivering then.
//
// Subscriptions live on many executors. They add what they deliver and take off what is acknowledged, once per batch, with
// atomics; one that has to wait puts itself on a list, and whoever brings the sum down to the half posts a task to each.
//
//	free ──sum ≥ limit──▶ blocked ──sum ≤ limit/2──▶ free: all on the list are woken
//
// Any goroutine.
type UnackedLimit struct {
	limit, share atomic.Int64 // limit 0: none, and nobody is counted
	sum          atomic.Int64
	blocked      atomic.Bool
	waiting      atomic.Pointer[unackedWaiter]
}

type unackedWaiter struct {
	wake func() // posts
	next *unackedWaiter
}

// NewUnackedLimit returns the limit that the options name.
func NewUnackedLimit(o Options) *UnackedLimit {
	l := &UnackedLimit{}
	l.Set(o)
	return l
}

// Set brings the limit of other options in force. Subscriptions count for a limit that is new from the next time on that
// something happens to them, or Topic.Configure is called.
func (l *UnackedLimit) Set(o Options) {
	o.EnsureDefaults()
	limit := int64(o.MaxUnackedMessagesPerBroker)
	l.limit.Store(limit)
	l.share.Store(int64(float64(limit) * o.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked))
	if (limit <= 0 || l.sum.Load() < limit) && l.blocked.CompareAndSwap(true, false) {
		l.wakeAll()
	}
	l.add(0)
}

// add counts n more, or fewer.
func (l *UnackedLimit) add(n int64) {
	l.sum.Add(n)
	for { // until state and sum agree: others add, and change the state, at the same time
		limit, sum, blocked := l.limit.Load(), l.sum.Load(), l.blocked.Load()
		switch {
		case limit > 0 && sum >= limit && !blocked:
			l.blocked.CompareAndSwap(false, true)
		case (limit <= 0 || sum <= limit/2) && blocked:
			if l.blocked.CompareAndSwap(true, false) {
				l.wakeAll()
			}
		default:
			return
		}
	}
}

// wait calls wake when the block ends, perhaps at once.
func (l *UnackedLimit) wait(wake func()) {
	w := &unackedWaiter{wake: wake}
	for {
		w.next = l.waiting.Load()
		if l.waiting.CompareAndSwap(w.next, w) {
			break
		}
	}
	if !l.blocked.Load() { // it ended before w was on the list
		l.wakeAll()
	}
}

func (l *UnackedLimit) wakeAll() {
	for w := l.waiting.Swap(nil); w != nil; w = w.next {
		w.wake()
	}
}

// brokerShare is a subscription's side of the limit.
type brokerShare struct {
	limit  *UnackedLimit // nil: none
	told   int64         // messages that the limit knows of
	held   bool          // nothing new is read because of the limit
	listed bool          // will be woken
	onFree func()
}

func (s *subscription) setUpBrokerShare(l *UnackedLimit) {
	s.broker = brokerShare{limit: l, onFree: func() { s.exec.PostFunc(s.brokerFreed) }}
}

func (s *subscription) brokerFreed() {
	s.broker.listed = false
	s.pump()
}

// settleBrokerShare tells the limit what has changed, and learns whether the subscription has to wait.
func (s *subscription) settleBrokerShare() {
	c := &s.broker
	if c.limit == nil {
		return
	}
	counted := s.share.unacked
	if c.limit.limit.Load() <= 0 {
		counted = 0
	}
	if n := counted - c.told; n != 0 {
		c.told += n
		c.limit.add(n)
	}
	bound := c.limit.share.Load()
	if c.held {
		bound /= 2
	}
	c.held = !s.ended && c.limit.blocked.Load() && s.share.unacked > bound
	if c.held && !c.listed {
		c.listed = true
		c.limit.wait(c.onFree)
	}
}

// full reports that nothing new is to be read, because too much is unacknowledged in the subscription or in the broker.
func (s *subscription) full() bool { return s.share.blocked || s.broker.held }
