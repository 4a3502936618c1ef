package topic

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

func inTransientWorld(t *testing.T, fn func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.domain = "non-persistent://"
		w.mustOpen()
		fn(w)
	})
}

// Messages go to whoever is there and has permits, and are dropped for the others; nothing reaches the bookies.
func TestTransientTopic(t *testing.T) {
	inTransientWorld(t, func(w *world) {
		out, a, b := w.sink(), w.sink(), w.sink()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: out})
		w.send(p, 0)
		ca, cb := w.mustSubscribe(durable("a", a)), w.mustSubscribe(durable("b", b))
		w.flow(ca, 2)
		w.flow(cb, 10)
		w.send(p, 1, 2, 3)
		equal(t, "two permits", a.taken(), []uint64{1, 2})
		equal(t, "ten permits", b.taken(), []uint64{1, 2, 3})
		if got := out.answers(); got != "0→0 1→1 2→2 3→3" {
			t.Errorf("receipts: %s", got)
		}
		w.flow(ca, 10)
		equal(t, "what was dropped", a.taken(), nil)
		if err := w.ack(ca, AckRequest{Positions: []ledger.Position{{Entry: 1}}}); err != nil {
			t.Error(err)
		}
		w.exec(ca.Executor(), func() { ca.Redeliver(nil) })
		b.fakeSink.blocked = true // it does not read
		w.send(p, 4)
		equal(t, "reads", a.taken(), []uint64{4})
		equal(t, "does not read", b.taken(), nil)
		st := w.stats()
		for name, drops := range map[string]int64{"a": 1, "b": 1} {
			s := st.Subscriptions[name]
			if s.MsgDropCounter != drops || s.IsDurable || s.MsgBacklog != 0 || s.UnackedMessages != 0 {
				t.Errorf("%s: %+v", name, s)
			}
		}
		if st.MsgInCounter != 5 || st.StorageSize != 0 {
			t.Errorf("%+v", st)
		}
		w.closeConsumer(ca)
		equal(t, "subscriptions", keys(w.stats().Subscriptions), []string{"b"})
		for _, prefix := range []string{metadata.TopicsPrefix, metadata.CursorsPrefix} {
			w.client.List(prefix, func(items []metadata.Item, err error) {
				if err != nil || len(items) != 0 {
					t.Errorf("stored: %v, %v", items, err)
				}
			})
		}
		synctest.Wait()
	})
}

// All that the other topics can do is either done or refused.
func TestTransientTopicRefuses(t *testing.T) {
	inTransientWorld(t, func(w *world) {
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		if _, _, err := w.producer(ProducerRequest{Name: "p", Sink: w.sink()}); !errors.Is(err, ErrProducerBusy) {
			t.Errorf("the same name: %v", err)
		}
		c := w.mustSubscribe(durable("s", w.sink()))
		if _, err := w.subscribe(durable("s", w.sink())); !errors.Is(err, ErrConsumerBusy) {
			t.Errorf("exclusive: %v", err)
		}
		w.send(p, 0, 1)
		got := make(chan error, 2)
		c.Executor().PostFunc(func() {
			c.Seek(ledger.Earliest, func(err error) { got <- err })
			c.SeekTime(0, func(err error) { got <- err })
		})
		for range 2 {
			if err := <-got; !errors.Is(err, ErrNotAllowed) {
				t.Errorf("seek: %v", err)
			}
		}
		if _, err := w.entry(ledger.Position{}); !errors.Is(err, ErrNoEntry) {
			t.Errorf("entry: %v", err)
		}
		last := make(chan LastMessage, 1)
		c.Executor().PostFunc(func() { c.LastMessage(func(m LastMessage, _ error) { last <- m }) })
		if m := <-last; m.Position.Entry != 1 || m.MarkDeleted.Entry != 1 {
			t.Errorf("%+v", m)
		}
		w.on(func() { w.topic.CreateSubscription("x", ledger.Latest, func(err error) { got <- err }) })
		if err := <-got; err != nil {
			t.Error(err)
		}
		if err := w.unsubscribe(UnsubscribeRequest{Subscription: "s", Consumer: c}); err != nil {
			t.Error(err)
		}
	})
}

// Shared subscriptions pass over who cannot take more; keys stay with their consumers; delays do not count.
func TestTransientShared(t *testing.T) {
	for _, kind := range []SubType{Shared, KeyShared} {
		inTransientWorld(t, func(w *world) {
			p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
			sinks := []*timedSink{w.timedSink(), w.timedSink()}
			for i, in := range sinks {
				w.flow(w.mustSubscribe(shared(kind, uint64(i), in)), 100)
			}
			for i := range 10 {
				w.sendDelayed(p, uint64(10*i), make([]time.Duration, 10)...)
			}
			w.sendDelayed(p, 100, time.Hour)
			owner := map[string]int{}
			count := 0
			for i, in := range sinks {
				for _, a := range in.arrivals() {
					count++
					if o, ok := owner[a.key]; ok && o != i && kind == KeyShared {
						t.Errorf("key %s is at both", a.key)
					}
					owner[a.key] = i
				}
			}
			equal(t, "delivered", []int{count}, []int{101})
			if st := w.stats().Subscriptions["s"]; st.UnackedMessages != 0 || st.MsgDropCounter != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
