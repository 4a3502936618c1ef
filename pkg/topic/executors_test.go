package topic

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// goroutine is the first words of this goroutine's stack, which name it.
func goroutine() string {
	var b [64]byte
	name, _, _ := bytes.Cut(b[:runtime.Stack(b[:], false)], []byte(" ["))
	return string(name)
}

// whereSink notes on which goroutines messages are delivered.
type whereSink struct {
	*lockedSink
	where map[string]int
}

func (s *whereSink) Deliver(c *Consumer, ds []Delivery) {
	s.lockedSink.Deliver(c, ds)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.where[goroutine()] += len(ds)
}

// Messages are dispatched on the executors of the subscriptions, whatever the size of a read, and never on the topic's, on
// which they are added.
func TestDispatchIsNotOnTheTopicsExecutor(t *testing.T) {
	for _, size := range []int{100, 250, 500, 750, 1000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.apart, w.options.DispatcherMaxReadBatchSize = true, size
				w.mustOpen()
				names := map[string]string{}
				for _, p := range w.pools {
					for _, e := range p.Executors() {
						w.exec(e, func() { names[goroutine()] = e.Name() })
					}
				}
				var sinks []*whereSink
				for i, typ := range []SubType{Exclusive, Failover, Shared, KeyShared} {
					s := &whereSink{w.sink(), map[string]int{}}
					sinks = append(sinks, s)
					w.flow(w.mustSubscribe(SubscribeRequest{
						Subscription: fmt.Sprint("sub", i), Type: typ, ConsumerID: 1, Sink: s, Durable: true,
					}), 5000)
				}
				p := w.mustProducer(ProducerRequest{Name: "p", Sink: w.sink(), ID: 1})
				const messages = 2000
				for i := uint64(0); i < messages; i += 4 {
					w.send(p, i, i+1, i+2, i+3)
				}
				time.Sleep(2 * time.Second) // a Failover subscription waits before it serves
				synctest.Wait()
				for i, s := range sinks {
					byPool := map[string]int{}
					s.mu.Lock()
					for g, n := range s.where {
						pool, _, _ := strings.Cut(names[g], "-")
						byPool[pool] += n
					}
					s.mu.Unlock()
					if byPool["subscription"] != messages || len(byPool) != 1 {
						t.Errorf("subscription %d: deliveries by pool of executors: %v", i, byPool)
					}
				}
			})
		})
	}
}
