package bookie

import (
	"errors"
	"sync"
	"testing"
)

// Goroutines that start while the end comes are either waited for or refused.
func TestLifetimeAwaitsWhatItStarted(t *testing.T) {
	for range 100 {
		var l lifetime
		var callers sync.WaitGroup
		ran := make(chan struct{}, 8)
		started := make(chan bool, 8)
		for range 8 {
			callers.Go(func() { started <- l.start(func() { ran <- struct{}{} }) })
		}
		l.finish()
		done := len(ran)
		callers.Wait()
		want := 0
		for range 8 {
			if <-started {
				want++
			}
		}
		if done != want || len(ran) != done {
			t.Fatalf("%d ran before the end, %d were started", done, want)
		}
		if l.start(func() {}) {
			t.Fatal("started after the end")
		}
	}
}

// A failure may come at any moment of opening and closing.
func TestFailureBesideOpenAndClose(t *testing.T) {
	c := newCluster(t, 1, nil)
	b := c.nodes["a"].Bookie
	var wg sync.WaitGroup
	wg.Go(func() { b.fail(errors.New("a test wants it")) })
	wg.Go(func() { c.stop("a") })
	wg.Wait()
}
