package topic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

func TestDelayHeap(t *testing.T) {
	if size := unsafe.Sizeof(delayed{}); size != 24 {
		t.Errorf("%d bytes per message", size)
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		var h delayHeap
		var all []delayed
		for range 3000 {
			if r.IntN(3) > 0 || len(h) == 0 {
				e := delayed{r.Uint64N(50)<<16 | r.Uint64N(9), ledger.Position{Ledger: ledger.ID(r.IntN(3)), Entry: ledger.EntryID(r.IntN(1000))}}
				h.push(e)
				all = append(all, e)
				continue
			}
			least := slices.MinFunc(all, func(a, b delayed) int {
				if a.before(&b) {
					return -1
				}
				return 1
			})
			got := h.pop()
			if least.before(&got) {
				t.Fatalf("%v before %v", got, least)
			}
			all = slices.Delete(all, slices.Index(all, got), slices.Index(all, got)+1)
		}
		for len(h) > 0 {
			h.pop()
		}
		if cap(h) > 1024 {
			t.Errorf("%d places are kept", cap(h))
		}
	}
}

// timedSink notes when messages come.
type timedSink struct {
	*lockedSink
	mu   sync.Mutex
	came []arrival
}

type arrival struct {
	sequence uint64
	due      int64
	when     time.Time
	at       ledger.Position
	key      string
}

func (w *world) timedSink() *timedSink { return &timedSink{lockedSink: w.sink()} }

func (s *timedSink) Deliver(c *Consumer, ds []Delivery) {
	s.mu.Lock()
	for i := range ds {
		var section protocol.Section
		var md protocol.Metadata
		if section.Parse(ds[i].Entry.Payload.Data) == nil && md.Parse(section.Metadata) == nil {
			s.came = append(s.came, arrival{md.SequenceID, md.DeliverAt, time.Now(), ds[i].Entry.Position, string(md.PartitionKey)})
		}
	}
	s.mu.Unlock()
	s.lockedSink.Deliver(c, ds)
}

func (s *timedSink) arrivals() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.came
	s.came = nil
	return out
}

func (s *timedSink) sequences() (out []uint64) {
	for _, a := range s.arrivals() {
		out = append(out, a.sequence)
	}
	return out
}

// sendDelayed publishes messages that are due after the given times; 0: at once.
func (w *world) sendDelayed(p *Producer, first uint64, after ...time.Duration) {
	var batch []Message
	for i, d := range after {
		seq := first + uint64(i)
		md := &pulsarpb.MessageMetadata{
			ProducerName: proto.String(p.Name), SequenceId: &seq, PublishTime: proto.Uint64(1),
			PartitionKey: proto.String(fmt.Sprint("k", seq%5)),
		}
		if d != 0 {
			md.DeliverAtTime = proto.Int64(time.Now().Add(d).UnixMilli())
		}
		b, err := protocol.AppendSection(nil, md, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		batch = append(batch, Message{Producer: p, SequenceID: seq, Messages: 1, Payload: ledger.Payload{Data: b}})
	}
	w.on(func() { p.topic.Publish(batch) })
}

func shared(kind SubType, id uint64, in Sink) SubscribeRequest {
	return SubscribeRequest{
		Subscription: "s", Type: kind, Durable: true, Start: ledger.Earliest, ConsumerID: id, ConsumerName: fmt.Sprint("c", id), Sink: in,
	}
}

// One that is due waits for nobody; figures tell what waits; who wants order gets it at once.
func TestDelayedDelivery(t *testing.T) {
	for _, kind := range []SubType{Shared, KeyShared} {
		inWorld(t, func(w *world) {
			w.options.DelayedDeliveryStrict = true
			w.mustOpen()
			p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
			in, plain := w.timedSink(), w.sink()
			c := w.mustSubscribe(shared(kind, 1, in))
			w.flow(c, 5)
			w.sendDelayed(p, 0, time.Hour, 3*time.Second, 0, 2*time.Second, -time.Second, 2*time.Second)
			equal(t, "at once", in.sequences(), []uint64{2, 4})
			st := w.stats().Subscriptions["s"]
			if st.MsgDelayed != 4 || st.MsgBacklog != 6 || st.UnackedMessages != 2 || st.WhyIdle != "messages wait for their time of delivery" {
				t.Errorf("%+v", st)
			}
			<-time.After(2*time.Second - time.Millisecond)
			equal(t, "early", in.sequences(), nil)
			<-time.After(time.Millisecond)
			synctest.Wait()
			equal(t, "after 2 s", in.sequences(), []uint64{3, 5})
			<-time.After(time.Second)
			synctest.Wait()
			equal(t, "after 3 s", in.sequences(), []uint64{1})
			w.sendDelayed(p, 6, time.Second, 0) // there are no permits
			<-time.After(2 * time.Hour)
			synctest.Wait()
			equal(t, "no permits", in.sequences(), nil)
			w.flow(c, 10)
			equal(t, "permits", in.sequences()[:1], []uint64{0})
			e := w.mustSubscribe(durable("exclusive", plain))
			w.sendDelayed(p, 8, time.Hour)
			w.flow(e, 100)
			equal(t, "exclusive", plain.taken(), []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8})
			if st := w.stats().Subscriptions["s"]; st.MsgDelayed != 1 {
				t.Errorf("%d wait", st.MsgDelayed)
			}
			w.seek(c, ledger.Earliest) // begins anew, with what is due by now
			c = w.mustSubscribe(shared(kind, 1, in))
			in.sequences()
			w.flow(c, 100)
			equal(t, "after the seek", in.sequences(), []uint64{0, 1, 2, 3, 4, 5, 6, 7})
		})
	}
}

func TestDelayedDeliveryDisabled(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.DelayedDeliveryDisabled = true
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		in := w.timedSink()
		w.flow(w.mustSubscribe(shared(Shared, 1, in)), 5)
		w.sendDelayed(p, 0, time.Hour)
		equal(t, "at once", in.sequences(), []uint64{0})
	})
}

// Messages with random delays, over consumers that come and go and two crashes: none comes early, none later than a tick
// after its time or after there was somebody to take it, and none that was acknowledged comes again.
func TestDelayedMessagesOverCrashes(t *testing.T) {
	for seed := range uint64(8) {
		inWorld(t, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 4))
			kind := []SubType{Shared, KeyShared}[seed%2]
			w.options.DelayedDeliveryStrict = seed%4 < 2
			tick := time.Second
			if w.options.DelayedDeliveryStrict {
				tick = time.Millisecond
			}
			const messages = 300
			acked := map[uint64]bool{}
			sent := uint64(0)
			for life := range 3 {
				w.mustOpen()
				began := time.Now()
				p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
				sinks := []*timedSink{w.timedSink(), w.timedSink()}
				consumers := []*Consumer{}
				for i, in := range sinks {
					c := w.mustSubscribe(shared(kind, uint64(i), in))
					w.flow(c, messages*3)
					consumers = append(consumers, c)
				}
				for life < 2 && sent < uint64(life+1)*messages/2 {
					var after []time.Duration
					for range 25 {
						after = append(after, time.Duration(r.IntN(20_000))*time.Millisecond)
					}
					w.sendDelayed(p, sent, after...)
					sent += 25
				}
				for range []int{12, 12, 45}[life] {
					<-time.After(time.Second)
					synctest.Wait()
					for i, in := range sinks {
						var done []ledger.Position
						for _, a := range in.arrivals() {
							late := a.when.Sub(time.UnixMilli(a.due))
							if acked[a.sequence] || late < 0 || late > tick && a.when.Sub(began) > tick && kind == Shared {
								t.Errorf("seed %d: %d came %v after its time, acknowledged %t", seed, a.sequence, late, acked[a.sequence])
							}
							if life == 2 || r.IntN(3) > 0 {
								acked[a.sequence] = true
								done = append(done, a.at)
							}
						}
						if len(done) > 0 {
							if err := w.ack(consumers[i], AckRequest{Positions: done}); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				if life < 2 {
					w.crash()
				}
			}
			if st := w.stats().Subscriptions["s"]; len(acked) != messages || st.MsgBacklog != 0 || st.MsgDelayed != 0 || st.UnackedMessages != 0 {
				t.Errorf("seed %d: %d acknowledged, %+v", seed, len(acked), st)
			}
		})
	}
}

// A thousand that are early and one permit: what is due behind them is found in a few reads.
func TestDelayedMessagesAreReadManyAtATime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		after := make([]time.Duration, 1000)
		for i := range after {
			after[i] = time.Hour
		}
		w.sendDelayed(p, 0, append(after, 0)...)
		in := w.timedSink()
		c := w.mustSubscribe(shared(Shared, 1, in))
		counted := &countingCursor{cursor: c.sub.cursor}
		w.exec(c.Executor(), func() { c.sub.cursor = counted })
		w.flow(c, 1)
		equal(t, "due", in.sequences(), []uint64{1000})
		if counted.reads > 20 {
			t.Errorf("%d reads", counted.reads)
		}
	})
}

type countingCursor struct {
	cursor
	reads int
}

func (c *countingCursor) Read(limits ledger.Limits, done func([]ledger.Entry, error)) {
	c.reads++
	c.cursor.Read(limits, done)
}
