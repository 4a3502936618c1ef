package topic

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"geminga/pkg/bookietest"
	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/protocol"
)

// world is bookies in memory and a broker process that owns one topic, in a synctest bubble.
type world struct {
	t       *testing.T
	cluster *bookietest.Cluster
	client  *bookietest.Client
	pool    *executor.Pool
	names   *NameSource
	options Options
	unacked *UnackedLimit
	ledgers managedledger.Options
	epoch   ledger.Epoch
	topic   *Topic
	lost    []error
	pools   []*executor.Pool
	sinks   int
	held    ledger.GroupID
	domain  string
	apart   bool // subscriptions have a pool of their own, as in a broker
}

func inWorld(t *testing.T, fn func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, cluster: bookietest.New(bookietest.Options{}), names: NewNameSource("b-1"), domain: "persistent://"}
		w.ledgers = managedledger.Options{RetentionTime: -1, RetentionBytes: -1} // of topics without subscriptions, too
		fn(w)
		if w.topic != nil {
			w.close()
		}
		synctest.Wait()
		w.cluster.Close()
		for _, p := range w.pools {
			p.Close()
		}
		if n := w.cluster.Retained(); n != 0 {
			t.Errorf("%d payloads are retained", n)
		}
	})
}

// open makes a new broker process own the topic.
func (w *world) open() error {
	w.epoch++
	w.client = w.cluster.Client()
	w.pool = executor.NewPool(executor.Options{Threads: 3})
	subscriptions := w.pool
	if w.apart {
		subscriptions = executor.NewPool(executor.Options{Name: "subscription", Threads: 3})
		w.pools = append(w.pools, subscriptions)
	}
	w.pools = append(w.pools, w.pool)
	name, err := protocol.ParseTopicName(w.domain + "public/default/t")
	if err != nil {
		w.t.Fatal(err)
	}
	cache, err := managedledger.NewCache(managedledger.CacheOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	env := Env{
		Ledger: managedledger.Env{
			Bookies: w.client, Store: w.client, Executor: w.pool.For("topic"), Epoch: w.epoch,
			Cache: cache,
		},
		LedgerOptions: w.ledgers, Options: w.options, Subscriptions: subscriptions, Names: w.names, Unacked: w.unacked,
		Lost: func(_ *Topic, err error) { w.lost = append(w.lost, err) },
	}
	type result struct {
		t   *Topic
		err error
	}
	got := make(chan result, 1)
	env.Ledger.Executor.PostFunc(func() {
		Open(env, name, func(t *Topic, err error) { got <- result{t, err} })
	})
	r := <-got
	w.topic = r.t
	return r.err
}

func (w *world) mustOpen() {
	w.t.Helper()
	if err := w.open(); err != nil {
		w.t.Fatal(err)
	}
}

// on runs fn on the topic's executor and waits until nothing moves.
func (w *world) on(fn func()) {
	w.exec(w.topic.exec, fn)
}

func (w *world) exec(e *executor.Executor, fn func()) {
	done := make(chan struct{})
	e.PostFunc(func() {
		defer close(done)
		fn()
	})
	<-done
	synctest.Wait()
}

func (w *world) close() {
	w.t.Helper()
	got := make(chan error, 1)
	w.topic.exec.PostFunc(func() { w.topic.Close(func(err error) { got <- err }) })
	if err := <-got; err != nil {
		w.t.Errorf("close: %v", err)
	}
	synctest.Wait()
	w.topic = nil
}

// hold keeps the group that stores the topic from answering; release lets it go on.
func (w *world) hold() {
	w.on(func() { w.held = w.topic.log.Stats().Current.Group })
	w.cluster.Hold(w.held)
}

func (w *world) release() {
	w.cluster.Release(w.held)
	synctest.Wait()
}

// crash makes the broker process vanish: nothing it has asked for is answered any more.
func (w *world) crash() {
	w.client.Kill()
	w.topic = nil
	synctest.Wait()
}

func (w *world) sink() *lockedSink {
	w.sinks++
	return &lockedSink{fakeSink: newFakeSink(w.t, fmt.Sprintf("s%d", w.sinks))}
}

func (w *world) producer(r ProducerRequest) (*Producer, int64, error) {
	var p *Producer
	var last int64
	var err error
	w.on(func() {
		w.topic.AddProducer(r, func(got *Producer, l int64, e error) { p, last, err = got, l, e })
	})
	return p, last, err
}

func (w *world) mustProducer(r ProducerRequest) *Producer {
	w.t.Helper()
	p, _, err := w.producer(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) send(p *Producer, seqs ...uint64) {
	var batch []Message
	for _, s := range seqs {
		batch = append(batch, Message{
			Producer: p, SequenceID: s, Messages: 1, Payload: ledger.Payload{Data: payloadOf(w.t, p.Name, s, 0)},
		})
	}
	w.on(func() { p.topic.Publish(batch) })
}

func (w *world) subscribe(r SubscribeRequest) (*Consumer, error) {
	type result struct {
		c   *Consumer
		err error
	}
	got := make(chan result, 1)
	w.topic.exec.PostFunc(func() {
		w.topic.Subscribe(r, func(c *Consumer, err error) { got <- result{c, err} })
	})
	res := <-got
	synctest.Wait()
	return res.c, res.err
}

func (w *world) mustSubscribe(r SubscribeRequest) *Consumer {
	w.t.Helper()
	c, err := w.subscribe(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) flow(c *Consumer, n uint32) { w.exec(c.Executor(), func() { c.Flow(n) }) }

// ack acknowledges and waits for the receipt.
func (w *world) ack(c *Consumer, r AckRequest) error {
	got := make(chan error, 1)
	r.Done = func(err error) { got <- err }
	c.Executor().PostFunc(func() { c.Ack(r) })
	return <-got
}

func (w *world) closeConsumer(c *Consumer) {
	w.exec(c.Executor(), func() { c.Close(nil) })
}

func (w *world) unsubscribe(r UnsubscribeRequest) error {
	got := make(chan error, 1)
	w.topic.exec.PostFunc(func() { w.topic.Unsubscribe(r, func(err error) { got <- err }) })
	err := <-got
	synctest.Wait()
	return err
}

func (w *world) stats() Stats {
	got := make(chan Stats, 1)
	w.topic.exec.PostFunc(func() { w.topic.Stats(func(s Stats) { got <- s }) })
	return <-got
}

// lockedSink is a fakeSink that several executors may call.
type lockedSink struct {
	mu sync.Mutex
	*fakeSink
}

func (s *lockedSink) Receipts(rs []Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fakeSink.Receipts(rs)
}

func (s *lockedSink) Deliver(c *Consumer, ds []Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fakeSink.Deliver(c, ds)
}

func (s *lockedSink) CloseProducer(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fakeSink.CloseProducer(id)
}

func (s *lockedSink) CloseConsumer(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fakeSink.CloseConsumer(id)
}

func (s *lockedSink) ActiveChanged(c *Consumer, active bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fakeSink.ActiveChanged(c, active)
}

func (s *lockedSink) Room() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fakeSink.Room()
}

// sent is a message as its producer made it.
type sent struct {
	producer string
	sequence uint64
	at       ledger.Position
}

// took returns what was delivered since the last call.
func (s *lockedSink) took() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []sent
	for _, d := range s.order {
		var section protocol.Section
		var md protocol.Metadata
		if err := section.Parse(d.Entry.Payload.Data); err != nil {
			s.t.Error(err)
		}
		if err := md.Parse(section.Metadata); err != nil {
			s.t.Error(err)
		}
		out = append(out, sent{string(md.ProducerName), md.SequenceID, d.Entry.Position})
	}
	s.order = nil
	return out
}

// taken is took, as sequence ids.
func (s *lockedSink) taken() []uint64 {
	var out []uint64
	for _, m := range s.took() {
		out = append(out, m.sequence)
	}
	return out
}

// answers returns the receipts since the last call in words.
func (s *lockedSink) answers() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := ""
	for _, r := range s.receipts {
		if out != "" {
			out += " "
		}
		switch {
		case r.Err != nil:
			out += fmt.Sprintf("%d:dropped", r.SequenceID)
		case r.Position == NoPosition:
			out += fmt.Sprintf("%d:duplicate", r.SequenceID)
		default:
			out += fmt.Sprintf("%d→%d", r.SequenceID, r.Position.Entry)
		}
	}
	s.receipts = nil
	return out
}

// told returns what the connection was told to close.
func (s *lockedSink) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.DeleteFunc(s.events, func(e string) bool { return !strings.Contains(e, "close") })
	s.events = nil
	return out
}
