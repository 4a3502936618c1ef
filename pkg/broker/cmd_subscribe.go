package broker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// SUBSCRIBE connects a consumer to a subscription, which is created if need be: a durable one at initialPosition, one
// that is not durable at start_message_id. SUCCESS answers; no message goes out before it, since clients drop those.
// An exclusive subscription that has a consumer is ERROR ConsumerBusy, which ends some clients' consumers for good: so it
// is said only after the connection of the other one has been found alive; so is ConsumerAssignError, when the ranges of
// hashes that a sticky Key_Shared consumer names are taken. force_topic_creation=false asks for a topic
// that exists, else ERROR TopicNotFound. A consumer that comes back too often is ERROR TooManyRequests: Pulsar says
// NotAllowedError, on which clients give the consumer up.
func handleSubscribe(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.Subscribe
	id := req.GetConsumerId()
	if old := c.consumers[id]; old != nil {
		if old.state == ready {
			c.succeed(req.GetRequestId())
		} else {
			c.fail(req.GetRequestId(), errPresent)
		}
		return nil
	}
	name, err := protocol.ParseTopicName(req.GetTopic())
	switch {
	case err != nil:
	case req.GetSubscription() == "" || len(req.GetSubscription()) > maxSubscriptionName:
		err = fmt.Errorf("subscription: %w", errBadName)
	case len(req.GetConsumerName()) > maxClientName:
		err = fmt.Errorf("consumer of %d bytes: %w", len(req.GetConsumerName()), errBadName)
	default:
		if err = room(len(c.consumers), c.server.opts.Limits.Consumers); err == nil {
			err = c.began()
		}
	}
	if err != nil {
		c.fail(req.GetRequestId(), err)
		return nil
	}
	k := &consumer{c: c, id: id, subscription: req.GetSubscription(), request: req}
	if c.consumers == nil {
		c.consumers = make(map[uint64]*consumer)
	}
	c.consumers[id] = k
	c.server.topics.get(name, req.GetForceTopicCreation(), func(h *hosted, err error) {
		if err != nil {
			k.finish(nil, err)
			return
		}
		who := subscriber{hostOf(c.ec.RemoteAddr()), req.GetConsumerName(), id}
		if err := h.subscribes.pass(who, c.server.subscribes.Load(), time.Now()); err != nil {
			k.finish(nil, err)
			return
		}
		k.hosted = h
		k.register(false)
	})
	return nil
}

// consumer is a consumer of a connection. Ownership as for producer.
type consumer struct {
	c            *conn
	id           uint64
	subscription string
	request      *pulsarpb.CommandSubscribe
	state        phase
	undone       error
	hosted       *hosted
	topic        *topic.Consumer
}

// register connects the consumer, on the topic's executor.
func (k *consumer) register(probed bool) {
	h, req := k.hosted, k.request
	policy, ranges := keysOf(req)
	r := topic.SubscribeRequest{
		Subscription: k.subscription, Type: topic.SubType(req.GetSubType()), Durable: req.GetDurable(),
		Existing: k.c.server.rules.Load().DisableAutoSubscriptionCreation,
		Start:    startOf(req), ConsumerID: k.id, ConsumerName: req.GetConsumerName(),
		Keys: policy, KeyRanges: ranges,
		PriorityLevel: req.GetPriorityLevel(), Metadata: properties(req.Metadata),
		Address: k.c.remote, ClientVersion: k.c.clientVersion, Sink: &k.c.sink,
	}
	h.t.Subscribe(r, func(t *topic.Consumer, err error) {
		full := errors.Is(err, topic.ErrTooManyConsumers)
		taken := full || errors.Is(err, topic.ErrConsumerBusy) || errors.Is(err, topic.ErrConsumerAssign)
		if taken && !probed {
			k.c.server.probe(h.subscribers(k.subscription, full), k.c, func(gone bool) {
				if gone {
					h.exec.PostFunc(func() { k.register(true) })
				} else {
					k.finish(nil, err)
				}
			})
			return
		}
		k.finish(t, err)
	})
}

// keysOf is how a Key_Shared consumer shares keys with others.
func keysOf(req *pulsarpb.CommandSubscribe) (p topic.KeyPolicy, ranges []topic.KeyRange) {
	meta := req.GetKeySharedMeta()
	p.Sticky = meta.GetKeySharedMode() == pulsarpb.KeySharedMode_STICKY
	p.OutOfOrder = meta.GetAllowOutOfOrderDelivery()
	if p.Sticky {
		for _, r := range meta.GetHashRanges() {
			ranges = append(ranges, topic.KeyRange{Start: r.GetStart(), End: r.GetEnd()})
		}
	}
	return p, ranges
}

// startOf is where a new subscription begins.
func startOf(req *pulsarpb.CommandSubscribe) ledger.Position {
	if id := req.GetStartMessageId(); id != nil && !req.GetDurable() {
		return positionOf(id.GetLedgerId(), id.GetEntryId())
	}
	if req.GetInitialPosition() == pulsarpb.CommandSubscribe_Earliest {
		return ledger.Earliest
	}
	return ledger.Latest
}

// positionOf translates an id: clients write -1:-1 for the earliest and the largest int64 twice for the latest message.
func positionOf(l, e uint64) ledger.Position {
	switch {
	case l > math.MaxInt64:
		return ledger.Earliest
	case l == math.MaxInt64:
		return ledger.Latest
	}
	return ledger.Position{Ledger: ledger.ID(l), Entry: max(ledger.NoEntry, ledger.EntryID(e))}
}

func (k *consumer) finish(t *topic.Consumer, err error) {
	k.c.post(func() { k.opened(t, err) })
}

// opened answers the request, on the loop.
func (k *consumer) opened(t *topic.Consumer, err error) {
	c, request := k.c, k.request.GetRequestId()
	k.topic = t
	c.ended()
	if err == nil {
		err = k.undone
	}
	if err != nil || c.closed {
		if c.consumers[k.id] == k {
			delete(c.consumers, k.id)
		}
		if t != nil {
			k.leave(nil)
		}
		if !c.closed && k.state != leaving {
			c.fail(request, err)
		}
		return
	}
	k.request, k.state = nil, ready
	k.hosted.joinConsumer(k)
	c.succeed(request)
}

// leave takes the consumer off its subscription. On the loop; done is called on the subscription's executor.
func (k *consumer) leave(done func(error)) {
	t := k.topic
	if t == nil {
		return
	}
	t.Executor().PostFunc(func() { t.Close(done) })
	k.hosted.leaveConsumer(k) // after the post, as for producers
}

// resumeConsumers tells the consumers of a connection that it is writable again.
func (c *conn) resumeConsumers() {
	for _, k := range c.consumers {
		if t := k.topic; k.state == ready {
			t.Executor().Post(executor.Func(t.Resume))
		}
	}
}

// versionActiveChange is the protocol version from which on clients know ACTIVE_CONSUMER_CHANGE.
const versionActiveChange = 12

// activeChanged tells the client that its failover consumer is or is not active.
func (c *conn) activeChanged(t *topic.Consumer, active bool) {
	k := c.consumers[t.ID]
	if c.closed || k == nil || k.topic != t || k.state != ready || c.version < versionActiveChange {
		return
	}
	c.reply(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_ACTIVE_CONSUMER_CHANGE.Enum(),
		ActiveConsumerChange: &pulsarpb.CommandActiveConsumerChange{
			ConsumerId: proto.Uint64(k.id), IsActive: proto.Bool(active),
		},
	})
}

// deliver writes one entry. The caller releases the payload.
func (c *conn) deliver(d *delivery) {
	data := d.Entry.Payload.Data
	c.sink.queued.Add(-int64(len(data)))
	k := c.consumers[d.consumer.ID]
	if c.closed || k == nil || k.topic != d.consumer || k.state == opening {
		return
	}
	if !c.brokerEntries {
		data = protocol.CutBrokerEntry(data)
	}
	m := protocol.Message{
		ConsumerID: k.id, Ledger: uint64(d.Entry.Position.Ledger), Entry: uint64(d.Entry.Position.Entry),
		Partition: int32(k.hosted.name.Partition), RedeliveryCount: d.Redelivery, AckSet: d.AckSet,
	}
	c.state.buf = protocol.AppendMessageHeader(c.state.buf[:0], &m, len(data))
	c.ec.Write(c.state.buf)
	c.ec.WriteRef(data, d.Entry.Payload.Owner)
	k.hosted.out.add(int64(d.Messages), int64(len(data)))
}
