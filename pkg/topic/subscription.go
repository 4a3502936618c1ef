package topic

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// cursor is what a subscription needs of a managedledger.Cursor.
type cursor interface {
	Read(limits ledger.Limits, done func([]ledger.Entry, error))
	CancelRead() bool
	WillReadAt(positions []ledger.Position)
	ReadAt(positions []ledger.Position, done func([]ledger.Entry, error))
	MarkDelete(p ledger.Position, done func(error))
	Delete(ps []ledger.Position, done func(error))
	Part(p ledger.Position) []int64
	DeletePart(p ledger.Position, unacked []int64) (left []int64, err error)
	MarkDeleted() ledger.Position
	ReadPosition() ledger.Position
	IsDeleted(p ledger.Position) bool
	Rewind()
	Seek(p ledger.Position, done func(error))
	Backlog() int64
	Close(done func(error))
}

// subscription is a cursor with consumers on it. It belongs to its own executor: dispatch never runs on the topic's.
//
// What is true at the end of every call, and checked by check:
//
//  1. For each consumer permits = granted − delivered, in messages. Permits are checked before an entry is given, not
//     after, so they go below zero by less than one entry.
//  2. Shared: every entry that was delivered and not acknowledged is in the pending map of exactly one consumer, or in
//     the replay set, or in a replay read that is under way. unacked counts the messages of the first kind. One that was
//     read before its time is in delays.
//  3. An entry that was acknowledged is in none of these, and is not delivered again.
//  4. If there is something to deliver and a consumer that can take it, then a read is under way, or scheduled after a
//     failure or for when the rates allow it (the reverse of a stalled subscription).
//  5. While the replay set is not empty no read ahead starts, so that what is given back comes first. Key_Shared: while
//     entries wait that could be delivered (keyed).
type subscription struct {
	topic     *Topic
	name      string
	durable   bool
	exec      *executor.Executor
	opts      *Options
	metrics   *Metrics
	log       *slog.Logger
	partition int
	connected atomic.Int32           // len(consumers), for the topic
	last      func() ledger.Position // last readable entry

	cursor    cursor
	kind      SubType
	consumers []*Consumer // by priority level, then order of connection (failover: name)
	active    *Consumer   // of Exclusive and Failover
	takeover  takeover
	keys      *keyed         // of Key_Shared, else nil
	delays    delays         // of Shared and Key_Shared
	rates     *dispatchRates // nil: no limits
	ended     bool
	seeks     int
	transient bool         // of a topic that is not persistent
	offered   atomic.Int32 // entries of a transient topic on their way here
	dropped   atomic.Int64 // messages of a transient topic that nobody could take

	read    reading
	again   redelivery
	share   sharing
	broker  brokerShare
	counts  subCounters
	deletes []ledger.Position // scratch
	aside   []ledger.Position // scratch
}

// redelivery is what has to be, or was, delivered more than once.
type redelivery struct {
	replay  replaySet
	counts  map[ledger.Position]uint32 // how often an entry was given back
	highest ledger.Position            // highest position delivered so far
}

// sharing is the state of a shared dispatcher.
type sharing struct {
	clock   int64 // counts turns
	turn    *Consumer
	left    int // entries left in the turn
	unacked int64
	blocked bool // too many unacknowledged messages in the subscription
}

type subCounters struct {
	out         meter
	redelivered meter
	acked       int64
}

func newSubscription(t *Topic, name string, durable bool) *subscription {
	s := &subscription{
		topic:     t,
		name:      name,
		durable:   durable,
		exec:      t.env.Subscriptions.For(t.text + "/" + name),
		partition: t.name.Partition,
		last:      t.log.LastConfirmed,
	}
	s.setUp(t.opts, t.env.Metrics, t.env.Logger.With("subscription", name))
	s.setUpBrokerShare(t.env.Unacked)
	if t.name.IsPersistent() {
		s.setUpRates(t.rate)
	}
	return s
}

func (s *subscription) setUp(o *Options, m *Metrics, log *slog.Logger) {
	s.opts, s.metrics, s.log = o, m, log
	s.again = redelivery{
		counts:  make(map[ledger.Position]uint32),
		highest: ledger.Earliest,
	}
	s.read.setUp(s)
	s.setUpTakeover()
	s.setUpDelays()
}

// single reports that one consumer at a time gets everything.
func (s *subscription) single() bool { return s.kind == Exclusive || s.kind == Failover }

// connect adds a consumer.
func (s *subscription) connect(r SubscribeRequest, done func(*Consumer, error)) {
	s.exec.AssertCurrent()
	if s.ended {
		s.topic.exec.PostFunc(func() { s.topic.Subscribe(r, done) })
		return
	}
	c, err := s.admit(&r)
	done(c, err)
	if err == nil {
		c.answered = true
		s.announce()
	}
	if s.single() || s.keys != nil { // else one more without permits changes nothing for the others
		s.pump()
	}
}

// admit adds a consumer unless there are too many. Subscriptions of a topic do so at the same time, hence the reservation.
func (s *subscription) admit(r *SubscribeRequest) (*Consumer, error) {
	if most := s.opts.MaxConsumersPerSubscription; most > 0 && len(s.consumers) >= most {
		return nil, fmt.Errorf("%q has %d consumers: %w", s.name, most, ErrTooManyConsumers)
	}
	most, n := s.opts.MaxConsumersPerTopic, s.topic.consumers.Add(1)
	if most > 0 && int(n) > most {
		s.topic.consumers.Add(-1)
		return nil, fmt.Errorf("%s has %d consumers: %w", s.topic.text, most, ErrTooManyConsumers)
	}
	c, err := s.add(r)
	if err != nil {
		s.topic.consumers.Add(-1)
	}
	return c, err
}

func (s *subscription) add(r *SubscribeRequest) (*Consumer, error) {
	if len(s.consumers) > 0 {
		switch {
		case s.kind != r.Type:
			return nil, fmt.Errorf("%q has %s consumers: %w", s.name, s.kind, ErrTypeMismatch)
		case s.kind == Exclusive:
			return nil, fmt.Errorf("%q: %w", s.name, ErrConsumerBusy)
		case s.keys != nil && s.keys.policy != r.Keys:
			return nil, fmt.Errorf("%q shares keys in another way: %w", s.name, ErrTypeMismatch)
		}
	} else {
		s.begin(r)
	}
	c := newConsumer(s, r)
	if c.Name == "" {
		c.Name = s.topic.env.Names.Next()
	}
	if s.kind == Failover {
		c.distance = ringDistance(s.topic.text, c.Name)
	}
	if s.keys != nil {
		if err := s.keys.join(c, r.KeyRanges); err != nil {
			return nil, fmt.Errorf("%q: %w", s.name, err)
		}
	}
	at, _ := slices.BinarySearchFunc(s.consumers, c, func(in, c *Consumer) int { return cmp.Or(s.order(in, c), -1) })
	s.consumers = slices.Insert(s.consumers, at, c)
	s.connected.Store(int32(len(s.consumers)))
	s.elect()
	return c, nil
}

// order is that of the consumers. Equal ones stay in the order of their connection.
func (s *subscription) order(a, b *Consumer) int {
	byLevel := cmp.Compare(a.PriorityLevel, b.PriorityLevel)
	if s.kind == Failover {
		return cmp.Or(byLevel, cmp.Compare(a.Name, b.Name))
	}
	return byLevel
}

// begin makes the subscription what its first consumer wants it to be.
func (s *subscription) begin(r *SubscribeRequest) {
	if s.kind != r.Type {
		s.startOver()
		s.kind, s.keys = r.Type, nil
	}
	if s.kind != KeyShared {
		return
	}
	if s.keys == nil {
		s.keys = newKeyed(s)
	}
	s.keys.use(r.Keys)
}

// startOver forgets what was read and delivered but not acknowledged: it will be read again from the cursor.
func (s *subscription) startOver() {
	s.read.forget(s)
	s.delays.clear()
	s.again.replay.clear()
	if s.keys != nil {
		s.keys.clear()
	}
	if s.cursor != nil {
		s.cursor.Rewind()
	}
}

// remove takes a consumer away. What it has not acknowledged is delivered again, to others or to the next one.
func (s *subscription) remove(c *Consumer) {
	i := slices.Index(s.consumers, c)
	if i < 0 {
		return
	}
	s.consumers = slices.Delete(s.consumers, i, i+1)
	s.topic.consumers.Add(-1)
	s.connected.Store(int32(len(s.consumers)))
	c.closed = true
	if s.share.turn == c {
		s.share.turn = nil
	}
	demand := c.pending.len() > 0 || s.single() || s.keys != nil // else its going changes nothing for the others
	for p, e := range c.pending.all() {
		s.putBack(p, waitingItem{hash: e.hash})
		s.letGo(e.hash)
	}
	s.unack(c, c.unacked)
	c.pending.clear()
	if s.keys != nil {
		s.keys.leave(c)
	}
	s.elect()
	if len(s.consumers) == 0 {
		s.read.cancelWaiting(s)
		if !s.durable {
			s.endEmpty()
			return
		}
	}
	if demand {
		s.pump()
	}
}

// endEmpty ends a non-durable subscription that has lost its last consumer.
func (s *subscription) endEmpty() {
	s.end()
	t := s.topic
	t.exec.PostFunc(func() {
		if slot := t.slots[s.name]; slot != nil && slot.sub == s && slot.state == slotOpen {
			t.slotEnded(slot, func(error) {})
		}
	})
}

// endFor ends the subscription for a consumer that unsubscribes, or for an administrator (nil).
func (s *subscription) endFor(by *Consumer, force bool) error {
	s.exec.AssertCurrent()
	if s.ended {
		return fmt.Errorf("%q: %w", s.name, ErrNoSubscription)
	}
	for _, c := range s.consumers {
		if c != by && !force {
			return fmt.Errorf("%q has other consumers: %w", s.name, ErrConsumerBusy)
		}
	}
	s.closeConsumers(by)
	s.end()
	return nil
}

// shutDown closes the consumers and the cursor because the topic closes. done on the subscription's executor.
func (s *subscription) shutDown(done func(error)) {
	s.closeConsumers(nil)
	s.end()
	s.cursor.Close(done)
}

// end stops dispatch for good.
func (s *subscription) end() {
	s.ended = true
	s.settleBrokerShare()
	s.read.forget(s)
	s.delays.clear()
	s.rates.stop()
	s.takeover.stop()
	if s.keys != nil {
		s.keys.clear()
	}
}

// closeCursor may be called from any executor. done comes on the subscription's.
func (s *subscription) closeCursor(done func(error)) {
	s.exec.PostFunc(func() { s.cursor.Close(done) })
}

// retryAfter doubles from the least to the longest wait.
func (s *subscription) retryAfter() time.Duration {
	d := s.opts.ReadRetryMin << min(s.read.failures, 20)
	return min(d, s.opts.ReadRetryMax)
}
