package topic

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
)

func (w *world) unusedFor(caughtUp bool) time.Duration {
	got := make(chan time.Duration, 1)
	w.topic.exec.PostFunc(func() { w.topic.UnusedFor(caughtUp, func(d time.Duration) { got <- d }) })
	return <-got
}

// A topic counts as unused from the first look that finds nobody, as long as nobody comes, however shortly.
func TestUnusedFor(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		look := func(what string, caughtUp bool, want time.Duration) {
			t.Helper()
			if got := w.unusedFor(caughtUp); got != want {
				t.Errorf("%s: %v instead of %v", what, got, want)
			}
			synctest.Wait()
			time.Sleep(time.Minute)
		}
		look("new", false, 0)
		look("a minute later", false, time.Minute)
		look("two minutes later", false, 2*time.Minute)
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		look("producer", false, 0)
		w.on(func() { w.topic.RemoveProducer(p, nil) })
		look("producer gone", false, 0)
		look("a minute later", false, time.Minute)
		p = w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.send(p, 0)
		w.on(func() { w.topic.RemoveProducer(p, nil) })
		look("producer came and went", false, 0)
		look("a minute later", false, time.Minute)

		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		look("consumer", true, 0)
		w.flow(c, 10)
		w.closeConsumer(c)
		look("backlog", true, 0)
		look("backlog", true, 0)
		c = w.mustSubscribe(durable("s", in))
		if err := w.ack(c, AckRequest{Positions: []ledger.Position{w.topic.LastConfirmed()}}); err != nil {
			t.Fatal(err)
		}
		w.closeConsumer(c)
		look("consumer came and went", true, 0)
		look("subscription", false, 0)
		look("subscription without backlog", true, 0)
		look("a minute later", true, time.Minute)
		p = w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.on(func() { w.topic.RemoveProducer(p, nil) })
		look("producer came and went", true, 0)
	})
}

// A subscription that must exist is not made.
func TestSubscribeExisting(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		r := durable("s", w.sink())
		r.Existing = true
		if _, err := w.subscribe(r); !errors.Is(err, ErrNoSubscription) {
			t.Errorf("made: %v", err)
		}
		equal(t, "subscriptions", w.subscriptions(), nil)
		reader := r
		reader.Durable = false
		w.closeConsumer(w.mustSubscribe(reader))
		r.Existing = false
		w.closeConsumer(w.mustSubscribe(r))
		r.Existing = true
		w.closeConsumer(w.mustSubscribe(r))
	})
}
