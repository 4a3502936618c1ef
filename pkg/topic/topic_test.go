package topic

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
)

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, expected %v", what, got, want)
	}
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, expected %v", what, got, want)
	}
}

func fails(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, expected %v", what, err, want)
	}
}

func durable(name string, sink Sink) SubscribeRequest {
	return SubscribeRequest{
		Subscription: name, Durable: true, Start: ledger.Earliest, ConsumerID: 1, ConsumerName: "c", Sink: sink,
	}
}

func TestPublishAndConsume(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		out, in := w.sink(), w.sink()
		p := w.mustProducer(ProducerRequest{ID: 7, Sink: out})
		same(t, "name", p.Name, "b-1-1")
		w.send(p, 0, 1, 2)
		same(t, "receipts", out.answers(), "0→0 1→1 2→2")
		c := w.mustSubscribe(durable("s", in))
		w.flow(c, 2)
		equal(t, "first", in.taken(), []uint64{0, 1})
		w.send(p, 3)
		equal(t, "without permits", in.taken(), nil)
		w.flow(c, 100)
		w.send(p, 4)
		equal(t, "rest", in.taken(), []uint64{2, 3, 4})
		w.stopAt(c, 2)

		// The next owner goes on where this one stopped.
		w.close()
		equal(t, "told", out.told(), []string{"s1: close producer 7"})
		equal(t, "told", in.told(), []string{"s2: close consumer 1"})
		w.mustOpen()
		c = w.mustSubscribe(durable("s", in))
		w.flow(c, 100)
		equal(t, "again", in.taken(), []uint64{3, 4})
	})
}

// stopAt acknowledges up to the entry.
func (w *world) stopAt(c *Consumer, entry int) {
	w.t.Helper()
	p := w.topic.LastConfirmed()
	p.Entry = ledger.EntryID(entry)
	if err := w.ack(c, AckRequest{Type: AckCumulative, Positions: []ledger.Position{p}}); err != nil {
		w.t.Error(err)
	}
}

// A crash loses nothing that was answered, neither messages nor acknowledgements.
func TestCrash(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		out, in := w.sink(), w.sink()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: out})
		c := w.mustSubscribe(durable("s", in))
		w.send(p, 0, 1, 2, 3)
		w.stopAt(c, 1)
		w.crash()
		w.mustOpen()
		equal(t, "subscriptions", keys(w.stats().Subscriptions), []string{"s"})
		c = w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		equal(t, "again", in.taken(), []uint64{2, 3})
	})
}

func keys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestProducerNames(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		one, two := w.sink(), w.sink()
		first := w.mustProducer(ProducerRequest{ID: 1, Name: "p", Sink: one})
		_, _, err := w.producer(ProducerRequest{ID: 1, Name: "p", Sink: two})
		fails(t, "same name", err, ErrProducerBusy)

		// The client comes back on another connection before the old one is known to be dead.
		w.hold()
		w.send(first, 0)
		second := w.mustProducer(ProducerRequest{ID: 1, Name: "p", Epoch: 1, Sink: two})
		equal(t, "old connection", one.told(), []string{"s1: close producer 1"})
		w.send(first, 1)
		same(t, "send of the old registration", one.answers(), "1:dropped")
		w.send(second, 0)
		drained := 0
		w.on(func() { w.topic.RemoveProducer(first, func() { drained++ }) })
		same(t, "drained", drained, 0)
		w.release()
		synctest.Wait()
		same(t, "drained", drained, 1)
		same(t, "old receipts", one.answers(), "0→0")
		same(t, "new receipts", two.answers(), "0→1")
		w.send(second, 1)
		same(t, "the new one is still there", two.answers(), "1→2")

		// On the same connection the id belongs to the successor: it is not closed.
		w.mustProducer(ProducerRequest{ID: 1, Name: "p", Epoch: 2, Sink: two})
		equal(t, "same connection", two.told(), nil)
	})
}

func TestCloseAnswersWhatIsInFlight(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		out := w.sink()
		p := w.mustProducer(ProducerRequest{ID: 1, Name: "p", Sink: out})
		w.hold()
		w.send(p, 0, 1)
		topic, closed := w.topic, 0
		w.on(func() { topic.Close(func(error) { closed++ }) })
		w.send(p, 2)
		same(t, "closed", closed, 0)
		same(t, "after the fence", out.answers(), "2:dropped")
		equal(t, "not closed yet", out.told(), nil)
		w.release()
		synctest.Wait()
		same(t, "in flight", out.answers(), "0→0 1→1")
		equal(t, "closed", out.told(), []string{"s1: close producer 1"})
		same(t, "closed", closed, 1)
		w.exec(topic.exec, func() { topic.Close(func(error) { closed++ }) })
		same(t, "closed again", closed, 2)
		_, _, err := w.producer(ProducerRequest{Name: "q", Sink: out})
		fails(t, "producer", err, ErrNotReady)
		_, err = w.subscribe(durable("s", out))
		fails(t, "consumer", err, ErrNotReady)
		w.topic = nil
	})
}

// Another owner takes the topic: clients are sent to it, connections stay, nothing is answered twice.
func TestLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		out, in := w.sink(), w.sink()
		p := w.mustProducer(ProducerRequest{ID: 1, Name: "p", Sink: out})
		w.send(p, 0)
		c := w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		old := w.topic
		w.mustOpen()
		out.answers()
		in.told()
		w.exec(old.exec, func() {
			old.Publish([]Message{{Producer: p, SequenceID: 1, Messages: 1, Payload: ledger.Payload{Data: []byte("x")}}})
		})
		same(t, "receipt", out.answers(), "1:dropped")
		equal(t, "producer", out.told(), []string{"s1: close producer 1"})
		equal(t, "consumer", in.told(), []string{"s2: close consumer 1"})
		same(t, "reports", len(w.lost), 1)
		w.exec(c.Executor(), func() { // the connection does not know yet
			c.Flow(1)
			c.Redeliver(nil)
			c.Ack(AckRequest{Positions: []ledger.Position{{}}})
			c.Close(nil)
		})
	})
}

func TestSubscriptions(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.send(p, 0, 1, 2, 3)
		at := w.topic.LastConfirmed()

		// Where a new one starts; readers name the first entry that they want. The subscription ends with its consumer.
		at.Entry = 2
		for _, x := range []struct {
			start ledger.Position
			want  []uint64
		}{{ledger.Earliest, []uint64{0, 1, 2, 3}}, {ledger.Latest, nil}, {at, []uint64{2, 3}}} {
			in := w.sink()
			c := w.mustSubscribe(SubscribeRequest{Subscription: "r", Start: x.start, ConsumerID: 1, Sink: in})
			w.flow(c, 10)
			equal(t, "from "+x.start.String(), in.taken(), x.want)
			_, err := w.subscribe(durable("r", in))
			fails(t, "durable", err, ErrNotAllowed)
			w.closeConsumer(c)
			equal(t, "subscriptions", keys(w.stats().Subscriptions), nil)
		}

		_, err := w.subscribe(SubscribeRequest{Subscription: "k", Type: KeyShared + 1, Durable: true})
		fails(t, "no type", err, ErrBadRequest)
		_, err = w.subscribe(SubscribeRequest{Durable: true})
		fails(t, "no name", err, ErrBadRequest)

		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		_, err = w.subscribe(durable("s", in))
		fails(t, "second", err, ErrConsumerBusy)
		fails(t, "unsubscribe by an administrator", w.unsubscribe(UnsubscribeRequest{Subscription: "s"}), ErrConsumerBusy)
		fails(t, "unknown", w.unsubscribe(UnsubscribeRequest{Subscription: "x"}), ErrNoSubscription)
		w.flow(c, 1)
		if err := w.unsubscribe(UnsubscribeRequest{Subscription: "s", Consumer: c}); err != nil {
			t.Error(err)
		}
		in.taken()
		c = w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		equal(t, "a new subscription", in.taken(), []uint64{0, 1, 2, 3})
		in.told()
		if err := w.unsubscribe(UnsubscribeRequest{Subscription: "s", Force: true}); err != nil {
			t.Error(err)
		}
		equal(t, "told", in.told(), []string{in.name + ": close consumer 1"})
		w.crash()
		w.mustOpen()
		equal(t, "subscriptions", keys(w.stats().Subscriptions), nil)
	})
}

// Requests that cross a subscription's end find the next one.
func TestSubscribeWhileItEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.send(p, 0)
		for _, isDurable := range []bool{true, false} {
			first, second := w.sink(), w.sink()
			r := durable("s", first)
			r.Durable = isDurable
			if !isDurable {
				r.Subscription = "r"
			}
			c := w.mustSubscribe(r)
			r.Sink = second
			got := make(chan *Consumer, 1)
			w.exec(c.Executor(), func() {
				if isDurable {
					c.Unsubscribe(false, func(err error) {
						if err != nil {
							t.Error(err)
						}
					})
				} else {
					c.Close(nil)
				}
				w.topic.exec.PostFunc(func() {
					w.topic.Subscribe(r, func(c *Consumer, err error) {
						if err != nil {
							t.Error(err)
						}
						got <- c
					})
				})
			})
			c = <-got
			w.flow(c, 10)
			equal(t, "second", second.taken(), []uint64{0})
			w.closeConsumer(c)
		}
	})
}

func (w *world) lastMessage(c *Consumer) LastMessage {
	got := make(chan LastMessage, 1)
	c.Executor().PostFunc(func() {
		c.LastMessage(func(m LastMessage, err error) {
			if err != nil {
				w.t.Error(err)
			}
			got <- m
		})
	})
	return <-got
}

func TestLastMessage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		c := w.mustSubscribe(durable("s", w.sink()))
		m := w.lastMessage(c)
		same(t, "empty", m.Position.Entry, ledger.NoEntry)
		same(t, "empty", m.BatchIndex, -1)
		w.send(p, 0)
		m = w.lastMessage(c)
		same(t, "one", m.Position, w.topic.LastConfirmed())
		same(t, "one", m.BatchIndex, -1)
		w.on(func() {
			w.topic.Publish([]Message{{
				Producer: p, SequenceID: 1, Messages: 5, Payload: ledger.Payload{Data: payloadOf(t, "p", 1, 5)},
			}})
		})
		w.stopAt(c, 0)
		for range 2 { // the second time it has to be read
			m = w.lastMessage(c)
			same(t, "batch", m.Position, w.topic.LastConfirmed())
			same(t, "batch", m.BatchIndex, 4)
			same(t, "mark-delete", m.MarkDeleted.Entry, 0)
			w.crash()
			w.mustOpen()
			c = w.mustSubscribe(durable("s", w.sink()))
		}
	})
}

func TestStats(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{ID: 3, Name: "p", Sink: w.sink(), Metadata: map[string]string{"k": "v"}})
		r := durable("s", w.sink())
		r.Type = Shared
		c := w.mustSubscribe(r)
		w.flow(c, 2)
		w.send(p, 0, 1, 2, 3)
		s := w.stats()
		same(t, "in", s.MsgInCounter, 4)
		same(t, "out", s.MsgOutCounter, 2)
		same(t, "publisher", s.Publishers[0].ProducerName+s.Publishers[0].Metadata["k"], "pv")
		sub := s.Subscriptions["s"]
		same(t, "backlog", sub.MsgBacklog, 4)
		same(t, "type", sub.Type, "Shared")
		same(t, "idle", sub.WhyIdle, "no consumer has permits")
		same(t, "permits", sub.Consumers[0].AvailablePermits, 0)
		same(t, "unacked", sub.Consumers[0].UnackedMessages, 2)
		same(t, "average", sub.Consumers[0].AvgMessagesPerEntry, 1)
		if !strings.HasPrefix(s.Publishers[0].ConnectedSince, "2000-01-01T") { // the clock of the bubble
			t.Errorf("connected since %s", s.Publishers[0].ConnectedSince)
		}
	})
}

// A failed read is tried again by itself.
func TestReadFailures(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		in := w.sink()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.send(p, 0, 1, 2)
		w.crash()
		w.mustOpen() // nothing is cached
		w.cluster.FailNext(bookietest.Read, 2, ledger.ErrUnreadable)
		c := w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		equal(t, "failed", in.taken(), nil)
		<-time.After(time.Second)
		synctest.Wait()
		equal(t, "tried again", in.taken(), []uint64{0, 1, 2})
	})
}

// What fails while a topic opens closes it again; the next attempt finds everything.
func TestOpenFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = Options{BrokerDeduplicationEnabled: true}
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.mustSubscribe(durable("s", w.sink()))
		w.send(p, 0, 1)
		w.crash()
		w.cluster.FailNext(bookietest.Read, 1, ledger.ErrUnreadable)
		fails(t, "replay", w.open(), ledger.ErrUnreadable)
		w.mustOpen()
		_, last, err := w.producer(ProducerRequest{Name: "p", Sink: w.sink()})
		if err != nil {
			t.Error(err)
		}
		same(t, "last sequence id", last, 1)
		equal(t, "subscriptions", keys(w.stats().Subscriptions), []string{"s"})
	})
}

// When the log hangs, a closing topic does not wait for ever; what was in flight is for the next owner to answer.
func TestCloseWhileTheLogHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		out := w.sink()
		p := w.mustProducer(ProducerRequest{ID: 1, Name: "p", Sink: out})
		w.send(p, 0)
		for g := range ledger.GroupID(4) {
			w.cluster.Hold(g)
		}
		w.send(p, 1)
		done := make(chan error, 1)
		begin := time.Now()
		w.topic.exec.PostFunc(func() { w.topic.Close(func(err error) { done <- err }) })
		if err := <-done; err == nil {
			t.Error("closed although the log hangs")
		}
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("closing took %s", d)
		}
		same(t, "receipts", out.answers(), "0→0 1:dropped")
		equal(t, "told", out.told(), []string{"s1: close producer 1"})
		for g := range ledger.GroupID(4) {
			w.cluster.Release(g)
		}
		synctest.Wait()
		same(t, "later", out.answers(), "")
		w.topic = nil
		w.mustOpen()
	})
}
