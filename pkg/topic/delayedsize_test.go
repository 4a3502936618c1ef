package topic

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/executor"
)

// A tick at which nothing is due looks at the first entry only, however many wait. All others are made to look due here,
// so that whoever looks at one delivers it.
func TestDelayedTickLooksAtOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := executor.NewPool(executor.Options{Threads: 1})
		defer pool.Close()
		f := newFakeCursor()
		f.inline = true
		s := newTestSubscription(pool.Next(), Options{}, f)
		r := &reasonRig{t, s, f}
		sink := newFakeSink(t, "c")
		const waiting = 100_000
		ticks := 0
		s.exec.PostFunc(func() {
			r.joinBy(Shared, 10, sink)
			f.add(keyedPayload(t, "", 0, 0))
			f.next = 1 // all are this one
			due := time.Now().Add(time.Hour).UnixMilli()
			for range waiting {
				s.delay(f.at(0), item{deliverAt: due})
			}
			for i := range s.delays.heap[1:] {
				s.delays.heap[1+i].due = 0
			}
			tick := s.delays.onTimer
			s.delays.onTimer = executor.Func(func() {
				ticks++
				tick.Run()
			})
			s.delays.timer = s.exec.After(time.Minute, s.delays.onTimer)
		})
		<-time.After(59 * time.Minute)
		synctest.Wait()
		s.exec.PostFunc(func() {
			if len(s.delays.heap) != waiting || len(sink.order) != 0 || ticks != 1 {
				t.Errorf("%d wait after %d ticks, %d came", len(s.delays.heap), ticks, len(sink.order))
			}
			s.shutDown(func(error) {})
			f.complete()
		})
		synctest.Wait()
	})
}

// BenchmarkDelayedMemory measures the bytes that a message takes while it waits for its time.
func BenchmarkDelayedMemory(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFakeCursor()
			exec := executor.New("bench")
			defer exec.Close()
			for b.Loop() {
				s := newTestSubscription(exec, Options{}, f)
				before := heapInUse()
				due := time.Now().Add(time.Hour).UnixMilli()
				for i := range n {
					s.delay(f.at(i), item{deliverAt: due + int64(i*7919%n)})
				}
				b.ReportMetric(float64(heapInUse()-before)/float64(n), "B/message")
				runtime.KeepAlive(s)
			}
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
