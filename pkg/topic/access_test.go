package topic

import (
	"slices"
	"testing"
)

func (w *world) remove(p *Producer) { w.on(func() { w.topic.RemoveProducer(p, nil) }) }

func TestExclusiveProducer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		one, two := w.sink(), w.sink()
		shared := ProducerRequest{ID: 9, Name: "shared", Sink: two}
		alone := func(name string, epoch, topicEpoch uint64, in Sink) ProducerRequest {
			return ProducerRequest{ID: 1, Name: name, Epoch: epoch, AccessMode: ProducerExclusive, TopicEpoch: topicEpoch, Sink: in}
		}
		s := w.mustProducer(shared)
		_, _, err := w.producer(alone("a", 0, 0, one))
		fails(t, "beside a shared one", err, ErrProducerFenced)
		w.remove(s)

		a := w.mustProducer(alone("a", 0, 0, one))
		_, _, err = w.producer(shared)
		fails(t, "shared beside it", err, ErrProducerBusy)
		_, _, err = w.producer(alone("b", 0, 0, two))
		fails(t, "another", err, ErrProducerFenced)

		// It may come back, and keeps its epoch; the registration it leaves behind lets nobody else in.
		again := w.mustProducer(alone("a", 1, a.TopicEpoch, two))
		same(t, "epoch", again.TopicEpoch, a.TopicEpoch)
		w.remove(a)
		_, _, err = w.producer(shared)
		fails(t, "shared beside it", err, ErrProducerBusy)

		// Who is fenced is closed, and cannot come back.
		b := w.mustProducer(ProducerRequest{ID: 3, Name: "b", AccessMode: ProducerExclusiveWithFencing, Sink: one})
		equal(t, "told", two.told(), []string{two.name + ": close producer 1"})
		_, _, err = w.producer(alone("a", 2, again.TopicEpoch, two))
		fails(t, "fenced", err, ErrProducerFenced)
		w.remove(b)
		_, _, err = w.producer(alone("a", 2, again.TopicEpoch, two))
		fails(t, "fenced for good", err, ErrProducerFenced)
		_, _, err = w.producer(alone("a", 2, 1<<60, two))
		fails(t, "an epoch that nobody gave", err, ErrBadRequest)
		w.remove(w.mustProducer(shared))
		one.told()

		// The next owner does not know epochs, but takes the higher for the right one.
		w.crash()
		w.mustOpen()
		old := w.mustProducer(alone("a", 3, a.TopicEpoch, one))
		w.mustProducer(alone("b", 1, b.TopicEpoch, two))
		equal(t, "told", one.told(), []string{one.name + ": close producer 1"})
		_, _, err = w.producer(alone("a", 4, old.TopicEpoch, one))
		fails(t, "fenced", err, ErrProducerFenced)
	})
}

func TestWaitForExclusive(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		in := w.sink()
		var got []string
		ask := func(id uint64, name string) {
			r := ProducerRequest{ID: id, Name: name, AccessMode: ProducerWaitForExclusive, Sink: in}
			r.Waits = func(name string) { got = append(got, name+" waits") }
			w.on(func() {
				w.topic.AddProducer(r, func(_ *Producer, _ int64, err error) {
					if err != nil {
						name += " not"
					}
					got = append(got, name)
				})
			})
		}
		said := func(want ...string) {
			t.Helper()
			equal(t, "said", got, want)
			got = nil
		}
		s := w.mustProducer(ProducerRequest{ID: 9, Name: "shared", Sink: in})
		for i, name := range []string{"a", "b", "c", "d"} {
			ask(uint64(i), name)
		}
		said("a waits", "b waits", "c waits", "d waits")
		w.on(func() { w.topic.Withdraw(in, 1) })
		said("b not")
		w.remove(s)
		said("a")
		a := w.topic.producers["a"]
		w.remove(a)
		w.remove(a)
		said("c")
		equal(t, "alone", slices.Collect(func(yield func(string) bool) { w.on(func() { yield(w.topic.ExclusiveProducer()) }) }), []string{"c"})
		w.close() // answers d
		said("d not")
	})
}
