package broker

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Rate bounds what is published per second; 0: not bounded.
type Rate struct{ Messages, Bytes int64 }

const (
	// rateSlice is how much of a second's tokens the line waits for at a time. Less would be more wake-ups, not more
	// precision: what gathers meanwhile is not lost.
	rateSlice = 10 * time.Millisecond
	// rateDebt is how many seconds of tokens a batch that is larger than the rest may leave to be earned. Counts are what
	// the client says; a wrong one must not stop a topic for days.
	rateDebt = 60.0
	// maxCalled is how many connections are called at a time where messages have no limit to tell how many.
	maxCalled = 16
)

// publishLimit is a limit of publishing, of a topic or of the broker: a token bucket for messages and one for bytes, each
// holding the tokens of one second. A send passes while there is any token, whatever its size, and takes what it costs;
// so a bucket may be in debt. A connection whose next frame is refused is stopped before that frame and joins the line.
// While there is a line, only connections that were called from it may pass, so that nobody overtakes.
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
		rate            Rate
		messages, bytes float64 // tokens
		last            time.Time
		line            []*conn
		timer           *time.Timer
		armed           bool
		closed          bool
	}
}

// set changes the rate. A limit that is new starts with full buckets.
func (l *publishLimit) set(r Rate, now time.Time) {
	l.mu.Lock()
	fresh := !l.on.Load()
	l.refill(now)
	l.mu.rate = r
	if fresh {
		l.mu.messages, l.mu.bytes, l.mu.last = float64(r.Messages), float64(r.Bytes), now
	}
	l.mu.messages = min(l.mu.messages, float64(r.Messages))
	l.mu.bytes = min(l.mu.bytes, float64(r.Bytes))
	l.on.Store(r.Messages > 0 || r.Bytes > 0)
	called := l.call(now)
	l.mu.Unlock()
	wake(called)
}

// pass reports whether a send of c may pass now. If not, c is in the line and must be stopped. On c's loop.
func (l *publishLimit) pass(c *conn, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill(now)
	if !l.on.Load() || l.mu.closed || l.affordable() && (len(l.mu.line) == 0 || c.called == l) {
		return true
	}
	l.mu.line = append(l.mu.line, c)
	l.arm()
	return false
}

// spend takes the tokens of a send that has passed.
func (l *publishLimit) spend(messages, bytes int) {
	l.mu.Lock()
	l.mu.messages = max(l.mu.messages-float64(messages), -rateDebt*float64(l.mu.rate.Messages))
	l.mu.bytes = max(l.mu.bytes-float64(bytes), -rateDebt*float64(l.mu.rate.Bytes))
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

// refill adds the tokens of the time that has passed. Loops call with the time of their turn, so now may go back a
// little. The lock is held, as in all below.
func (l *publishLimit) refill(now time.Time) {
	passed := now.Sub(l.mu.last).Seconds() // by the monotonic clock
	if passed <= 0 {
		return
	}
	l.mu.last = now
	messages, bytes := float64(l.mu.rate.Messages), float64(l.mu.rate.Bytes)
	l.mu.messages = min(l.mu.messages+passed*messages, messages)
	l.mu.bytes = min(l.mu.bytes+passed*bytes, bytes)
}

func (l *publishLimit) affordable() bool {
	return (l.mu.rate.Messages <= 0 || l.mu.messages > 0) && (l.mu.rate.Bytes <= 0 || l.mu.bytes > 0)
}

// call takes those from the line who can be served, and sees to it that the others are called later.
func (l *publishLimit) call(now time.Time) []*conn {
	l.refill(now)
	n := 0
	switch {
	case !l.on.Load() || l.mu.closed:
		n = len(l.mu.line)
	case !l.affordable():
	case l.mu.rate.Messages > 0:
		n = int(math.Ceil(l.mu.messages))
	default:
		n = maxCalled
	}
	n = min(n, len(l.mu.line))
	called := slices.Clone(l.mu.line[:n])
	l.mu.line = slices.Delete(l.mu.line, 0, n)
	if len(l.mu.line) > 0 {
		l.arm()
	}
	return called
}

// arm starts the timer unless it runs.
func (l *publishLimit) arm() {
	if l.mu.armed || l.mu.closed {
		return
	}
	l.mu.armed = true
	wait := max(until(l.mu.messages, l.mu.rate.Messages), until(l.mu.bytes, l.mu.rate.Bytes), time.Millisecond)
	if l.mu.timer == nil {
		l.mu.timer = time.AfterFunc(wait, l.due)
		return
	}
	l.mu.timer.Reset(wait)
}

// until returns the time in which a slice of tokens gathers, at least one.
func until(tokens float64, rate int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	want := max(1, float64(rate)*rateSlice.Seconds())
	return time.Duration(math.Ceil((want - tokens) / float64(rate) * float64(time.Second)))
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
