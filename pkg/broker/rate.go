package broker

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/topic"
)

// Rate bounds what is published per second; 0: not bounded.
type Rate = topic.MaxRate

// maxCalled is how many connections are called at a time where messages have no limit to tell how many.
const maxCalled = 16

// publishLimit is a limit of publishing, of a topic or of the broker, with those who wait for it. A connection whose next
// frame is refused is stopped before that frame and joins the line. While there is a line, only connections that were
// called from it may pass, so that nobody overtakes.
//
//	frame ─pass?─▶ tokens, no line or called ──▶ spend ──▶ published
//	         │ no                      ▲
//	         ▼                         │ call: as many as there are tokens, in the order of the line
//	     throttle, line ──timer, due when a slice of tokens has gathered
//
// Any goroutine. The lock is a leaf.
type publishLimit struct {
	why throttle
	on  atomic.Bool // false: no limit, nothing else is looked at
	mu  struct {
		sync.Mutex
		rate   topic.RateLimit
		line   []*conn
		timer  *time.Timer
		armed  bool
		closed bool
	}
}

// set changes the rate. A limit that is new starts with full buckets.
func (l *publishLimit) set(r Rate, now time.Time) {
	l.mu.Lock()
	l.mu.rate.Set(r, now)
	l.on.Store(r.Messages > 0 || r.Bytes > 0)
	if l.mu.armed { // for the rate before, which may have been much slower
		l.mu.timer.Stop()
		l.mu.armed = false
	}
	called := l.call(now)
	l.mu.Unlock()
	wake(called)
}

// pass reports whether a send of c may pass now. If not, c is in the line and must be stopped. On c's loop.
func (l *publishLimit) pass(c *conn, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on.Load() || l.mu.closed || l.mu.rate.Affordable(now) && (len(l.mu.line) == 0 || c.called == l) {
		return true
	}
	l.mu.line = append(l.mu.line, c)
	l.arm(now)
	return false
}

// spend takes the tokens of a send that has passed.
func (l *publishLimit) spend(messages, bytes int, now time.Time) {
	l.mu.Lock()
	l.mu.rate.Spend(int64(messages), int64(bytes), now)
	l.mu.Unlock()
}

// forget takes a connection that is closed out of the line.
func (l *publishLimit) forget(c *conn) {
	l.mu.Lock()
	if i := slices.Index(l.mu.line, c); i >= 0 {
		l.mu.line = slices.Delete(l.mu.line, i, i+1)
	}
	l.mu.Unlock()
}

// close lets everybody pass from now on.
func (l *publishLimit) close() {
	l.mu.Lock()
	l.mu.closed = true
	if l.mu.timer != nil {
		l.mu.timer.Stop()
	}
	called := l.call(time.Now())
	l.mu.Unlock()
	wake(called)
}

// call takes those from the line who can be served, and sees to it that the others are called later. The lock is held, as
// in all below.
func (l *publishLimit) call(now time.Time) []*conn {
	n := 0
	messages, _ := l.mu.rate.Left(now)
	switch {
	case !l.on.Load() || l.mu.closed:
		n = len(l.mu.line)
	case !l.mu.rate.Affordable(now):
	case math.IsInf(messages, 1):
		n = maxCalled
	default:
		n = int(math.Ceil(messages))
	}
	n = min(n, len(l.mu.line))
	called := slices.Clone(l.mu.line[:n])
	l.mu.line = slices.Delete(l.mu.line, 0, n)
	if len(l.mu.line) > 0 {
		l.arm(now)
	}
	return called
}

// arm starts the timer unless it runs.
func (l *publishLimit) arm(now time.Time) {
	if l.mu.armed || l.mu.closed {
		return
	}
	l.mu.armed = true
	wait := max(l.mu.rate.Wait(now), time.Millisecond)
	if l.mu.timer == nil {
		l.mu.timer = time.AfterFunc(wait, l.due)
		return
	}
	l.mu.timer.Reset(wait)
}

// due is called by the timer.
func (l *publishLimit) due() {
	l.mu.Lock()
	l.mu.armed = false
	called := l.call(time.Now())
	l.mu.Unlock()
	wake(called)
}

// wake posts to the loops of connections that were called.
func wake(called []*conn) {
	for _, c := range called {
		c.state.out.loop.Post((*calledConn)(c))
	}
}

// calledConn is a conn as the task that goes on with it.
type calledConn conn

// Run resumes the connection, on its loop.
func (t *calledConn) Run() {
	c := (*conn)(t)
	if l := c.line; l != nil && !c.closed {
		c.line, c.called = nil, l
		c.unthrottle(l.why)
	}
}
