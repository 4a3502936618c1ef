package topic

import "time"

// Configure brings new options in force in an open topic, on its executor, and on its subscriptions soon after: what is
// read, delivered and allowed at the same time, and the rates of dispatch. Other options keep the values with which the
// topic was opened. The options are valid (Options.Validate).
//
// A limit that is lowered takes nothing away from those who are there. One that is raised above what is unacknowledged ends
// a block at once, and not at its half.
func (t *Topic) Configure(o Options) {
	t.exec.AssertCurrent()
	o.EnsureDefaults()
	next := t.opts.with(&o)
	if next == *t.opts {
		return
	}
	t.opts = &next
	t.rate = changed(t.rate, next.DispatchRatePerTopic)
	shared := t.rate
	for _, s := range t.slots {
		s.sub.exec.PostFunc(func() { s.sub.configure(&next, shared) })
	}
}

// with returns the options with those of n that can be changed while a topic is open.
func (o *Options) with(n *Options) Options {
	next := *o
	next.DispatcherMaxReadBatchSize = n.DispatcherMaxReadBatchSize
	next.DispatcherMaxReadSizeBytes = n.DispatcherMaxReadSizeBytes
	next.DispatcherMaxRoundRobinBatchSize = n.DispatcherMaxRoundRobinBatchSize
	next.DispatchRatePerTopic = n.DispatchRatePerTopic
	next.DispatchRatePerSubscription = n.DispatchRatePerSubscription
	next.DispatchThrottlingOnlyOfBacklog = n.DispatchThrottlingOnlyOfBacklog
	next.MaxUnackedMessagesPerConsumer = n.MaxUnackedMessagesPerConsumer
	next.MaxUnackedMessagesPerSubscription = n.MaxUnackedMessagesPerSubscription
	next.MaxUnackedMessagesPerBroker = n.MaxUnackedMessagesPerBroker
	next.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked = n.MaxUnackedMessagesPerSubscriptionOnBrokerBlocked
	next.KeySharedLookAheadMsgInReplayThresholdPerConsumer = n.KeySharedLookAheadMsgInReplayThresholdPerConsumer
	next.KeySharedLookAheadMsgInReplayThresholdPerSubscription = n.KeySharedLookAheadMsgInReplayThresholdPerSubscription
	next.KeySharedUnblockingInterval = n.KeySharedUnblockingInterval
	next.MaxProducersPerTopic = n.MaxProducersPerTopic
	next.MaxConsumersPerTopic = n.MaxConsumersPerTopic
	next.MaxConsumersPerSubscription = n.MaxConsumersPerSubscription
	next.MaxSubscriptionsPerTopic = n.MaxSubscriptionsPerTopic
	return next
}

// sameRates reports that nothing about the rates of dispatch differs.
func (o *Options) sameRates(n *Options) bool {
	return o.DispatchRatePerTopic == n.DispatchRatePerTopic && o.DispatchRatePerSubscription == n.DispatchRatePerSubscription &&
		o.DispatchThrottlingOnlyOfBacklog == n.DispatchThrottlingOnlyOfBacklog
}

// configure brings options in force on the subscription's executor; shared is the rate of the topic.
func (s *subscription) configure(o *Options, shared *RateLimit) {
	s.exec.AssertCurrent()
	if s.ended {
		return
	}
	before := s.opts
	s.opts = o
	if s.keys != nil {
		s.keys.opts = o
	}
	if !s.transient && !before.sameRates(o) {
		s.changeRates(shared)
	}
	for _, c := range s.consumers {
		c.blocked = reaches(c.unacked, o.MaxUnackedMessagesPerConsumer)
	}
	s.share.blocked = reaches(s.share.unacked, o.MaxUnackedMessagesPerSubscription)
	if len(s.consumers) > 0 { // else there may be no cursor yet
		s.pump()
	}
}

// reaches reports that n messages are as many as a limit, -1 for none, allows.
func reaches(n int64, limit int) bool { return limit > 0 && n >= int64(limit) }

// changed gives a limit another rate; there is none, nil, as long as there was no rate.
func changed(l *RateLimit, r MaxRate) *RateLimit {
	if l == nil {
		return newDispatchLimit(r)
	}
	l.change(r, time.Now())
	return l
}

// changeRates puts the rates of the options in force. What was reserved of the shared one is given up, as it may be a
// second's worth of a rate that was much higher; who waits for a slice of the rate before waits no longer; and a read that
// waits for new entries begins anew, as it may have been allowed more of them.
func (s *subscription) changeRates(shared *RateLimit) {
	s.rates.stop()
	s.read.cancelWaiting(s)
	if s.rates == nil {
		s.setUpRates(shared)
		return
	}
	r := s.rates
	r.own = changed(r.own, s.opts.DispatchRatePerSubscription)
	r.shared = shared
	r.reserved.messages, r.reserved.bytes = 0, 0
	r.backlogOnly = s.opts.DispatchThrottlingOnlyOfBacklog
}
