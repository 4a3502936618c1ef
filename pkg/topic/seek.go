package topic

import (
	"fmt"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// seekGrace is how long a non-durable subscription that was moved waits for its consumers to come back.
const seekGrace = time.Minute

// Seek moves the consumer's subscription: p is the next entry to be delivered, everything behind it is delivered again,
// acknowledged or not. ledger.Earliest and ledger.Latest are the first entry and behind the last one. All consumers are
// closed, this one too: their clients subscribe again. done comes on the subscription's executor, when the new place is
// durable.
func (c *Consumer) Seek(p ledger.Position, done func(error)) {
	s := c.sub
	s.exec.AssertCurrent()
	if c.closed || s.ended {
		done(fmt.Errorf("seek on %q: %w", s.name, ErrConsumerClosed))
		return
	}
	if s.transient {
		done(fmt.Errorf("seek on %q: %w", s.name, errTransient))
		return
	}
	s.closeConsumers(nil)
	s.startOver()
	s.again.highest = ledger.Earliest
	clear(s.again.counts)
	s.cursor.Seek(p, done)
	if !s.durable {
		s.awaitConsumers()
	}
	s.check()
}

// awaitConsumers ends a subscription that would not outlive its last consumer, if none has come when seekGrace is over.
func (s *subscription) awaitConsumers() {
	s.seeks++
	seek := s.seeks
	s.exec.After(seekGrace, executor.Func(func() {
		if seek == s.seeks && len(s.consumers) == 0 && !s.ended {
			s.endEmpty()
		}
	}))
}

// closeConsumers takes all consumers away and tells their clients, except the one that knows.
func (s *subscription) closeConsumers(knows *Consumer) {
	for _, c := range s.consumers {
		c.closed = true
		if c != knows {
			c.Sink.CloseConsumer(c.ID)
		}
	}
	s.topic.consumers.Add(-int32(len(s.consumers)))
	s.consumers, s.active, s.share = nil, nil, sharing{clock: s.share.clock}
	s.settleBrokerShare()
	s.takeover.stop()
	if s.keys != nil {
		s.keys.leaveAll()
	}
	s.connected.Store(0)
}
