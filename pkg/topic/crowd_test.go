package topic

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"geminga/pkg/executor"
)

// A crowd comes to one subscription and goes, and the consumers are in order: by level, failover by name, then as they came.
func TestCrowd(t *testing.T) {
	for _, kind := range []SubType{Shared, Failover} {
		t.Run(kind.String(), func(t *testing.T) {
			pool := executor.NewPool(executor.Options{Threads: 1})
			defer pool.Close()
			exec := pool.Next()
			done := make(chan struct{})
			exec.PostFunc(func() {
				defer close(done)
				crowd(t, newTestSubscription(exec, Options{}, newFakeCursor()), kind)
			})
			<-done
		})
	}
}

func crowd(t *testing.T, s *subscription, kind SubType) {
	count := map[SubType]int{Shared: 1000, Failover: 300}[kind]
	rnd := rand.New(rand.NewPCG(7, uint64(kind)))
	var came []*Consumer
	for i := range count {
		r := SubscribeRequest{
			Type: kind, Durable: true, ConsumerID: uint64(i), ConsumerName: fmt.Sprint(rnd.IntN(100)),
			PriorityLevel: int32(rnd.IntN(3)), Sink: newFakeSink(t, "s"),
		}
		s.connect(r, func(c *Consumer, err error) {
			if err != nil {
				t.Error(err)
			}
			came = append(came, c)
		})
	}
	want := slices.Clone(came)
	slices.SortStableFunc(want, func(a, b *Consumer) int {
		if kind == Failover {
			return cmp.Or(cmp.Compare(a.PriorityLevel, b.PriorityLevel), cmp.Compare(a.Name, b.Name))
		}
		return cmp.Compare(a.PriorityLevel, b.PriorityLevel)
	})
	if !slices.Equal(s.consumers, want) {
		t.Error("consumers are out of order")
	}
	for _, c := range came {
		s.remove(c)
	}
	if len(s.consumers) != 0 {
		t.Errorf("%d consumers are left", len(s.consumers))
	}
}
