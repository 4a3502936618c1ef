package topic

import (
	"fmt"
	"sync"
	"testing"

	"geminga/pkg/ledger"
)

// Too many consumers of a topic or of a subscription, and too many subscriptions, are refused; who leaves makes room.
func TestLimits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.MaxConsumersPerTopic, w.options.MaxConsumersPerSubscription, w.options.MaxSubscriptionsPerTopic = 3, 2, 2
		w.mustOpen()
		join := func(sub string, id uint64) (*Consumer, error) {
			r := shared(Shared, id, w.sink())
			r.Subscription = sub
			return w.subscribe(r)
		}
		refused := func(what string, sub string, want error) {
			t.Helper()
			_, err := join(sub, 99)
			fails(t, what, err, want)
		}
		var cs []*Consumer
		for i, sub := range []string{"a", "a", "b"} {
			c, err := join(sub, uint64(i))
			if err != nil {
				t.Fatal(err)
			}
			cs = append(cs, c)
		}
		refused("third of the subscription", "a", ErrTooManyConsumers)
		refused("fourth of the topic", "b", ErrTooManyConsumers)
		refused("third subscription", "c", ErrNotAllowed)
		w.on(func() {
			w.topic.CreateSubscription("c", ledger.Latest, func(err error) { fails(t, "created", err, ErrNotAllowed) })
			w.topic.CreateSubscription("a", ledger.Latest, func(err error) { fails(t, "exists", err, nil) })
		})
		w.closeConsumer(cs[2])
		refused("still too many of the subscription", "a", ErrTooManyConsumers)
		fails(t, "wrong type", func() error { _, err := w.subscribe(durable("a", w.sink())); return err }(), ErrTooManyConsumers)
		w.closeConsumer(cs[1])
		fails(t, "wrong type", func() error { _, err := w.subscribe(durable("a", w.sink())); return err }(), ErrTypeMismatch)
		w.seek(cs[0], ledger.Earliest) // all are closed
		fails(t, "unsubscribe", w.unsubscribe(UnsubscribeRequest{Subscription: "b"}), nil)
		for i, sub := range []string{"a", "a", "c"} {
			if _, err := join(sub, uint64(i)); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		refused("too many again", "c", ErrTooManyConsumers)
		fails(t, "forced", w.unsubscribe(UnsubscribeRequest{Subscription: "a", Force: true}), nil)
		if n := w.topic.consumers.Load(); n != 1 {
			t.Errorf("%d consumers are counted, there is one", n)
		}
	})
}

// Of consumers that come to different subscriptions at the same time no more get in than may.
func TestConsumersComeAtOnce(t *testing.T) {
	for range 20 {
		inWorld(t, func(w *world) {
			w.options.MaxConsumersPerTopic = 5
			w.mustOpen()
			var mu sync.Mutex
			in := 0
			w.on(func() {
				for i := range 12 {
					w.topic.Subscribe(durable(fmt.Sprint("s", i), w.sink()), func(c *Consumer, err error) {
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							in++
						}
					})
				}
			})
			mu.Lock()
			defer mu.Unlock()
			same(t, "consumers", in, 5)
		})
	}
}

// askedSink has no room, and counts who asks.
type askedSink struct {
	*lockedSink
	asked *int // on the subscription's executor
}

func (s askedSink) Room() int {
	*s.asked++
	return 0
}

// One more consumer of a Shared subscription is no reason to look at all that are there: 100,000 would be looked at
// 100,000 times.
func TestJoiningLooksAtNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		w.mustOpen()
		asked := 0
		for i := range uint64(10) {
			c, err := w.subscribe(shared(Shared, i, askedSink{w.sink(), &asked}))
			if err != nil {
				t.Fatal(err)
			}
			w.exec(c.Executor(), func() { c.Flow(1) })
		}
		if asked == 0 {
			t.Fatal("nobody was looked at for permits")
		}
		asked = 0
		c, err := w.subscribe(shared(Shared, 99, w.sink()))
		if err != nil {
			t.Fatal(err)
		}
		w.exec(c.Executor(), func() {
			if asked != 0 {
				t.Errorf("%d were looked at", asked)
			}
		})
	})
}
