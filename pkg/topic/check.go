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
		for p, n := range c.pending {
			sum += int64(n)
			invariant.Assert(!s.again.replay.has(p), "%v is pending and in the replay set", p)
		}
		invariant.Assert(sum == c.unacked, "consumer %q: %d unacknowledged, its entries have %d", c.Name, c.unacked, sum)
		invariant.Assert(len(c.out) == 0, "consumer %q: %d deliveries not handed over", c.Name, len(c.out))
		unacked += sum
	}
	invariant.Assert(unacked == s.share.unacked, "%d unacknowledged, consumers have %d", s.share.unacked, unacked)
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
	case s.demand() == 0:
		return s.whyNoDemand()
	case s.share.blocked && s.again.replay.len() == 0:
		return "too many unacknowledged messages in the subscription"
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
		case !c.Sink.Writable():
			return "consumers with permits do not read from their connections"
		}
	}
	return reason
}
