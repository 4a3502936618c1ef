package topic

import (
	"fmt"
	"time"

	"geminga/pkg/ledger"
)

// AckType says what an acknowledgement covers, numbered as in the protocol.
type AckType uint8

// The types of acknowledgements.
const (
	AckIndividual AckType = iota
	AckCumulative         // everything up to the position; not on shared subscriptions
)

// AckRequest acknowledges entries, or messages of batches.
type AckRequest struct {
	Type      AckType
	Positions []ledger.Position
	// AckSets, if not nil, has an element for each position: nil for the whole entry, else the messages of the batch
	// that are not acknowledged as set bits.
	AckSets [][]int64
	// Done is called once, when the acknowledgement is durable, on the subscription's executor; nil: nobody asks.
	Done func(error)
}

func (r *AckRequest) set(i int) []int64 {
	if i < len(r.AckSets) {
		return r.AckSets[i]
	}
	return nil
}

func (r *AckRequest) answer(err error) {
	if r.Done != nil {
		r.Done(err)
	}
}

// Ack acknowledges. Slices are the caller's again after the call.
func (c *Consumer) Ack(r AckRequest) {
	s := c.sub
	s.exec.AssertCurrent()
	switch {
	case s.ended || c.closed: // after a seek it would acknowledge what is to be delivered again
		r.answer(fmt.Errorf("acknowledge on %q: %w", s.name, ErrConsumerClosed))
		return
	case r.Type == AckIndividual:
		s.ackIndividual(c, &r)
	case r.Type != AckCumulative:
		r.answer(fmt.Errorf("acknowledgement type %d: %w", r.Type, ErrBadRequest))
		return
	case !s.single():
		r.answer(fmt.Errorf("cumulative acknowledgement on a %s subscription: %w", s.kind, ErrNotAllowed))
		return
	case len(r.Positions) != 1:
		r.answer(fmt.Errorf("cumulative acknowledgement of %d positions: %w", len(r.Positions), ErrBadRequest))
		return
	default:
		s.ackCumulative(c, r.Positions[0], &r)
	}
	s.pump()
}

func (s *subscription) ackIndividual(c *Consumer, r *AckRequest) {
	s.deletes = s.deletes[:0]
	var messages int64
	var failed error
	last, beyond := s.last(), 0
	for i, p := range r.Positions {
		if last.Less(p) || p.Entry < 0 {
			beyond++
			continue
		}
		if set := r.set(i); len(set) > 0 {
			left, n, err := s.ackPart(c, p, set)
			messages += n
			if err != nil {
				failed = err
			}
			if left {
				continue
			}
		}
		messages += s.ackEntry(c, p)
		s.deletes = append(s.deletes, p)
	}
	s.acked(c, messages)
	switch {
	case beyond > 0 && beyond == len(r.Positions):
		r.answer(fmt.Errorf("acknowledgement of messages that do not exist, the last is %s: %w", last, ErrBadRequest))
	case failed != nil:
		s.cursor.Delete(s.deletes, nil)
		r.answer(failed)
	default:
		s.cursor.Delete(s.deletes, r.Done)
	}
}

// ackPart acknowledges messages of a batch. It reports whether some are left, and how many unacknowledged messages less
// the consumer has.
func (s *subscription) ackPart(c *Consumer, p ledger.Position, set ackSet) (left bool, n int64, err error) {
	switch {
	case s.cursor.IsDeleted(p) || s.again.highest.Less(p): // acknowledged as a whole before, or never delivered
		return true, 0, nil
	case s.opts.WholeBatchesOnly:
		return !set.empty(), 0, nil
	}
	next, err := s.cursor.DeletePart(p, set)
	if err != nil || len(next) == 0 {
		return err != nil, 0, err
	}
	if owner, had := s.ownerOf(c, p); owner != nil {
		n := had.messages - min(had.messages, ackSet(next).left(1<<30))
		had.messages -= n
		owner.pending.set(p, had)
		s.unack(owner, int64(n))
		return true, int64(n), nil
	}
	return true, 0, nil
}

// ackEntry forgets an entry that is acknowledged and returns how many messages were unacknowledged.
func (s *subscription) ackEntry(c *Consumer, p ledger.Position) int64 {
	s.settle(p)
	owner, e := s.ownerOf(c, p)
	if owner == nil { // it may be one that was given back and waits
		s.again.replay.remove(p)
		if s.keys != nil {
			s.keys.remove(p)
		}
		return 1
	}
	owner.pending.delete(p)
	s.unack(owner, int64(e.messages))
	s.letGo(e.hash)
	return int64(e.messages)
}

// ownerOf returns the consumer at which an entry is pending, mostly the one that acknowledges it.
func (s *subscription) ownerOf(c *Consumer, p ledger.Position) (*Consumer, pendingEntry) {
	if s.single() {
		return nil, pendingEntry{}
	}
	if e, ok := c.pending.get(p); ok {
		return c, e
	}
	for _, o := range s.consumers {
		if e, ok := o.pending.get(p); ok {
			return o, e
		}
	}
	return nil, pendingEntry{}
}

// unack takes n messages off the unacknowledged ones, and unblocks at half of the limits.
func (s *subscription) unack(c *Consumer, n int64) {
	c.unacked -= n
	s.share.unacked -= n
	if c.blocked && c.unacked <= int64(s.opts.MaxUnackedMessagesPerConsumer)/2 {
		c.blocked = false
	}
	if s.share.blocked && s.share.unacked <= int64(s.opts.MaxUnackedMessagesPerSubscription)/2 {
		s.share.blocked = false
	}
}

func (s *subscription) acked(c *Consumer, messages int64) {
	now := time.Now()
	c.counts.acked.add(now, messages, 0)
	c.counts.lastAck = now
	s.counts.acked += messages
	s.metrics.acked(messages)
}

// ackCumulative acknowledges everything up to p, or up to the entry before p and a part of p.
func (s *subscription) ackCumulative(c *Consumer, p ledger.Position, r *AckRequest) {
	if last := s.last(); last.Less(p) || p.Entry < 0 {
		r.answer(fmt.Errorf("acknowledgement of %s, the last message is %s: %w", p, last, ErrBadRequest))
		return
	}
	to := p
	var failed error
	if set := r.set(0); len(set) > 0 && !s.cursor.IsDeleted(p) && !s.again.highest.Less(p) {
		var left bool
		if left, _, failed = s.ackPart(c, p, set); left {
			to.Entry--
		}
	}
	s.settleTo(to)
	s.acked(c, 1)
	if failed != nil {
		s.cursor.MarkDelete(to, nil)
		r.answer(failed)
		return
	}
	s.cursor.MarkDelete(to, r.Done)
}

// settleTo forgets what is known of all entries up to p.
func (s *subscription) settleTo(p ledger.Position) {
	s.again.replay.removeTo(p)
	for q := range s.again.counts {
		if !p.Less(q) {
			delete(s.again.counts, q)
		}
	}
}

// Redeliver gives entries back that the consumer has not acknowledged: the given ones, or all (nil). Exclusive and
// failover subscriptions always start again with the first unacknowledged entry, to keep the order.
func (c *Consumer) Redeliver(positions []ledger.Position) {
	s := c.sub
	s.exec.AssertCurrent()
	switch {
	case c.closed || s.ended:
		return
	case s.single():
		if c == s.taker() {
			s.startOver()
		}
	case positions == nil:
		for _, p := range c.pending.positions() {
			s.giveBack(c, p)
		}
	default:
		for _, p := range positions {
			if _, ok := c.pending.get(p); ok {
				s.giveBack(c, p)
			}
		}
	}
	s.pump()
}

func (s *subscription) giveBack(c *Consumer, p ledger.Position) {
	e, _ := c.pending.get(p)
	c.pending.delete(p)
	s.unack(c, int64(e.messages))
	s.putBack(p, waitingItem{hash: e.hash})
	s.letGo(e.hash)
	s.again.counts[p]++
}
