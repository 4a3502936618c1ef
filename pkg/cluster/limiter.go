package cluster

import (
	"sync"
	"time"
)

// Whoever can send a packet can make memberlist complain of it, so complaints are rationed.
const (
	complaintsEvery = 10 * time.Second
	complaintsMost  = 20
)

// limiter lets so many lines through in each interval.
type limiter struct {
	mu    sync.Mutex
	since time.Time
	lines int
	held  int
}

// allow reports whether a line may be written now, and how many were held back in the interval before.
func (l *limiter) allow(now time.Time) (ok bool, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= complaintsEvery {
		held = l.held
		l.since, l.lines, l.held = now, 0, 0
	}
	if l.lines >= complaintsMost {
		l.held++
		return false, 0
	}
	l.lines++
	return true, held
}
