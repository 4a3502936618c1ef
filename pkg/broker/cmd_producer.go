package broker

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// PRODUCER registers a producer of a topic, which is opened and, if need be, created. PRODUCER_SUCCESS tells its name,
// ours if it has none, and the last sequence id stored of that name (-1: none). schema_version stays empty, because
// clients without schema break on one. A producer that has the topic for itself is told its epoch, which it shows when it
// comes back; one that waits for that is told at once with producer_ready=false, and with true when it has got it; one
// that cannot have it is ERROR ProducerFenced. A name that is connected already is ERROR ProducerBusy, unless the old
// registration is the same client's (smaller epoch) or its connection turns out to be dead. A request for an id that is
// registered is answered again; for one that is being registered it is ServiceNotReady.
func handleProducer(c *conn, cmd *pulsarpb.BaseCommand) error {
	req := cmd.Producer
	id := req.GetProducerId()
	if old := c.producers[id]; old != nil {
		if old.state == ready {
			old.announce(req.GetRequestId())
		} else {
			c.fail(req.GetRequestId(), errPresent)
		}
		return nil
	}
	name, err := protocol.ParseTopicName(req.GetTopic())
	switch {
	case err != nil:
	case len(req.GetInitialSubscriptionName()) > maxSubscriptionName:
		err = fmt.Errorf("initial subscription: %w", errBadName)
	case len(req.GetProducerName()) > maxClientName:
		err = fmt.Errorf("producer of %d bytes: %w", len(req.GetProducerName()), errBadName)
	default:
		if err = room(len(c.producers), c.server.opts.Limits.Producers); err == nil {
			err = c.began()
		}
	}
	if err != nil {
		c.fail(req.GetRequestId(), err)
		return nil
	}
	p := &producer{c: c, id: id, name: req.GetProducerName(), request: req}
	if c.producers == nil {
		c.producers = make(map[uint64]*producer)
	}
	c.producers[id] = p
	delete(c.dropped, id)
	c.server.topics.get(name, true, func(h *hosted, err error) {
		if err != nil {
			p.finish(nil, err)
			return
		}
		p.hosted = h
		p.register(false)
	})
	return nil
}

const (
	maxClientName       = 1000 // of producers and consumers; they are kept, and shown in stats
	maxSubscriptionName = 300  // with the topic's name it makes a metadata key
)

// phase of a producer or consumer of a connection.
type phase uint8

const (
	opening phase = iota
	ready
	leaving // the client has asked to close it
)

// producer is a producer of a connection. Loop-owned, except while opening, when whoever works on it owns it.
type producer struct {
	c       *conn
	id      uint64
	name    string
	request *pulsarpb.CommandProducer
	state   phase
	undone  error // set while opening: close it as soon as it is open
	waiting bool  // still opening: the topic has it in its queue
	hosted  *hosted
	topic   *topic.Producer
	last    int64
}

// register adds the producer to its topic, on the topic's executor.
func (p *producer) register(probed bool) {
	h, req := p.hosted, p.request
	r := topic.ProducerRequest{
		ID: p.id, Name: p.name, Epoch: req.GetEpoch(), UserProvidedName: req.GetUserProvidedProducerName(),
		AccessMode: topic.AccessMode(req.GetProducerAccessMode()), TopicEpoch: req.GetTopicEpoch(),
		Metadata: properties(req.Metadata), Address: p.c.remote, ClientVersion: p.c.clientVersion, Sink: &p.c.sink,
		Waits: func(name string) { p.c.post(func() { p.waits(name) }) },
	}
	h.t.AddProducer(r, func(t *topic.Producer, last int64, err error) {
		if (errors.Is(err, topic.ErrProducerBusy) || errors.Is(err, topic.ErrProducerFenced)) && !probed {
			p.c.server.probe(h.publishers(p.name, h.t.ExclusiveProducer()), p.c, func(gone bool) {
				if gone {
					h.exec.PostFunc(func() { p.register(true) })
				} else {
					p.finish(nil, err)
				}
			})
			return
		}
		p.last = last
		if sub := req.GetInitialSubscriptionName(); err == nil && sub != "" {
			h.t.CreateSubscription(sub, ledger.Latest, func(err error) { p.finish(t, err) })
			return
		}
		p.finish(t, err)
	})
}

// finish reports the outcome to the loop. Any goroutine.
func (p *producer) finish(t *topic.Producer, err error) {
	p.c.post(func() { p.opened(t, err) })
}

// opened answers the request, on the loop.
func (p *producer) opened(t *topic.Producer, err error) {
	c, request := p.c, p.request.GetRequestId()
	p.topic = t
	if !p.waiting {
		c.ended()
	}
	if err == nil {
		err = p.undone
	}
	if err != nil || c.closed {
		if c.producers[p.id] == p {
			delete(c.producers, p.id)
		}
		if t != nil {
			p.leave(nil)
		}
		if !c.closed && p.state != leaving {
			c.fail(request, err)
		}
		return
	}
	p.request = nil
	p.name, p.state = t.Name, ready
	p.hosted.joinProducer(p)
	p.announce(request)
}

// announce sends PRODUCER_SUCCESS.
func (p *producer) announce(request uint64) {
	m := &pulsarpb.CommandProducerSuccess{
		RequestId: proto.Uint64(request), ProducerName: proto.String(p.name), LastSequenceId: proto.Int64(p.last),
		ProducerReady: proto.Bool(true),
	}
	if e := p.topic.TopicEpoch; e != 0 {
		m.TopicEpoch = proto.Uint64(e)
	}
	p.c.reply(&pulsarpb.BaseCommand{Type: pulsarpb.BaseCommand_PRODUCER_SUCCESS.Enum(), ProducerSuccess: m})
}

// waits tells the client that it has to wait for the topic, so that its request does not run out of time.
func (p *producer) waits(name string) {
	p.waiting = true
	p.c.ended() // its client has an answer
	if p.c.closed || p.undone != nil {
		p.leave(nil)
		return
	}
	p.c.reply(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_PRODUCER_SUCCESS.Enum(),
		ProducerSuccess: &pulsarpb.CommandProducerSuccess{
			RequestId: p.request.RequestId, ProducerName: proto.String(name), ProducerReady: proto.Bool(false),
		},
	})
}

// leave takes the producer off its topic, behind the sends that came before. drained is called on the topic's executor;
// nil: nobody waits. On the loop.
func (p *producer) leave(drained func()) {
	t := p.topic
	if t == nil { // opened will see that the connection is closed; hosted is ours to read only when it waits
		if p.waiting {
			h := p.hosted
			h.exec.PostFunc(func() { h.t.Withdraw(&p.c.sink, p.id) })
		}
		return
	}
	h := p.hosted
	p.c.state.post(h)
	h.exec.PostFunc(func() { h.t.RemoveProducer(t, drained) })
	h.leaveProducer(p) // after the post: whoever finds the name free in peers may try again
}

func properties(kvs []*pulsarpb.KeyValue) map[string]string {
	m := make(map[string]string, len(kvs))
	for _, kv := range kvs {
		m[kv.GetKey()] = kv.GetValue()
	}
	return m
}
