package topic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// onExecutor runs fn on an executor and waits.
func onExecutor(t *testing.T, fn func(*executor.Executor)) {
	t.Helper()
	exec := executor.New("test")
	defer exec.Close()
	done := make(chan struct{})
	exec.PostFunc(func() {
		defer close(done)
		fn(exec)
	})
	<-done
}

// Consumers join and leave a thousand times each while messages flow, and acknowledge when they like: no message
// overtakes an earlier one of its key, and no key is unacknowledged at two consumers. (The checks are those of observe.)
func TestKeySharedJoinsAndLeaves(t *testing.T) {
	for _, ranges := range []bool{true, false} {
		t.Run(fmt.Sprintf("ranges=%t", ranges), func(t *testing.T) {
			onExecutor(t, func(exec *executor.Executor) {
				r := newRandomRun(t, exec, 1)
				r.f = newFakeCursor()
				r.s = newTestSubscription(exec, Options{
					SubscriptionKeySharedHashRanges: ranges, ReadRetryMin: 1, ReadRetryMax: 1, KeySharedUnblockingInterval: time.Hour,
					SubscriptionKeySharedConsistentHashingReplicaPoints: 20,
				}, r.f)
				r.share(NewUnackedLimit(Options{MaxUnackedMessagesPerBroker: 1 << 30}))
				r.kind, r.policy, r.keys = KeyShared, KeyPolicy{}, newKeyOracle(40)
				joins, leaves := 0, 0
				for joins < 1000 || leaves < 1000 {
					if len(r.consumers) < 2 || len(r.consumers) < 8 && r.rnd.IntN(2) == 0 {
						r.join()
						r.flow(r.consumers[len(r.consumers)-1], 1000)
						joins++
					} else {
						r.leave(r.any())
						leaves++
					}
					r.observe()
					for range 2 {
						r.publish(1 + r.rnd.IntN(4))
						r.f.complete()
						r.ack(r.any())
						r.fire(func() bool { return r.rnd.IntN(2) == 0 })
						r.observe()
					}
					if t.Failed() {
						t.Fatalf("after %d joins and %d leaves", joins, leaves)
					}
				}
				r.finish()
			})
		})
	}
}

// A key whose consumer never acknowledges it holds back its own messages and no others, however many wait and whoever
// joins; and it costs no reads while it waits.
func TestKeySharedStuckKey(t *testing.T) {
	onExecutor(t, func(exec *executor.Executor) {
		f := newFakeCursor()
		f.inline = true
		s := newTestSubscription(exec, Options{SubscriptionKeySharedHashRanges: true, KeySharedUnblockingInterval: -1}, f)
		join := func(name string) (*Consumer, *fakeSink) {
			var c *Consumer
			sink := newFakeSink(t, name)
			s.connect(SubscribeRequest{Type: KeyShared, Durable: true, ConsumerName: name, Sink: sink},
				func(got *Consumer, err error) { c = got })
			c.Flow(100_000)
			return c, sink
		}
		publish := func(key string) ledger.Position {
			f.add(keyedPayload(t, key, uint64(len(f.log)), 0))
			f.unpark()
			return f.at(len(f.log) - 1)
		}
		a, _ := join("a")
		first := publish("key1")
		b, toB := join("b") // takes the lower half, key1 with it
		rnd := rand.New(rand.NewPCG(3, 4))
		stuck, others := 0, 0
		for i := range 5000 {
			key := "key1"
			if rnd.IntN(2) == 0 {
				key = fmt.Sprint("other", i%500)
			}
			p := publish(key)
			c := s.keys.spans.owner(hashKey([]byte(key)))
			switch _, got := c.pending.get(p); {
			case key == "key1" && got:
				t.Fatalf("entry %d of the stuck key was delivered", i)
			case key == "key1":
				stuck++
			case !got:
				t.Fatalf("entry %d of %s was not delivered: %s", i, key, s.why())
			default:
				c.Ack(AckRequest{Positions: []ledger.Position{p}})
				others++
			}
		}
		if limit := lookAhead(s.opts, 2); stuck > limit || others < 2000 {
			t.Errorf("%d of the stuck key, limit %d, and %d others", stuck, limit, others)
		}
		before, reads := len(toB.order), f.reads
		for range 100 {
			b.Flow(1)
		}
		if f.reads > reads+1 {
			t.Errorf("%d reads while nothing can be delivered", f.reads-reads)
		}
		a.Ack(AckRequest{Positions: []ledger.Position{first}})
		got := toB.order[before:]
		if len(got) != stuck {
			t.Errorf("%d delivered after the acknowledgement, expected %d: %s", len(got), stuck, s.why())
		}
		for i := 1; i < len(got); i++ {
			if !got[i-1].Entry.Position.Less(got[i].Entry.Position) {
				t.Errorf("%v after %v", got[i].Entry.Position, got[i-1].Entry.Position)
			}
		}
		s.shutDown(func(error) {})
	})
}
