package topic

import "geminga/pkg/invariant"

// check compares a subscription with its invariants, in invariants builds.
func (s *subscription) check() {
	if !invariant.Enabled {
		return
	}
	var unacked int64
	for _, c := range s.consumers {
		var sum int64
		for p, e := range c.pending {
			sum += int64(e.messages)
			invariant.Assert(!s.again.replay.has(p), "%v is pending and in the replay set", p)
		}
		invariant.Assert(sum == c.unacked, "consumer %q: %d unacknowledged, its entries have %d", c.Name, c.unacked, sum)
		invariant.Assert(len(c.out) == 0, "consumer %q: %d deliveries not handed over", c.Name, len(c.out))
		unacked += sum
	}
	invariant.Assert(unacked == s.share.unacked, "%d unacknowledged, consumers have %d", s.share.unacked, unacked)
	if s.keys != nil {
		s.keys.check(s.consumers)
	}
	invariant.Assert(s.moving() || s.why() != "", "subscription %q stalls", s.name)
}

// moving reports that something will happen by itself: a read is under way or scheduled.
func (s *subscription) moving() bool {
	return s.read.ahead || len(s.read.replaying) > 0 || s.read.retry != nil || s.read.yielded
}

// why says in words why nothing is being delivered; empty when a read is under way.
func (s *subscription) why() string {
	switch {
	case s.ended:
		return "closed"
	case len(s.consumers) == 0:
		return "no consumers"
	case s.read.retry != nil:
		return "a read failed and will be tried again"
	case s.single() && s.taker() == nil:
		return "the active consumer has changed, it is served after the failover delay"
	case s.demand().Entries == 0:
		return s.whyNoDemand()
	case s.keys != nil && s.keys.deliverable(s.consumers):
		return ""
	case s.share.blocked && s.again.replay.len() == 0:
		return "too many unacknowledged messages in the subscription"
	case s.broker.held && s.again.replay.len() == 0:
		return "too many unacknowledged messages in the broker"
	case s.keys != nil && s.keys.full(len(s.consumers)):
		return "too many messages wait: their keys are unacknowledged at other consumers, or their consumers cannot take more"
	}
	return ""
}

func (s *subscription) whyNoDemand() string {
	reason := "no consumer has permits"
	for _, c := range s.consumers {
		if s.single() && c != s.active {
			continue
		}
		switch {
		case c.permits() <= 0:
		case c.blocked:
			reason = "consumers with permits have too many unacknowledged messages"
		case c.Sink.Room() == 0:
			return "consumers with permits do not read from their connections"
		}
	}
	return reason
}

// whyIdle is why nothing is being delivered, for people: a read that waits for new messages is no progress for those
// that wait for their keys.
func (s *subscription) whyIdle() string {
	why := s.why()
	switch {
	case why != "":
		return why
	case s.keys == nil || len(s.keys.wait) == 0:
		if s.read.ahead && len(s.delays.heap) > 0 {
			return "messages wait for their time of delivery"
		}
		return ""
	}
	if s.keys.deliverable(s.consumers) {
		return ""
	}
	return "messages wait: their keys are unacknowledged at other consumers, or their consumers cannot take more"
}

// check compares the holders and queues with what the consumers have.
func (k *keyed) check(cs []*Consumer) {
	held := map[keyHash]holding{}
	for _, c := range cs {
		for p, e := range c.pending {
			invariant.Assert(!k.waits(p), "%v is pending and waits", p)
			if k.policy.OutOfOrder {
				continue
			}
			has, ok := held[e.hash]
			invariant.Assert(!ok || has.by == c, "hash %d is unacknowledged at two consumers", e.hash)
			held[e.hash] = holding{c, has.n + 1}
		}
	}
	invariant.Assert(len(held) == len(k.held), "%d hashes have holders, %d are known", len(held), len(k.held))
	for h, has := range held {
		invariant.Assert(k.held[h] == has, "hash %d has %d entries unacknowledged, %d are known", h, has.n, k.held[h].n)
	}
	sum := 0
	for h, q := range k.queues {
		sum += q.n
		owner := k.spans.owner(h)
		has, ok := k.held[h]
		free := q.n > 0 && owner != nil && (!ok || has.by == owner)
		invariant.Assert(!free || q.lined || k.timer != nil, "hash %d could be delivered and is not lined up", h)
		invariant.Assert(!q.lined || owner != nil, "hash %d is lined up at nobody", h)
	}
	invariant.Assert(sum == len(k.wait), "%d entries wait, queues have %d", len(k.wait), sum)
}
