package topic

import (
	"errors"
	"fmt"
	"time"
)

// ProducerRequest asks for a producer.
type ProducerRequest struct {
	ID               uint64
	Name             string // "": a unique one is made
	Epoch            uint64 // grows with each attempt of the client to connect
	UserProvidedName bool
	AccessMode       AccessMode
	TopicEpoch       uint64            // that it was given when it was alone on the topic; 0: none
	Waits            func(name string) // called before AddProducer returns if the request waits for the topic; may be nil
	Metadata         map[string]string
	Address          string // of the client, for stats
	ClientVersion    string
	Sink             Sink
}

// Producer is a registration. It is bound to one connection for its life: a client that reconnects gets a new one. The
// exported fields never change.
//
// A Producer that has been removed (gone is true) takes no more messages, but those in flight still complete and come
// back to its Sink as receipts. Everything that a completion needs hangs on the Producer itself, so it does not matter
// what has become of the name, or of the connection, by then.
type Producer struct {
	ID               uint64
	Name             string
	Epoch            uint64
	UserProvidedName bool
	AccessMode       AccessMode
	TopicEpoch       uint64 // 0: shares the topic
	Metadata         map[string]string
	Address          string
	ClientVersion    string
	ConnectedSince   time.Time

	topic   *Topic
	out     *outbox
	gone    bool
	pending int    // messages in flight
	drained func() // called when a removed producer has nothing in flight any more; nil: nobody asked
	dedup   *dedupProducer
	in      meter
}

// Topic returns the topic. Any goroutine.
func (p *Producer) Topic() *Topic { return p.topic }

// AddProducer registers a producer. done is called before AddProducer returns, with the last sequence id that is stored
// of a producer of this name (-1: none or not known); for one that waits for the topic it is called when it has got it.
func (t *Topic) AddProducer(r ProducerRequest, done func(p *Producer, lastSequenceID int64, err error)) {
	t.use.count++
	p, err := t.addProducer(&r)
	if errors.Is(err, errWait) {
		t.wait(r, done)
		return
	}
	if err != nil {
		done(nil, -1, err)
		return
	}
	last := int64(-1)
	if p.dedup != nil {
		last = p.dedup.persisted.sequence
	}
	done(p, last, nil)
}

func (t *Topic) addProducer(r *ProducerRequest) (*Producer, error) {
	if err := t.ready(); err != nil {
		return nil, err
	}
	if r.Name == "" {
		r.Name = t.env.Names.Next()
	}
	old := t.producers[r.Name]
	if old != nil && old.Epoch >= r.Epoch {
		return nil, fmt.Errorf("%q on %s: %w", r.Name, t.text, ErrProducerBusy)
	}
	if err := t.admit(r, old); err != nil {
		return nil, err
	}
	if old != nil {
		t.supersede(old, r.Sink)
	} else if n := t.opts.MaxProducersPerTopic; n > 0 && len(t.producers) >= n {
		return nil, fmt.Errorf("%s has %d producers: %w", t.text, n, ErrTooManyProducers)
	}
	p := &Producer{
		ID: r.ID, Name: r.Name, Epoch: r.Epoch, UserProvidedName: r.UserProvidedName, AccessMode: r.AccessMode,
		Metadata: r.Metadata, Address: r.Address, ClientVersion: r.ClientVersion, ConnectedSince: time.Now(),
		topic: t, out: t.outboxOf(r.Sink),
	}
	p.out.producers++
	if t.dedup != nil {
		p.dedup = t.dedup.connect(p.Name)
	}
	t.producers[p.Name] = p
	if r.AccessMode != ProducerShared {
		t.grant(p, r.TopicEpoch)
	}
	return p, nil
}

// supersede removes a registration whose client has come back on another connection, or on the same one with the same
// id. In the latter case the id belongs to the successor already and must not be closed.
func (t *Topic) supersede(old *Producer, by Sink) {
	t.dropProducer(old)
	if old.out.sink != by {
		old.out.sink.CloseProducer(old.ID)
	}
}

// RemoveProducer takes a registration away: the client has closed it (drained is called when its last message in flight
// has been answered, perhaps at once) or its connection is gone (drained is nil). Calling it again, or after another
// registration has taken the name over, changes nothing but still calls drained.
func (t *Topic) RemoveProducer(p *Producer, drained func()) {
	t.exec.AssertCurrent()
	t.dropProducer(p)
	defer t.freed()
	switch {
	case drained == nil:
	case p.pending == 0:
		drained()
	default:
		p.drained = drained
	}
}

func (t *Topic) dropProducer(p *Producer) {
	if p.gone {
		return
	}
	p.gone = true
	if t.producers[p.Name] == p {
		delete(t.producers, p.Name)
	}
	if t.access.holder == p {
		t.access.holder = nil
	}
	if p.dedup != nil {
		t.dedup.disconnect(p.dedup)
	}
	if p.out.producers--; p.out.producers == 0 {
		delete(t.outboxes, p.out.sink)
	}
}

// closeProducers removes all producers and tells their clients.
func (t *Topic) closeProducers() {
	t.refuse(func(*ProducerRequest) bool { return true })
	for _, p := range t.producers {
		t.dropProducer(p)
		p.out.sink.CloseProducer(p.ID)
	}
}

// outbox gathers the receipts for one connection.
type outbox struct {
	sink      Sink
	receipts  []Receipt
	producers int // registered ones
}

func (t *Topic) outboxOf(s Sink) *outbox {
	o := t.outboxes[s]
	if o == nil {
		o = &outbox{sink: s}
		t.outboxes[s] = o
	}
	return o
}
