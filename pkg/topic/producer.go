package topic

import (
	"fmt"
	"time"
)

// AccessMode of a producer, numbered as in the protocol.
type AccessMode uint8

// The access modes. Only ProducerShared is there yet.
const (
	ProducerShared AccessMode = iota
	ProducerExclusive
	ProducerWaitForExclusive
	ProducerExclusiveWithFencing
)

// ProducerRequest asks for a producer.
type ProducerRequest struct {
	ID               uint64
	Name             string // "": a unique one is made
	Epoch            uint64 // grows with each attempt of the client to connect
	UserProvidedName bool
	AccessMode       AccessMode
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
// of a producer of this name (-1: none or not known).
func (t *Topic) AddProducer(r ProducerRequest, done func(p *Producer, lastSequenceID int64, err error)) {
	p, err := t.addProducer(&r)
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
	if r.AccessMode != ProducerShared {
		return nil, fmt.Errorf("producer access mode %d: %w", r.AccessMode, ErrNotSupported)
	}
	if r.Name == "" {
		r.Name = t.env.Names.Next()
	}
	if old := t.producers[r.Name]; old != nil {
		if old.Epoch >= r.Epoch {
			return nil, fmt.Errorf("%q on %s: %w", r.Name, t.text, ErrProducerBusy)
		}
		t.supersede(old, r.Sink)
	} else if n := t.env.Options.MaxProducersPerTopic; n > 0 && len(t.producers) >= n {
		return nil, fmt.Errorf("%s has %d producers: %w", t.text, n, ErrTooManyProducers)
	}
	p := &Producer{
		ID: r.ID, Name: r.Name, Epoch: r.Epoch, UserProvidedName: r.UserProvidedName,
		Metadata: r.Metadata, Address: r.Address, ClientVersion: r.ClientVersion, ConnectedSince: time.Now(),
		topic: t, out: t.outboxOf(r.Sink),
	}
	p.out.producers++
	if t.dedup != nil {
		p.dedup = t.dedup.connect(p.Name)
	}
	t.producers[p.Name] = p
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
	if p.dedup != nil {
		t.dedup.disconnect(p.dedup)
	}
	if p.out.producers--; p.out.producers == 0 {
		delete(t.outboxes, p.out.sink)
	}
}

// closeProducers removes all producers and tells their clients.
func (t *Topic) closeProducers() {
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
