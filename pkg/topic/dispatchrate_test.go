package topic

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
)

// publishMany publishes entries of so many messages and waits until they are stored.
func (w *world) publishMany(p *Producer, entries int, messages int32) {
	for from := 0; from < entries; from += 500 {
		var batch []Message
		for i := from; i < min(entries, from+500); i++ {
			seq := uint64(i) * uint64(max(1, messages))
			batch = append(batch, Message{
				Producer: p, SequenceID: seq, HighestSequenceID: seq + uint64(max(1, messages)) - 1, Messages: max(1, messages),
				Payload: ledger.Payload{Data: payloadOf(w.t, p.Name, seq, messages)},
			})
		}
		w.on(func() { p.topic.Publish(batch) })
		synctest.Wait()
	}
}

// countingSink counts messages and bytes, and the messages of the largest delivery.
type countingSink struct {
	*lockedSink
	mu                sync.Mutex
	messages, largest int
}

func (s *countingSink) Deliver(_ *Consumer, ds []Delivery) {
	n := 0
	for i := range ds {
		n += int(ds[i].Messages)
		ds[i].Entry.Payload.Release()
	}
	s.mu.Lock()
	s.messages += n
	s.largest = max(s.largest, n)
	s.mu.Unlock()
}

// count returns the messages so far, and the most that came at once.
func (s *countingSink) count() (messages, largest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages, s.largest
}

// 500 messages a second are 500 ± 5 % in every second, the first as well as all that follow, whatever kind of limit, of
// subscription and of entries; and deliveries are spread over the second.
func TestDispatchRateIsPrecise(t *testing.T) {
	const rate, seconds = 500, 5
	size := int64(len(payloadOf(t, "p", 1000, 0)))
	for what, set := range map[string]func(*Options){
		"subscription":        func(o *Options) { o.DispatchRatePerSubscription.Messages = rate },
		"subscription, bytes": func(o *Options) { o.DispatchRatePerSubscription.Bytes = rate * size },
		"topic":               func(o *Options) { o.DispatchRatePerTopic.Messages = rate },
		"both": func(o *Options) {
			o.DispatchRatePerTopic.Messages, o.DispatchRatePerSubscription.Messages = 2*rate, rate
		},
		"backlog only": func(o *Options) { o.DispatchRatePerTopic.Messages, o.DispatchThrottlingOnlyOfBacklog = rate, true },
	} {
		for _, kind := range []SubType{Exclusive, Shared, KeyShared} {
			for _, batch := range []int32{0, 10} {
				if batch > 0 && what == "subscription, bytes" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", what, kind, batch), func(t *testing.T) {
					inWorld(t, func(w *world) {
						set(&w.options)
						w.mustOpen()
						p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
						w.publishMany(p, rate*(seconds+1)/max(1, int(batch)), batch)
						in := &countingSink{lockedSink: w.sink()}
						c := w.mustSubscribe(shared(kind, 2, in))
						before := 0
						w.flow(c, 1<<20)
						for second := range seconds {
							<-time.After(time.Second)
							synctest.Wait()
							n, largest := in.count()
							if n-before < rate*95/100 || n-before > rate*105/100 || largest > rate/10 {
								t.Errorf("second %d brought %d, %d at once", second, n-before, largest)
							}
							before = n
						}
						if why := w.stats().Subscriptions["s"].BlockedOn; why != ReasonRate {
							t.Errorf("blocked on %q", why)
						}
					})
				})
			}
		}
	}
}

// Subscriptions share the rate of their topic, each about as much as the others.
func TestDispatchRateIsShared(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.DispatchRatePerTopic.Messages = 600
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		var sinks []*countingSink
		for i := range 3 {
			in := &countingSink{lockedSink: w.sink()}
			sinks = append(sinks, in)
			r := durable(fmt.Sprint("s", i), in)
			r.Start = ledger.Earliest
			w.flow(w.mustSubscribe(r), 1<<20)
		}
		w.publishMany(p, 5000, 0)
		<-time.After(5 * time.Second)
		synctest.Wait()
		all, least := 0, 1<<30
		for _, in := range sinks {
			n, _ := in.count()
			all, least = all+n, min(least, n)
		}
		if all < 2850 || all > 3150 || least < 700 {
			t.Errorf("%d messages, the least served got %d", all, least)
		}
	})
}

// With dispatchThrottlingOnNonBacklogConsumerEnabled=false who is up to date gets messages as they come, and who is not
// gets them at the rate.
func TestDispatchRateOnlyOfBacklog(t *testing.T) {
	for _, only := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.options.DispatchRatePerSubscription.Messages = 1
			w.options.DispatchThrottlingOnlyOfBacklog = only
			w.mustOpen()
			p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
			in := w.timedSink()
			w.flow(w.mustSubscribe(shared(Shared, 1, in)), 1000)
			for i := range uint64(10) {
				w.send(p, i)
			}
			want := 1
			if only {
				want = 10
			}
			same(t, fmt.Sprint("only of backlog ", only), len(in.sequences()), want)
		})
	}
}

// Who waits for tokens is woken once, by a timer, and who has read everything is not woken at all.
func TestDispatchRateDoesNotPoll(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options.DispatchRatePerSubscription.Messages = 1
		w.mustOpen()
		p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink()})
		in := w.timedSink()
		c := w.mustSubscribe(shared(Exclusive, 1, in))
		counted := &countingCursor{cursor: c.sub.cursor}
		w.exec(c.Executor(), func() { c.sub.cursor = counted })
		w.publishMany(p, 4, 10) // each a debt of nine seconds
		w.flow(c, 1000)
		var came []int
		start := time.Now()
		for range 35 {
			<-time.After(time.Second)
			synctest.Wait()
			for _, a := range in.arrivals() {
				came = append(came, int(a.when.Sub(start).Round(time.Second)/time.Second))
			}
		}
		if !slices.Equal(came, []int{0, 10, 20, 30}) || counted.reads > 5 {
			t.Errorf("came after %v seconds, by %d reads", came, counted.reads)
		}
	})
}
