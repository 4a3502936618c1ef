package eventloop

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
	complainEvery    = 10 * time.Second
)

// acceptPortable accepts until the listener is closed.
func (g *Group) acceptPortable(ln net.Listener) error {
	return g.track(ln, func() {
		wait := backoff{stop: g.stop}
		for {
			conn, err := ln.Accept()
			switch {
			case err == nil:
				wait.reset()
				_ = g.Serve(conn) // an error is counted, logged and means that conn is closed
			case errors.Is(err, net.ErrClosed):
				return
			default:
				g.complain.say("Cannot accept connections", "error", err, "address", ln.Addr().String())
				if !wait.pause() {
					return
				}
			}
		}
	})
}

// backoff waits longer and longer after failures to accept (no file descriptors, no memory), which pass when others
// close theirs.
type backoff struct {
	stop <-chan struct{}
	next time.Duration
}

func (b *backoff) reset() { b.next = 0 }

// pause waits and reports whether to go on.
func (b *backoff) pause() bool {
	b.next = min(max(2*b.next, acceptBackoffMin), acceptBackoffMax)
	timer := time.NewTimer(b.next)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.stop:
		return false
	}
}

// complaint logs at most one line per interval and message, and says how many it has kept back.
type complaint struct {
	log *slog.Logger
	mu  sync.Mutex
	by  map[string]*complaintState
}

type complaintState struct {
	last time.Time
	held int
}

func (c *complaint) say(message string, args ...any) {
	now := time.Now()
	c.mu.Lock()
	if c.by == nil {
		c.by = map[string]*complaintState{}
	}
	s := c.by[message]
	if s == nil {
		s = &complaintState{}
		c.by[message] = s
	}
	if !s.last.IsZero() && now.Sub(s.last) < complainEvery {
		s.held++
		c.mu.Unlock()
		return
	}
	held := s.held
	s.last, s.held = now, 0
	c.mu.Unlock()
	if held > 0 {
		args = append(args, "suppressed", held)
	}
	c.log.Warn(message, args...)
}
