package topic

import (
	"time"

	"geminga/pkg/invariant"
	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
)

// dispatch hands entries to consumers. What nobody can take any more goes to the replay set, to be read again when
// somebody can: entries are not held, because they pin memory that is counted elsewhere.
//
// Entries of a replay read have been looked into before; known says what was seen, in the order of positions.
func (s *subscription) dispatch(entries []ledger.Entry, replayed bool, known []keyEntry) {
	s.share.left = 0 // a new round starts with the next consumer
	var bytes, early int
	var now time.Time
	for i := range entries {
		e := &entries[i]
		bytes += len(e.Payload.Data)
		if (replayed || !s.again.highest.Less(e.Position)) && s.cursor.IsDeleted(e.Position) {
			s.settle(e.Position)
			e.Payload.Release()
			continue
		}
		var it item
		if it, known = recall(known, e.Position); it.messages == 0 {
			it = s.inspect(e.Payload.Data)
		}
		if it.deliverAt > 0 && !replayed {
			if now.IsZero() {
				now = time.Now()
			}
			if s.early(it, now) {
				s.delay(e.Position, it)
				e.Payload.Release()
				early++
				continue
			}
		}
		if c := s.choose(e.Position, it.hash); c != nil {
			s.give(c, e, it)
		} else {
			s.putBack(e.Position, waitingItem{it.hash, it.messages})
			e.Payload.Release()
			s.aside = append(s.aside, e.Position)
		}
	}
	if len(s.aside) > 0 {
		s.cursor.WillReadAt(s.aside)
		s.aside = s.aside[:0]
	}
	if !replayed {
		s.delays.run = early
	}
	if len(entries) > 0 {
		s.read.bytes.sample(float64(bytes) / float64(len(entries)))
		s.handOver()
	}
}

// choose returns the consumer for the next entry, nil if there is none.
//
// Shared: consumers of the first priority level that has one ready take turns of dispatcherMaxRoundRobinBatchSize
// entries, the one that has waited longest first.
func (s *subscription) choose(p ledger.Position, h keyHash) *Consumer {
	if s.keys != nil {
		return s.keys.choose(p, h)
	}
	if s.single() {
		if c := s.taker(); c != nil && c.budget() > 0 {
			return c
		}
		return nil
	}
	if c := s.share.turn; c != nil && s.share.left > 0 && c.budget() > 0 {
		s.share.left--
		return c
	}
	var best *Consumer
	for _, c := range s.consumers {
		if best != nil && c.PriorityLevel > best.PriorityLevel {
			break
		}
		if (best == nil || c.served < best.served) && c.ready() {
			best = c
		}
	}
	s.share.turn = best
	if best != nil {
		s.share.clock++
		best.served = s.share.clock
		s.share.left = s.opts.DispatcherMaxRoundRobinBatchSize - 1
	}
	return best
}

// give adds an entry to what the consumer will be handed.
func (s *subscription) give(c *Consumer, e *ledger.Entry, it item) {
	messages := it.messages
	acked := ackSet(s.cursor.Part(e.Position))
	if acked != nil {
		messages = acked.left(messages)
	}
	var count uint32
	if len(s.again.counts) > 0 {
		count = s.again.counts[e.Position]
	}
	c.delivered += int64(messages)
	c.outMsgs += int(messages)
	c.out = append(c.out, Delivery{Entry: *e, AckSet: acked, Redelivery: count, Messages: messages})
	if s.again.highest.Less(e.Position) {
		s.again.highest = e.Position
	}
	if !s.single() && !s.transient {
		s.trackPending(c, e.Position, pendingEntry{messages, it.hash})
	}
}

// putBack lets an entry wait until somebody can take it.
func (s *subscription) putBack(p ledger.Position, it waitingItem) {
	if s.keys != nil {
		s.keys.add(p, it)
		return
	}
	s.again.replay.add(p)
}

// letGo notes that a consumer has an entry of a hash no more.
func (s *subscription) letGo(h keyHash) {
	if s.keys != nil {
		s.keys.letGo(h)
	}
}

func (s *subscription) trackPending(c *Consumer, p ledger.Position, e pendingEntry) {
	if invariant.Enabled {
		for _, o := range s.consumers {
			_, twice := o.pending.get(p)
			invariant.Assert(!twice, "%v is pending at consumer %q already", p, o.Name)
		}
	}
	c.pending.set(p, e)
	c.unacked += int64(e.messages)
	s.share.unacked += int64(e.messages)
	if s.keys != nil {
		s.keys.hold(c, e.hash)
	}
	if reaches(c.unacked, s.opts.MaxUnackedMessagesPerConsumer) {
		c.blocked = true
	}
	if reaches(s.share.unacked, s.opts.MaxUnackedMessagesPerSubscription) {
		s.share.blocked = true
	}
}

// handOver gives each consumer what was gathered for it, in one call.
func (s *subscription) handOver() {
	now := time.Now()
	var entries int
	var allMessages, allBytes int64
	for _, c := range s.consumers {
		if len(c.out) == 0 {
			continue
		}
		var bytes, again int64
		for i := range c.out {
			d := &c.out[i]
			bytes += int64(len(d.Entry.Payload.Data))
			if d.Redelivery > 0 {
				again += int64(d.Messages)
			}
		}
		messages := int64(c.outMsgs)
		c.average.sample(c.outMsgs, len(c.out))
		c.counts.out.add(now, messages, bytes)
		c.counts.lastOut = now
		s.counts.out.add(now, messages, bytes)
		if again > 0 {
			c.counts.redelivered.add(now, again, 0)
			s.counts.redelivered.add(now, again, 0)
		}
		s.metrics.delivered(messages, bytes)
		entries, allMessages, allBytes = entries+len(c.out), allMessages+messages, allBytes+bytes
		c.Sink.Deliver(c, c.out)
		clear(c.out)
		c.out, c.outMsgs = c.out[:0], 0
	}
	if s.rates != nil && entries > 0 {
		s.rates.spend(entries, allMessages, allBytes, now)
	}
}

// settle forgets what is known of an entry that is acknowledged or gone.
func (s *subscription) settle(p ledger.Position) {
	if len(s.again.counts) > 0 {
		delete(s.again.counts, p)
	}
}

// item is what a dispatcher wants to know of an entry.
type item struct {
	messages  int32
	hash      keyHash // Key_Shared only
	deliverAt int64   // ms; 0: at once
}

// recall finds what was seen of an entry when it was looked into before, no messages: nothing. rest is what is known of
// those behind it.
func recall(known []keyEntry, p ledger.Position) (it item, rest []keyEntry) {
	for len(known) > 0 && known[0].at.Less(p) {
		known = known[1:]
	}
	if len(known) > 0 && known[0].at == p {
		it = item{messages: known[0].messages, hash: known[0].hash}
	}
	return it, known
}

// inspect looks into an entry. One that does not parse counts as one message: it is delivered as it is, and the client
// reports it.
func (s *subscription) inspect(payload []byte) item {
	var section protocol.Section
	var md protocol.Metadata
	it := item{messages: 1}
	parsed := section.Parse(payload) == nil && md.Parse(section.Metadata) == nil
	if parsed {
		it.messages, it.deliverAt = max(1, md.NumMessages), md.DeliverAt
	}
	switch {
	case s.keys == nil:
	case parsed:
		it.hash = s.keys.hasher.hash(&md)
	default:
		it.hash = s.keys.hasher.none()
	}
	return it
}
