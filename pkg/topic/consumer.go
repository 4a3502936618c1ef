package topic

import (
	"time"

	"geminga/pkg/executor"
)

// Consumer is a connected consumer. Its methods run on its subscription's executor (Executor), unless they say otherwise.
// The exported fields never change.
type Consumer struct {
	ID             uint64
	Name           string
	Type           SubType
	PriorityLevel  int32
	Metadata       map[string]string
	Address        string
	ClientVersion  string
	ConnectedSince time.Time
	Sink           Sink

	sub      *subscription
	closed   bool
	answered bool // its client's request
	told     notice

	// INVARIANT: permits = granted − delivered; both only grow.
	granted, delivered int64
	average            average

	pending  pendingSet      // delivered and unacknowledged; shared only
	unacked  int64           // messages in pending
	blocked  bool            // too many of them
	deaf     bool            // its Sink took nothing when it was last asked
	served   int64           // turn in which it was last served
	distance int32           // failover: from the topic's place on the ring, see ringDistance
	lined    ring[*keyQueue] // key_shared: entries that wait and could be delivered

	out     []Delivery // being gathered
	outMsgs int

	counts consumerCounters
}

type consumerCounters struct {
	out         meter
	redelivered meter
	acked       meter
	lastFlow    time.Time
	lastAck     time.Time
	lastOut     time.Time
}

func newConsumer(s *subscription, r *SubscribeRequest) *Consumer {
	return &Consumer{
		ID: r.ConsumerID, Name: r.ConsumerName, Type: r.Type, PriorityLevel: r.PriorityLevel, Metadata: r.Metadata,
		Address: r.Address, ClientVersion: r.ClientVersion, ConnectedSince: time.Now(), Sink: r.Sink,
		sub: s, average: newAverage(),
	}
}

// Executor is where the consumer's methods run. Any goroutine.
func (c *Consumer) Executor() *executor.Executor { return c.sub.exec }

// Topic returns the topic. Any goroutine.
func (c *Consumer) Topic() *Topic { return c.sub.topic }

// Subscription returns the name. Any goroutine.
func (c *Consumer) Subscription() string { return c.sub.name }

// Flow grants permits for n more messages.
func (c *Consumer) Flow(n uint32) {
	c.sub.exec.AssertCurrent()
	if c.closed {
		return
	}
	c.granted += int64(n)
	c.counts.lastFlow = time.Now()
	c.sub.pump()
}

// Resume says that the consumer's Sink has become writable again.
func (c *Consumer) Resume() {
	c.sub.exec.AssertCurrent()
	c.deaf = false
	if !c.closed {
		c.sub.pump()
	}
}

// Close takes the consumer away, because the client has closed it or its connection is gone. What is not acknowledged
// is delivered again. done may be nil; it is called before Close returns.
func (c *Consumer) Close(done func(error)) {
	c.sub.exec.AssertCurrent()
	if !c.closed {
		c.sub.remove(c)
	}
	if done != nil {
		done(nil)
	}
}

// Unsubscribe removes the consumer's subscription. Any executor; done on the topic's.
func (c *Consumer) Unsubscribe(force bool, done func(error)) {
	t := c.sub.topic
	t.exec.PostFunc(func() {
		t.Unsubscribe(UnsubscribeRequest{Subscription: c.sub.name, Consumer: c, Force: force}, done)
	})
}

func (c *Consumer) permits() int64 { return c.granted - c.delivered }

// budget is how many more messages may be delivered.
func (c *Consumer) budget() int64 {
	n := c.permits()
	if limit := int64(c.sub.opts.MaxUnackedMessagesPerConsumer); limit > 0 && !c.sub.single() {
		if c.blocked {
			return 0
		}
		n = min(n, limit-c.unacked)
	}
	return n
}

// ready reports that the consumer should be given something.
func (c *Consumer) ready() bool { return c.budget() > 0 && c.room() > 0 }

// room asks the Sink how much it takes, and remembers when that is nothing: then Resume follows.
func (c *Consumer) room() int {
	n := c.Sink.Room()
	c.deaf = n == 0
	return n
}
