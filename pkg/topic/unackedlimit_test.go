package topic

import (
	"sync"
	"testing"
	"testing/synctest"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// crowded is subscriptions of one broker, each on an executor of its own.
type crowded struct {
	t     *testing.T
	limit *UnackedLimit
	subs  []*subscription
	logs  []*fakeCursor
	sinks []*fakeSink
	cs    []*Consumer
	pool  *executor.Pool
}

func newCrowded(t *testing.T, n int, o Options) *crowded {
	w := &crowded{t: t, limit: NewUnackedLimit(o), pool: executor.NewPool(executor.Options{Threads: n})}
	for i := range n {
		f := newFakeCursor()
		f.inline = true
		s := newTestSubscription(w.pool.Next(), o, f)
		s.setUpBrokerShare(w.limit)
		w.subs, w.logs, w.sinks = append(w.subs, s), append(w.logs, f), append(w.sinks, newFakeSink(t, "c"))
		w.cs = append(w.cs, nil)
		w.on(i, func() {
			s.connect(SubscribeRequest{Type: Shared, ConsumerName: "c", Sink: w.sinks[i], Durable: true}, func(c *Consumer, err error) {
				w.cs[i] = c
				c.Flow(1_000_000)
			})
		})
	}
	return w
}

func (w *crowded) on(i int, fn func()) {
	w.subs[i].exec.PostFunc(fn)
	synctest.Wait()
}

func (w *crowded) publish(i, n int) {
	w.on(i, func() {
		for range n {
			w.logs[i].add(payloadOf(w.t, "p", uint64(len(w.logs[i].log)), 0))
		}
		w.logs[i].unpark()
	})
}

func (w *crowded) ack(i, n int) {
	w.on(i, func() {
		var ps []ledger.Position
		for p := w.logs[i].mark + 1; n > 0; n-- {
			ps = append(ps, w.logs[i].at(p))
			p++
		}
		w.cs[i].Ack(AckRequest{Positions: ps})
	})
}

func (w *crowded) got(i int) int { return len(w.sinks[i].order) }

func (w *crowded) end() {
	for i, s := range w.subs {
		w.on(i, func() { s.shutDown(func(error) {}) })
	}
	w.pool.Close()
	same(w.t, "unacknowledged at the end", w.limit.sum.Load(), 0)
}

// At the limit those with more than their share wait, others go on; at half of it, or of the share, the wait is over.
func TestUnackedLimitOfTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowded(t, 3, Options{
			MaxUnackedMessagesPerBroker: 100, MaxUnackedMessagesPerSubscriptionOnBrokerBlocked: 0.2, DispatcherMaxReadBatchSize: 5,
		})
		defer w.end()
		w.publish(0, 60)
		same(t, "far from the limit", w.got(0), 60)
		w.publish(1, 200)
		same(t, "up to the limit", w.got(1), 40)
		w.on(1, func() {
			same(t, "reason", w.subs[1].stats(w.cs[1].ConnectedSince).WhyIdle, "too many unacknowledged messages in the broker")
		})
		w.publish(2, 30)
		same(t, "a small one goes on, up to its share and the rest of a batch", w.got(2), 25)
		w.ack(0, 40)
		same(t, "between half and limit", w.got(1), 40)
		w.ack(1, 29)
		same(t, "half of its share is not reached, half of the limit is not", w.got(1), 40)
		w.ack(0, 6)
		if w.got(1)+w.got(2) <= 65 { // whoever comes first may bring the sum to the limit again
			t.Error("nobody is woken at half of the limit")
		}
	})
}

// One that acknowledges all but half of its share goes on though the broker is at its limit. What leaves with a
// subscription, or with a seek, does not count any more.
func TestUnackedLimitShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowded(t, 2, Options{MaxUnackedMessagesPerBroker: 100, DispatcherMaxReadBatchSize: 1, MaxUnackedMessagesPerSubscriptionOnBrokerBlocked: 0.2})
		defer w.end()
		w.publish(0, 79)
		w.publish(1, 90)
		same(t, "up to the limit", w.got(1), 21)
		w.ack(1, 10)
		same(t, "above half of the share", w.got(1), 21)
		w.ack(1, 1)
		same(t, "up to the share again", w.got(1), 32)
		w.on(0, func() { w.cs[0].Seek(ledger.Earliest, func(error) {}) })
		same(t, "the other has none", w.got(1), 90)
		same(t, "counted", w.limit.sum.Load(), 79)
	})
}

// Whatever executors do at the same time, nobody who waits is forgotten.
func TestUnackedLimitForgetsNobody(t *testing.T) {
	for range 50 {
		l := NewUnackedLimit(Options{MaxUnackedMessagesPerBroker: 10})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 200 {
					l.add(4)
					if l.blocked.Load() {
						woken := make(chan struct{})
						l.wait(func() { close(woken) })
						l.add(-4)
						<-woken
						continue
					}
					l.add(-4)
				}
			})
		}
		wg.Wait()
		same(t, "sum", l.sum.Load(), 0)
		same(t, "blocked", l.blocked.Load(), false)
	}
}
