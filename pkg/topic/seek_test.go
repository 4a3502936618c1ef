package topic

import (
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
)

func (w *world) seek(c *Consumer, p ledger.Position) {
	w.t.Helper()
	got := make(chan error, 1)
	c.Executor().PostFunc(func() { c.Seek(p, func(err error) { got <- err }) })
	if err := <-got; err != nil {
		w.t.Error(err)
	}
	synctest.Wait()
}

// A seek holds over a crash.
func TestSeekIsDurable(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.send(p, 0, 1, 2, 3)
		in := w.sink()
		c := w.mustSubscribe(durable("s", in))
		at := w.topic.LastConfirmed()
		at.Entry = 2
		w.seek(c, at)
		equal(t, "told", in.told(), []string{in.name + ": close consumer 1"})
		w.crash()
		w.mustOpen()
		c = w.mustSubscribe(durable("s", in))
		w.flow(c, 10)
		equal(t, "from entry 2", in.taken(), []uint64{2, 3})
		for _, x := range []struct {
			to   ledger.Position
			want []uint64
		}{{ledger.Latest, nil}, {ledger.Earliest, []uint64{0, 1, 2, 3}}} {
			w.seek(c, x.to)
			c = w.mustSubscribe(durable("s", in))
			w.flow(c, 10)
			equal(t, "from "+x.to.String(), in.taken(), x.want)
		}
	})
}

// The subscription of a reader survives the moment between its seek and its coming back, whatever start it names then.
// One that does not come back leaves nothing.
func TestSeekOfReader(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		w.send(p, 0, 1)
		in := w.sink()
		r := SubscribeRequest{Subscription: "r", Start: ledger.Latest, ConsumerID: 1, Sink: in}
		c := w.mustSubscribe(r)
		w.seek(c, ledger.Earliest)
		c = w.mustSubscribe(r)
		w.flow(c, 10)
		equal(t, "after seek", in.taken(), []uint64{0, 1})
		<-time.After(2 * seekGrace)
		equal(t, "subscriptions", keys(w.stats().Subscriptions), []string{"r"})
		w.seek(c, ledger.Earliest)
		<-time.After(2 * seekGrace)
		synctest.Wait()
		equal(t, "subscriptions", keys(w.stats().Subscriptions), nil)
	})
}
