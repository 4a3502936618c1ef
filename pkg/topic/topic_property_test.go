package topic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
)

// TestRandomTopic lets producers with deduplication send through everything that may happen to a topic: connections that
// break, groups that hang or fail, seeks, owners that close, crash, or are replaced while they still live. In the end the
// log holds each message of each producer once and in order, receipts came in order, what was acknowledged with a receipt
// was not delivered again, nor what lies before a seek, and each producer's messages came in order on Exclusive and
// Failover subscriptions.
func TestRandomTopic(t *testing.T) {
	for seed := range seeds(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				r := &topicRun{w: w, t: t, rnd: rand.New(rand.NewPCG(uint64(seed), 5)), acked: map[ledger.Position]bool{}}
				r.run()
			})
		})
	}
}

type topicRun struct {
	w         *world
	t         *testing.T
	rnd       *rand.Rand
	producers []*stubborn
	kind      SubType
	consumer  *Consumer
	in        *lockedSink
	pending   []sent
	acked     map[ledger.Position]bool
	known     []ledger.Position // were delivered
	floor     ledger.Position   // of the last seek
	order     map[string]uint64 // producer → last sequence id delivered since something made the subscription start over
	down      bool
}

// stubborn is a producer that sends again, in order, whatever has no receipt when it has to reconnect.
type stubborn struct {
	name    string
	next    uint64
	epoch   uint64
	unacked []uint64
	p       *Producer
	sink    *lockedSink
}

func (r *topicRun) run() {
	r.w.options = Options{BrokerDeduplicationEnabled: true, BrokerDeduplicationEntriesInterval: 7}
	r.kind = SubType(r.rnd.IntN(4))
	r.floor = ledger.Earliest
	for i := range 3 {
		r.producers = append(r.producers, &stubborn{name: fmt.Sprint("p", i)})
	}
	r.reopen()
	for range 60 {
		r.step()
		synctest.Wait()
		r.deliveries()
		if r.rnd.IntN(3) == 0 { // receipts that a client has not seen when it reconnects are lost
			r.receipts()
		}
	}
	r.heal()
	for round := 0; r.unfinished(); round++ {
		if round == 10 {
			r.t.Fatal("messages get no receipts")
		}
		r.reopen()
		r.receipts()
		r.deliveries()
	}
	r.check()
}

func (r *topicRun) step() {
	w := r.w
	s := r.producers[r.rnd.IntN(len(r.producers))]
	switch n := r.rnd.IntN(100); {
	case n < 50:
		var seqs []uint64
		for range 1 + r.rnd.IntN(5) {
			seqs = append(seqs, s.next)
			s.next++
		}
		s.unacked = append(s.unacked, seqs...)
		w.send(s.p, seqs...)
	case n < 60:
		r.reconnect(s)
	case n < 75:
		r.ack()
	case n < 80:
		w.exec(r.consumer.Executor(), func() { r.consumer.Redeliver(nil) })
		r.pending, r.order = nil, map[string]uint64{}
	case n < 82:
		r.seek()
	case n < 85:
		r.change(n%2 == 0)
	case n < 92:
		<-time.After(time.Duration(r.rnd.IntN(500)) * time.Millisecond)
	case n < 94:
		r.heal()
		w.close()
		r.reopen()
	case n < 97:
		r.heal()
		w.crash()
		r.reopen()
	default:
		r.heal()
		r.reopen()
	}
	if len(w.lost) > 0 { // the broker has told the clients
		w.lost = nil
		r.heal()
		r.reopen()
	}
}

// change makes the topic's group hang or fail, or ends that.
func (r *topicRun) change(hang bool) {
	if r.down {
		r.heal()
		return
	}
	r.down = true
	r.w.on(func() { r.w.held = r.w.topic.log.Stats().Current.Group })
	if hang {
		r.w.cluster.Hold(r.w.held)
	} else {
		r.w.cluster.Down(r.w.held)
	}
}

func (r *topicRun) heal() {
	if r.down {
		r.w.cluster.Release(r.w.held)
		r.w.cluster.Up(r.w.held)
		r.down = false
	}
}

// reopen makes a new broker own the topic, and all clients connect to it.
func (r *topicRun) reopen() {
	r.w.mustOpen()
	r.w.lost = nil
	for _, s := range r.producers {
		r.reconnect(s)
	}
	r.subscribe()
}

func (r *topicRun) subscribe() {
	r.in, r.pending, r.order = r.w.sink(), nil, map[string]uint64{}
	req := durable("s", r.in)
	req.Type = r.kind
	r.consumer = r.w.mustSubscribe(req)
	r.w.flow(r.consumer, 1<<20)
}

func (r *topicRun) reconnect(s *stubborn) {
	s.epoch++
	s.sink = r.w.sink()
	s.p = r.w.mustProducer(ProducerRequest{Name: s.name, Epoch: s.epoch, Sink: s.sink})
	r.w.send(s.p, s.unacked...)
}

func (r *topicRun) receipts() {
	for _, s := range r.producers {
		s.sink.mu.Lock()
		for _, x := range s.sink.receipts {
			switch {
			case x.Err != nil:
			case len(s.unacked) == 0 || s.unacked[0] != x.SequenceID:
				r.t.Errorf("%s: receipt for %d, waiting for %v", s.name, x.SequenceID, s.unacked)
			default:
				s.unacked = s.unacked[1:]
			}
		}
		s.sink.receipts = nil
		s.sink.mu.Unlock()
	}
}

// seek goes to a place that was delivered from, or to the start.
func (r *topicRun) seek() {
	if r.down {
		return
	}
	to := ledger.Earliest
	if n := len(r.known); n > 0 && r.rnd.IntN(4) > 0 {
		to = r.known[r.rnd.IntN(n)]
	}
	got := make(chan error, 1)
	r.consumer.Executor().PostFunc(func() { r.consumer.Seek(to, func(err error) { got <- err }) })
	if err := <-got; err != nil { // the outcome is unknown
		r.floor = ledger.Earliest
		clear(r.acked)
	} else {
		r.floor = to
		maps.DeleteFunc(r.acked, func(p ledger.Position, _ bool) bool { return !p.Less(to) })
	}
	synctest.Wait()
	r.in.took()
	r.subscribe()
}

func (r *topicRun) deliveries() {
	single := r.kind == Exclusive || r.kind == Failover
	for _, m := range r.in.took() {
		r.known = append(r.known, m.at)
		if m.at.Less(r.floor) {
			r.t.Errorf("%v delivered after a seek to %v", m, r.floor)
		}
		if last, ok := r.order[m.producer]; single && ok && m.sequence <= last {
			r.t.Errorf("%v delivered after sequence id %d", m, last)
		}
		r.order[m.producer] = m.sequence
		if r.acked[m.at] {
			r.t.Errorf("%v delivered after it was acknowledged", m)
		}
		r.pending = append(r.pending, m)
	}
}

// ack acknowledges some of what was delivered and waits until that is durable.
func (r *topicRun) ack() {
	if len(r.pending) == 0 || r.down {
		return
	}
	n := 1 + r.rnd.IntN(len(r.pending))
	q := AckRequest{}
	for _, m := range r.pending[:n] {
		q.Positions = append(q.Positions, m.at)
	}
	if single := r.kind == Exclusive || r.kind == Failover; single && r.rnd.IntN(2) == 0 {
		q.Type, q.Positions = AckCumulative, q.Positions[n-1:]
	}
	if err := r.w.ack(r.consumer, q); err != nil {
		return // the outcome is unknown
	}
	for _, m := range r.pending[:n] {
		r.acked[m.at] = true
	}
	r.pending = r.pending[n:]
}

func (r *topicRun) unfinished() bool {
	for _, s := range r.producers {
		if len(s.unacked) > 0 {
			return true
		}
	}
	return false
}

// check reads the whole log.
func (r *topicRun) check() {
	in := r.w.sink()
	c := r.w.mustSubscribe(SubscribeRequest{Subscription: "reader", Start: ledger.Earliest, Sink: in})
	r.w.flow(c, 1<<20)
	next := map[string]uint64{}
	for _, m := range in.took() {
		if m.sequence != next[m.producer] {
			r.t.Errorf("%s: %d at %v, expected %d", m.producer, m.sequence, m.at, next[m.producer])
		}
		next[m.producer] = m.sequence + 1
	}
	for _, s := range r.producers {
		same(r.t, s.name, next[s.name], s.next)
	}
	left := r.w.stats().Subscriptions["s"].MsgBacklog
	var total uint64
	for _, s := range r.producers {
		total += s.next
	}
	if got := int64(total) - int64(len(r.acked)); left > got {
		r.t.Errorf("backlog %d, but %d of %d messages are acknowledged", left, len(r.acked), total)
	}
}
