package bookie

import "sync"

// lifetime is a door for goroutines: none starts after the end, and the end can be waited for.
type lifetime struct {
	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup
}

// start runs f on a goroutine of its own, unless the end has come.
func (l *lifetime) start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.wg.Go(f)
	return true
}

// finish lets nothing start any more and waits for what runs.
func (l *lifetime) finish() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.wg.Wait()
}
