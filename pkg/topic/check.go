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
		for p, e := range c.pending.all() {
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
	invariant.Assert(!s.stalls(), "subscription %q stalls", s.name)
}

// stalls reports that nothing moves, and nothing is to be waited for. A Sink that has got room since it was asked is not
// counted as one that has: its Resume is on its way.
func (s *subscription) stalls() bool {
	deaf := s.deaf()
	return !s.moving() && s.why() == "" && s.deaf() >= deaf
}

// deaf is how many consumers had no room when they were last asked.
func (s *subscription) deaf() (n int) {
	for _, c := range s.consumers {
		if c.deaf {
			n++
		}
	}
	return n
}

// moving reports that something will happen by itself: a read is under way or scheduled.
func (s *subscription) moving() bool {
	return s.read.ahead || len(s.read.replaying) > 0 || s.read.retry != nil || s.read.yielded || s.rates.waiting()
}

// check compares the holders and queues with what the consumers have.
func (k *keyed) check(cs []*Consumer) {
	held := map[keyHash]holding{}
	for _, c := range cs {
		for p, e := range c.pending.all() {
			invariant.Assert(!k.waits(p), "%v is pending and waits", p)
			if k.policy.OutOfOrder {
				continue
			}
			has, ok := held[e.hash]
			invariant.Assert(!ok || has.by == c, "hash %d is unacknowledged at two consumers", e.hash)
			held[e.hash] = holding{c, has.n + 1}
		}
	}
	holders, sum := 0, 0
	k.states.each(func(h keyHash, has keyState) {
		if has.n > 0 {
			holders++
			invariant.Assert(has.holding == held[h], "hash %d has %d entries unacknowledged, %d are known", h, held[h].n, has.n)
		}
		q := has.queue
		if q == nil {
			return
		}
		sum += q.n
		owner := k.spans.owner(h)
		invariant.Assert(q.owner == owner, "hash %d has another owner than its queue", h)
		free := q.n > 0 && owner != nil && (has.n == 0 || has.by == owner)
		invariant.Assert(!free || q.lined || k.timer != nil, "hash %d could be delivered and is not lined up", h)
		invariant.Assert(!q.lined || owner != nil, "hash %d is lined up at nobody", h)
	})
	invariant.Assert(len(held) == holders, "%d hashes have holders, %d are known", len(held), holders)
	invariant.Assert(sum == k.wait.len() && k.wait.check(), "%d entries wait, queues have %d", k.wait.len(), sum)
}
