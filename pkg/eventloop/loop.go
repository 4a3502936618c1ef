package eventloop

import (
	"io"
	"runtime"
	"sync"
	"time"

	"geminga/pkg/invariant"
)

// Loop is one goroutine and the connections that live on it. A turn of it:
//
//	poll ─▶ read the ready connections ─▶ TurnEnd ─▶ posted tasks ─▶ Tick, if due ─▶ flush ─▶ Closed
//	 ▲                                                                                       │
//	 └───────── sleeps only when nothing is posted and nothing is left over ◀────────────────┘
//
// Everything but inbox is loop-owned.
//
// A wake-up is sent only to a loop that sleeps, once for any number of posts:
//
//	loop                                        poster
//	1 lock; inbox empty → asleep = true; unlock
//	2 wait                                      3 lock; append; woken = asleep; asleep = false; unlock
//	                                            4 if woken: wake
//	5 wait returns; asleep = false; take
//
// A wake that comes late (4 after 5) makes a later wait return at once, which is harmless.
type Loop struct {
	// Local is for the handler's state of this loop.
	Local any

	group   *Group
	index   int
	poller  poller
	now     time.Time
	conns   []*Conn // by slot; nil where free
	free    []int32 // free slots
	live    int     // connections in conns
	helpers int     // goroutines that serve connections of this loop

	dirty      []*Conn // have output to be written at the end of the turn
	resumed    []*Conn // have bytes to be delivered again
	closing    []*Conn // Closed is due at the end of the turn
	departures []departure
	spare      struct{ dirty, resumed, closing []*Conn }
	taken      inbox // the part of the inbox that this turn works on
	stopping   bool
	held       bool // HoldReads
	shared     sharedRoot
	load       load
	budget     budget
	owner      invariant.Goroutine

	mu struct {
		sync.Mutex
		inbox
		asleep bool
		ended  bool
	}
}

// inbox is what other goroutines leave for the loop.
type inbox struct {
	tasks    []Task
	arrivals []*Conn
	signals  []signal
	tick     bool
	stop     bool
}

func (b *inbox) empty() bool {
	return len(b.tasks) == 0 && len(b.arrivals) == 0 && len(b.signals) == 0 && !b.tick && !b.stop
}

// poller waits for sockets.
type poller interface {
	// poll handles the sockets that are ready; if there are none and block is set it waits for one, or for wake.
	poll(l *Loop, block bool)
	// wake ends a wait that is under way, or the next one.
	wake()
	// sockets returns the epoll that sockets of the loop are registered with, nil if there is none.
	sockets() *epoll
	close()
}

// Index returns the number of the loop in its group, from 0.
func (l *Loop) Index() int { return l.index }

// Group returns the group that the loop belongs to.
func (l *Loop) Group() *Group { return l.group }

// Now returns the time at which the turn began. Loop only.
func (l *Loop) Now() time.Time { return l.now }

// Post queues a task behind those posted before; it runs on the loop. It never blocks. Any goroutine. Tasks posted after
// Group.Close are discarded.
func (l *Loop) Post(t Task) {
	l.mu.Lock()
	if !l.mu.ended {
		l.mu.tasks = append(l.mu.tasks, t)
	}
	l.unlockAndWake()
}

// unlockAndWake ends a change of the inbox.
func (l *Loop) unlockAndWake() {
	wake := l.mu.asleep
	l.mu.asleep = false
	l.mu.Unlock()
	if wake {
		l.poller.wake()
	}
}

// Conns calls f for the connections of the loop until it returns false. Loop only.
func (l *Loop) Conns(f func(*Conn) bool) {
	l.owner.Check("connections of a loop")
	for _, c := range l.conns {
		if c != nil && !c.gone && !f(c) {
			return
		}
	}
}

// HoldReads stops the reading of all sockets of the loop, also of those to come. Unlike Conn.PauseRead it stops nothing
// that was read already: frames that wait in a paused connection are delivered when that is resumed. A frame of which a
// part has arrived is read to its end, and no byte beyond it. Loop only.
func (l *Loop) HoldReads() {
	l.owner.Check("reads of a loop")
	l.held = true
}

// FreeReads undoes HoldReads. Loop only.
func (l *Loop) FreeReads() {
	l.owner.Check("reads of a loop")
	if !l.held {
		return
	}
	l.held = false
	for _, c := range l.conns {
		if c != nil && !c.gone && !c.paused {
			c.link.rearm()
		}
	}
}

// Held reports whether reads are held. Loop only.
func (l *Loop) Held() bool { return l.held }

func (l *Loop) run() {
	l.owner.Own()
	l.now = time.Now()
	ticker := time.AfterFunc(l.group.options.TickInterval, l.due)
	defer ticker.Stop()
	for !l.ended() {
		l.turn(ticker)
	}
	l.shared.drop()
	l.poller.close()
}

// due tells the loop that a tick is due. It is called by the timer.
func (l *Loop) due() {
	l.mu.Lock()
	l.mu.tick = true
	l.unlockAndWake()
}

func (l *Loop) turn(ticker *time.Timer) {
	l.wait()
	l.take()
	l.receive()
	l.group.handler.TurnEnd(l)
	for i, t := range l.taken.tasks {
		l.taken.tasks[i] = nil
		t.Run()
	}
	if l.taken.tick {
		l.group.handler.Tick(l, l.now)
		l.overdue()
		l.seekDeserted()
		ticker.Reset(l.group.options.TickInterval)
	}
	if l.stopping {
		l.closeAll()
	}
	l.flush()
	l.finish()
	l.rebalance()
	l.shared.turnEnd(&l.group.options)
	l.load.publish(l)
}

// wait polls once without blocking, then yields, then sleeps. The yield lets goroutines that were made ready by this
// turn run and post their answers, which is far cheaper than sleeping and being woken.
func (l *Loop) wait() {
	l.now = time.Now()
	before := l.load.events
	l.poller.poll(l, false)
	if l.load.events != before || l.leftOver() || !l.idle(false) {
		return
	}
	runtime.Gosched()
	if !l.idle(true) {
		return
	}
	l.load.sleeps++
	l.poller.poll(l, true)
	l.mu.Lock()
	l.mu.asleep = false
	l.mu.Unlock()
}

// leftOver reports whether the last turn left work for this one.
func (l *Loop) leftOver() bool { return len(l.dirty)+len(l.resumed)+len(l.closing) > 0 }

// idle reports whether the inbox is empty, and marks the loop as sleeping if so and asked to.
func (l *Loop) idle(sleep bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	empty := l.mu.empty()
	l.mu.asleep = empty && sleep
	return empty
}

// take swaps the inbox for an empty one.
func (l *Loop) take() {
	l.taken.tasks = recycle(l.taken.tasks)
	l.taken.arrivals = recycle(l.taken.arrivals)
	l.taken.signals = recycle(l.taken.signals)
	l.taken.tick, l.taken.stop = false, false
	l.mu.Lock()
	l.taken, l.mu.inbox = l.mu.inbox, l.taken
	l.mu.Unlock()
	l.stopping = l.stopping || l.taken.stop
}

// recycle empties a slice for its next use, or drops it when a burst has made it much larger than usual.
func recycle[T any](s []T) []T {
	if cap(s) > 4096 && len(s) < cap(s)/4 {
		return nil
	}
	clear(s)
	return s[:0]
}

// receive works on everything that arrived beside the sockets: new connections, results of the goroutines that serve
// portable ones, and connections whose reading was resumed.
func (l *Loop) receive() {
	for _, c := range l.taken.arrivals {
		l.admit(c)
	}
	for _, s := range l.taken.signals {
		s.link.handle(s)
	}
	resumed := l.resumed
	l.resumed, l.spare.resumed = l.spare.resumed, nil
	for _, c := range resumed {
		c.redeliver = false
		if !c.paused && !c.gone {
			c.deliver()
			c.settle()
			c.link.rearm()
		}
	}
	l.spare.resumed = recycle(resumed)
}

// admit gives a new connection its slot and starts it.
func (l *Loop) admit(c *Conn) {
	if l.stopping {
		c.link.discard()
		l.group.left(l)
		return
	}
	if n := len(l.free); n > 0 {
		c.slot = l.free[n-1]
		l.free = l.free[:n-1]
		l.conns[c.slot] = c
	} else {
		c.slot = int32(len(l.conns))
		l.conns = append(l.conns, c)
	}
	l.live++
	c.lastRead = l.now
	l.group.handler.Opened(c)
	if c.gone {
		return
	}
	if err := c.link.start(); err != nil {
		c.Close(err)
	}
}

// seekDeserted ends paused connections whose peer has gone.
func (l *Loop) seekDeserted() {
	for _, c := range l.conns {
		if c != nil && !c.gone && !c.readable() && c.link.deserted() {
			c.failed(io.EOF)
		}
	}
}

// flush writes the output of every connection that has some.
func (l *Loop) flush() {
	dirty := l.dirty
	l.dirty, l.spare.dirty = l.spare.dirty, nil
	for _, c := range dirty {
		c.dirty = false
		c.flush()
	}
	l.spare.dirty = recycle(dirty)
}

// finish calls Closed for the connections that were closed in this turn. Closed may close others; those follow in the
// next turn.
func (l *Loop) finish() {
	closing := l.closing
	l.closing, l.spare.closing = l.spare.closing, nil
	for _, c := range closing {
		if c.lingers = c.polite && !l.stopping && c.link.shut(); c.lingers {
			c.release()
		} else {
			l.release(c)
		}
		l.group.handler.Closed(c, c.err)
	}
	l.spare.closing = recycle(closing)
}

func (l *Loop) closeAll() {
	for _, c := range l.conns {
		switch {
		case c == nil:
		case c.lingers:
			l.release(c)
		default:
			c.end(ErrClosed)
		}
	}
}

// ended reports whether the loop was told to stop and has no connection left. If so it refuses further posts, for which
// it cannot wait to cease, and runs what was posted before.
func (l *Loop) ended() bool {
	if !l.stopping || l.live > 0 || l.helpers > 0 || l.leftOver() {
		return false
	}
	l.mu.Lock()
	l.mu.ended = true
	last := l.mu.inbox
	l.mu.inbox = inbox{}
	l.mu.Unlock()
	for _, c := range last.arrivals {
		c.link.discard()
		l.group.left(l)
	}
	for _, t := range last.tasks {
		t.Run()
	}
	return true
}

// signal leaves the result of a helper goroutine for the loop.
func (l *Loop) signal(s signal) {
	l.mu.Lock()
	invariant.Assert(!l.mu.ended, "helper outlives its loop")
	l.mu.signals = append(l.mu.signals, s)
	l.unlockAndWake()
}
