package topic

// Reason names in a word why a subscription's backlog does not move. Those of limits are the settings'.
type Reason string

// The reasons, in the order in which they are looked for. No reason: messages are being delivered, or there are none.
const (
	ReasonClosed              Reason = "closed"
	ReasonNoConsumers         Reason = "noConsumers"
	ReasonStorage             Reason = "waitingForStorage"
	ReasonFailoverDelay       Reason = "activeConsumerFailoverDelay"
	ReasonNoPermits           Reason = "noPermits"
	ReasonUnackedConsumer     Reason = "maxUnackedMessagesPerConsumer"
	ReasonNotWritable         Reason = "connectionNotWritable"
	ReasonUnackedSubscription Reason = "maxUnackedMessagesPerSubscription"
	ReasonUnackedBroker       Reason = "maxUnackedMessagesPerBroker"
	ReasonLookAhead           Reason = "keySharedLookAhead"
	ReasonDraining            Reason = "drainingHashes"
	ReasonKeys                Reason = "consumersOfKeys"
	ReasonRate                Reason = "rate"
	ReasonReading             Reason = "reading"
	ReasonDelayed             Reason = "delayed"
	ReasonUnacked             Reason = "unacknowledged"
)

// Text is the reason in words.
func (r Reason) Text() string {
	return map[Reason]string{
		ReasonClosed:              "closed",
		ReasonNoConsumers:         "no consumers",
		ReasonStorage:             "a read failed and will be tried again",
		ReasonFailoverDelay:       "the active consumer has changed, it is served after the failover delay",
		ReasonNoPermits:           "no consumer has permits",
		ReasonUnackedConsumer:     "consumers with permits have too many unacknowledged messages",
		ReasonNotWritable:         "consumers with permits do not read from their connections",
		ReasonUnackedSubscription: "too many unacknowledged messages in the subscription",
		ReasonUnackedBroker:       "too many unacknowledged messages in the broker",
		ReasonLookAhead:           "too many messages wait: their keys are unacknowledged at other consumers, or their consumers cannot take more",
		ReasonDraining:            "messages wait: their keys are unacknowledged at other consumers",
		ReasonKeys:                "messages wait: the consumers of their keys cannot take more",
		ReasonRate:                "as much has been delivered as the rates of dispatch allow",
		ReasonReading:             "messages are being read",
		ReasonDelayed:             "messages wait for their time of delivery",
		ReasonUnacked:             "all messages are delivered and not acknowledged",
	}[r]
}

// why is the reason for which no read is to be started; none when one is under way or wanted.
func (s *subscription) why() Reason {
	switch {
	case s.ended:
		return ReasonClosed
	case len(s.consumers) == 0:
		return ReasonNoConsumers
	case s.read.retry != nil:
		return ReasonStorage
	case s.single() && s.taker() == nil:
		return ReasonFailoverDelay
	case s.demand().Entries == 0:
		return s.whyNoDemand()
	case s.keys != nil && s.keys.deliverable(s.consumers):
		return ""
	case s.share.blocked && s.again.replay.len() == 0:
		return ReasonUnackedSubscription
	case s.broker.held && s.again.replay.len() == 0:
		return ReasonUnackedBroker
	case s.keys != nil && s.keys.full(len(s.consumers)):
		return ReasonLookAhead
	}
	return ""
}

func (s *subscription) whyNoDemand() Reason {
	reason := ReasonNoPermits
	for _, c := range s.consumers {
		if s.single() && c != s.active {
			continue
		}
		switch {
		case c.permits() <= 0:
		case c.blocked:
			reason = ReasonUnackedConsumer
		case c.Sink.Room() == 0:
			return ReasonNotWritable
		}
	}
	return reason
}

// whyIdle is why the backlog does not move, for people: a read that waits for new messages is no progress for those that
// wait here.
func (s *subscription) whyIdle() Reason {
	switch why := s.why(); {
	case s.ended || s.cursor.Backlog() == 0:
		return ""
	case why != "":
		return why
	case s.rates.waiting() && (s.unread() || s.again.replay.len() > 0 || s.keys != nil && s.keys.deliverable(s.consumers)):
		return ReasonRate
	case len(s.read.replaying) > 0 || s.unread():
		return ReasonReading
	case s.keys != nil && s.keys.wait.len() > 0:
		if s.keys.deliverable(s.consumers) {
			return ReasonReading
		}
		return s.keys.whyWait()
	case len(s.delays.heap) > 0:
		return ReasonDelayed
	}
	return ReasonUnacked
}

// whyWait says of entries that wait for their keys what most of them wait for.
func (k *keyed) whyWait() Reason {
	draining := 0
	k.states.each(func(h keyHash, has keyState) {
		if has.queue != nil && has.n > 0 && has.by != k.spans.owner(h) {
			draining += has.queue.n
		}
	})
	if 2*draining >= k.wait.len() {
		return ReasonDraining
	}
	return ReasonKeys
}
