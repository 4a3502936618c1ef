package executor_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"geminga/pkg/executor"
	"geminga/pkg/invariant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOrderPerPosterAndOneAtATime(t *testing.T) {
	e := executor.New("t")
	const posters, each = 8, 2000
	last := make([]int, posters) // executor-owned: the race detector checks the claim
	for i := range last {
		last[i] = -1
	}
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				e.PostFunc(func() {
					if last[p] != i-1 {
						t.Errorf("poster %d: task %d after %d", p, i, last[p])
					}
					last[p] = i
				})
			}
		})
	}
	wg.Wait()
	e.Close()
	for p, l := range last {
		if l != each-1 {
			t.Errorf("poster %d: last task %d", p, l)
		}
	}
}

func TestCloseRunsWhatWasPosted(t *testing.T) {
	e := executor.New("t")
	ran := 0
	e.PostFunc(func() {
		e.PostFunc(func() {
			ran++
			e.PostFunc(func() { ran++ })
		})
	})
	e.Close()
	if ran != 2 {
		t.Fatalf("ran %d", ran)
	}
	e.PostFunc(func() { t.Error("ran after Close") })
	e.Close()
	if n := e.Pending(); n != 0 {
		t.Fatalf("%d tasks kept after Close", n)
	}
}

func TestATaskMayPostToItsOwnExecutor(t *testing.T) {
	e := executor.New("t")
	defer e.Close()
	done := make(chan struct{})
	n := 0
	var again func()
	again = func() {
		if n++; n == 100_000 {
			close(done)
			return
		}
		e.PostFunc(again)
	}
	e.PostFunc(again)
	<-done
}

func TestTimerInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := executor.New("t")
		defer e.Close()
		start := time.Now()
		var at time.Duration
		e.After(5*time.Second, executor.Func(func() { at = time.Since(start) }))
		stopped := e.After(3*time.Second, executor.Func(func() { t.Error("stopped timer ran") }))
		if !stopped.Stop() || stopped.Stop() {
			t.Error("the first Stop stops, the second does not")
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if at != 5*time.Second {
			t.Errorf("ran after %v", at)
		}
	})
}

func TestStopOfAQueuedTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := executor.New("t")
		defer e.Close()
		hold := make(chan struct{})
		e.PostFunc(func() { <-hold })
		timer := e.After(time.Second, executor.Func(func() { t.Error("ran") }))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if e.Pending() != 1 {
			t.Fatalf("%d queued", e.Pending())
		}
		if !timer.Stop() {
			t.Error("a timer that is queued can still be stopped")
		}
		close(hold)
		synctest.Wait()
	})
}

func TestStopAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := executor.New("t")
		defer e.Close()
		timer := e.After(0, executor.Func(func() {}))
		time.Sleep(time.Second)
		synctest.Wait()
		if timer.Stop() {
			t.Error("stopped what had run")
		}
	})
}

func TestPoolSpreadsKeysAndKeepsThem(t *testing.T) {
	p := executor.NewPool(executor.Options{Name: "topic", Threads: 4})
	defer p.Close()
	seen := map[string]int{}
	for i := range 4000 {
		key := fmt.Sprintf("persistent://public/default/topic-%d", i)
		e := p.For(key)
		if p.For(key) != e {
			t.Fatal("a key moved")
		}
		seen[e.Name()]++
	}
	for name, n := range seen {
		if n < 800 || n > 1200 {
			t.Errorf("%s has %d of 4000 keys", name, n)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d executors used", len(seen))
	}
	if a, b := p.Next(), p.Next(); a == b {
		t.Error("Next does not go on")
	}
}

func TestAssertCurrent(t *testing.T) {
	e := executor.New("t")
	defer e.Close()
	done := make(chan struct{})
	e.PostFunc(func() { e.AssertCurrent(); close(done) })
	<-done
	defer func() {
		if (recover() != nil) != invariant.Enabled {
			t.Error("AssertCurrent outside of the executor must panic in invariants builds only")
		}
	}()
	e.AssertCurrent()
}

type counter struct {
	n    int
	want int
	done chan struct{}
}

func (c *counter) Run() {
	if c.n++; c.n == c.want {
		close(c.done)
	}
}

func TestPostAllocatesNothing(t *testing.T) {
	e := executor.New("t")
	defer e.Close()
	c := &counter{want: -1}
	for range 10_000 {
		e.Post(c)
	}
	if n := testing.AllocsPerRun(10_000, func() { e.Post(c) }); n > 0.1 {
		t.Fatalf("%v allocations per post", n)
	}
}

func BenchmarkPostFromOthers(b *testing.B) {
	for _, threads := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			b.ReportAllocs()
			e := executor.New("b")
			defer e.Close()
			c := &counter{want: b.N / threads * threads, done: make(chan struct{})}
			if c.want == 0 {
				c.want, threads = b.N, 1
			}
			var wg sync.WaitGroup
			for range threads {
				wg.Go(func() {
					for range c.want / threads {
						e.Post(c)
					}
				})
			}
			<-c.done
			wg.Wait()
		})
	}
}

// BenchmarkPingPong is a task that goes to and fro between two executors: the cost of a wake-up.
func BenchmarkPingPong(b *testing.B) {
	b.ReportAllocs()
	x, y := executor.New("x"), executor.New("y")
	defer x.Close()
	defer y.Close()
	done := make(chan struct{})
	n := 0
	var ping, pong executor.Func
	ping = func() { y.Post(pong) }
	pong = func() {
		if n++; n == b.N {
			close(done)
			return
		}
		x.Post(ping)
	}
	x.Post(ping)
	<-done
}
