package topic

import (
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// dispatchRates bound what a subscription delivers per second: by a limit of its own, and by one that all subscriptions
// of the topic share (dispatchThrottlingRatePerSubscription…, …PerTopic…). A read is as large as the tokens allow, at least
// one entry; what is delivered of it takes tokens, so a batch that is larger than the rest leaves a debt. When there are
// none, nothing is read until a slice of them has gathered. Of the shared limit a subscription reserves a slice at a time,
// so that those who wait are served in turn.
//
//	pump ─any token?─▶ read, bounded ──▶ dispatch, spend ──▶ pump
//	        └─no─▶ timer, due when a slice has gathered ───────▲
//
// Limits begin with a slice, not with a second's tokens: there is a backlog to begin with more often than not.
type dispatchRates struct {
	own, shared *RateLimit // nil: no limit
	reserved    struct{ messages, bytes float64 }
	backlogOnly bool    // while everything has been read, nothing is limited
	exempt      bool    // that is so for what is being read
	average     average // messages per entry
	timer       *executor.Timer
	onTimer     executor.Task
}

// newDispatchLimit returns nil if there is no limit.
func newDispatchLimit(r MaxRate) *RateLimit {
	if r.Messages <= 0 && r.Bytes <= 0 {
		return nil
	}
	l := &RateLimit{}
	l.change(r, time.Now())
	return l
}

// setUpRates gives the subscription its rates: its own, and those of its topic.
func (s *subscription) setUpRates(shared *RateLimit) {
	own := newDispatchLimit(s.opts.DispatchRatePerSubscription)
	if own == nil && shared == nil {
		return
	}
	r := &dispatchRates{own: own, shared: shared, backlogOnly: s.opts.DispatchThrottlingOnlyOfBacklog, average: newAverage()}
	r.onTimer = executor.Func(func() {
		r.timer = nil
		s.pump()
	})
	s.rates = r
}

// throttled reports that nothing may be read because there are no tokens. Then pump is called when there are.
func (s *subscription) throttled() bool {
	r := s.rates
	switch {
	case r == nil:
		return false
	case r.timer != nil:
		return true
	}
	if r.exempt = r.backlogOnly && !s.unread(); r.exempt {
		return false
	}
	now := time.Now()
	wait := r.reserve(now)
	if r.own != nil && !r.own.Affordable(now) {
		wait = max(wait, r.own.Wait(now))
	}
	if wait > 0 {
		r.timer = s.exec.After(wait, r.onTimer)
	}
	return wait > 0
}

// reserve sees to it that there is something of the shared limit, and returns the time until it may be used.
func (r *dispatchRates) reserve(now time.Time) (wait time.Duration) {
	if r.shared == nil {
		return 0
	}
	if r.reserved.messages <= 0 {
		r.reserved.messages, wait = r.shared.messages.reserve(now)
	}
	if r.reserved.bytes <= 0 {
		var d time.Duration
		r.reserved.bytes, d = r.shared.bytes.reserve(now)
		wait = max(wait, d)
	}
	return wait
}

// within bounds a read by the tokens.
func (s *subscription) within(want ledger.Limits) ledger.Limits {
	r := s.rates
	if r == nil || r.exempt || want.Entries == 0 {
		return want
	}
	if r.own != nil {
		messages, bytes := r.own.Left(time.Now())
		want = r.bound(want, messages, bytes)
	}
	if r.shared != nil {
		want = r.bound(want, r.reserved.messages, r.reserved.bytes)
	}
	return want
}

func (r *dispatchRates) bound(want ledger.Limits, messages, bytes float64) ledger.Limits {
	if messages < float64(want.Entries)*r.average.value {
		want.Entries = min(want.Entries, max(1, int(r.average.entries(int64(messages)))))
	}
	if bytes < float64(want.Bytes) {
		want.Bytes = max(1, int(bytes))
	}
	return want
}

// spend takes the tokens of what was delivered. What was reserved goes first.
func (r *dispatchRates) spend(entries int, messages, bytes int64, now time.Time) {
	r.average.sample(int(messages), entries)
	if r.exempt {
		return
	}
	if r.own != nil {
		r.own.Spend(messages, bytes, now)
	}
	if r.shared == nil {
		return
	}
	if r.reserved.messages -= float64(messages); r.reserved.messages < 0 {
		r.shared.messages.spend(-r.reserved.messages, now)
		r.reserved.messages = 0
	}
	if r.reserved.bytes -= float64(bytes); r.reserved.bytes < 0 {
		r.shared.bytes.spend(-r.reserved.bytes, now)
		r.reserved.bytes = 0
	}
}

// waiting reports that reads will start again when there are tokens.
func (r *dispatchRates) waiting() bool { return r != nil && r.timer != nil }

func (r *dispatchRates) stop() {
	if r.waiting() {
		r.timer.Stop()
		r.timer = nil
	}
}

// unread reports that there is something that has not been read yet.
func (s *subscription) unread() bool { return !s.last().Less(s.cursor.ReadPosition()) }
