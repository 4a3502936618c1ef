package topic

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/executor"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// reasonRig is a subscription whose backlog does not move. All on its executor.
type reasonRig struct {
	t *testing.T
	s *subscription
	f *fakeCursor
}

func (r *reasonRig) publish(keys ...string) {
	for _, k := range keys {
		r.f.add(keyedPayload(r.t, k, uint64(len(r.f.log)), 0))
	}
	r.f.unpark()
}

func (r *reasonRig) join(kind SubType, permits uint32) *Consumer {
	return r.joinBy(kind, permits, newFakeSink(r.t, "c"))
}

func (r *reasonRig) joinBy(kind SubType, permits uint32, sink *fakeSink) (c *Consumer) {
	n := len(r.s.consumers)
	r.s.connect(SubscribeRequest{Type: kind, Durable: true, ConsumerID: uint64(n), ConsumerName: fmt.Sprint("c", n), Sink: sink},
		func(got *Consumer, err error) {
			if c = got; err != nil {
				r.t.Error(err)
			}
		})
	c.Flow(permits)
	return c
}

// keysOf are two keys of the first two consumers.
func (r *reasonRig) keysOf() (first, second string) {
	for i := 0; first == "" || second == ""; i++ {
		key := fmt.Sprint("key", i)
		switch r.s.keys.spans.owner(hashKey([]byte(key))) {
		case r.s.consumers[0]:
			first = key
		case r.s.consumers[1]:
			second = key
		}
	}
	return first, second
}

// Each reason for which a backlog does not move is told, in a word and in a sentence.
func TestReasons(t *testing.T) {
	for want, x := range map[Reason]struct {
		o  Options
		do func(r *reasonRig)
	}{
		ReasonNoConsumers: {do: func(r *reasonRig) { r.publish("a") }},
		ReasonNoPermits: {do: func(r *reasonRig) {
			r.join(Shared, 1)
			r.publish("a", "b")
		}},
		ReasonUnackedConsumer: {Options{MaxUnackedMessagesPerConsumer: 2}, func(r *reasonRig) {
			r.join(Shared, 10)
			r.publish("a", "b", "c")
		}},
		ReasonUnackedSubscription: {Options{MaxUnackedMessagesPerSubscription: 2, DispatcherMaxReadBatchSize: 1}, func(r *reasonRig) {
			r.join(Shared, 10)
			r.publish("a", "b", "c")
		}},
		ReasonUnackedBroker: {Options{DispatcherMaxReadBatchSize: 1}, func(r *reasonRig) {
			r.s.setUpBrokerShare(NewUnackedLimit(Options{MaxUnackedMessagesPerBroker: 2}))
			r.join(Shared, 10)
			r.publish("a", "b", "c")
		}},
		ReasonNotWritable: {do: func(r *reasonRig) {
			sink := newFakeSink(r.t, "c")
			sink.blocked = true
			r.joinBy(Exclusive, 10, sink)
			r.publish("a")
		}},
		ReasonFailoverDelay: {do: func(r *reasonRig) {
			r.join(Failover, 10)
			r.publish("a")
		}},
		ReasonStorage: {do: func(r *reasonRig) {
			r.f.failing = 1
			r.join(Exclusive, 10)
			r.publish("a")
		}},
		ReasonReading: {do: func(r *reasonRig) {
			c := r.join(Shared, 10)
			r.publish("a")
			r.f.inline = false
			c.Redeliver(nil)
		}},
		ReasonDraining: {do: func(r *reasonRig) {
			r.join(KeyShared, 100)
			r.publish("key0", "key1", "key2", "key3", "key4", "key5")
			r.join(KeyShared, 100)
			_, moved := r.keysOf()
			r.publish(moved)
		}},
		ReasonKeys: {do: func(r *reasonRig) {
			r.join(KeyShared, 100)
			r.join(KeyShared, 0)
			_, second := r.keysOf()
			r.publish(second)
		}},
		ReasonLookAhead: {Options{KeySharedLookAheadMsgInReplayThresholdPerConsumer: 1, DispatcherMaxReadBatchSize: 2}, func(r *reasonRig) {
			r.join(KeyShared, 100)
			r.join(KeyShared, 0)
			_, second := r.keysOf()
			r.publish(second, second, second)
		}},
		ReasonRate: {Options{DispatchRatePerSubscription: MaxRate{Messages: 2}}, func(r *reasonRig) {
			r.s.setUpRates(nil)
			r.join(Shared, 10)
			r.publish("a", "b", "c")
		}},
		ReasonDelayed: {do: func(r *reasonRig) {
			r.join(Shared, 10)
			b, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
				ProducerName: proto.String("p"), SequenceId: proto.Uint64(0), PublishTime: proto.Uint64(1),
				DeliverAtTime: proto.Int64(time.Now().Add(time.Hour).UnixMilli()),
			}, nil)
			if err != nil {
				r.t.Fatal(err)
			}
			r.f.add(b)
			r.f.unpark()
		}},
		ReasonUnacked: {do: func(r *reasonRig) {
			r.join(Shared, 10)
			r.publish("a")
		}},
		"": {do: func(r *reasonRig) { r.join(Shared, 10) }},
	} {
		t.Run(string(want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := executor.NewPool(executor.Options{Threads: 1})
				defer pool.Close()
				f := newFakeCursor()
				f.inline = true
				x.o.SubscriptionKeySharedHashRanges = true
				r := &reasonRig{t, newTestSubscription(pool.Next(), x.o, f), f}
				r.s.exec.PostFunc(func() { x.do(r) })
				synctest.Wait()
				var st *SubscriptionStats
				r.s.exec.PostFunc(func() { st = r.s.stats(time.Now()) })
				synctest.Wait()
				if st.BlockedOn != want || st.WhyIdle != want.Text() || (st.WhyIdle == "") != (want == "") {
					t.Errorf("blocked on %q: %q", st.BlockedOn, st.WhyIdle)
				}
				r.s.exec.PostFunc(func() {
					r.s.shutDown(func(error) {})
					f.complete()
				})
				synctest.Wait()
			})
		})
	}
}

// Messages that the bookies have not given yet are being read.
func TestReasonReading(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		w.send(w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()}), 0, 1)
		w.on(func() { w.held = w.topic.log.Stats().Current.Group })
		w.close()
		w.mustOpen() // nothing is cached
		c := w.mustSubscribe(durable("s", w.sink()))
		w.cluster.Hold(w.held)
		w.flow(c, 10)
		same(t, "held", w.stats().Subscriptions["s"].BlockedOn, ReasonReading)
		w.release()
		same(t, "released", w.stats().Subscriptions["s"].BlockedOn, ReasonUnacked)
	})
}
