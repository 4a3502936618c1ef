package topic

import (
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// delays are the entries of a Shared or Key_Shared subscription that have been read before their time (deliver_at_time).
// They wait here, each one 24 bytes, ordered by their times, while reads go on behind them; so none that is due waits for
// one that is not. When it is due and somebody can take it, an entry goes to those that are to be read again.
//
//	read ahead ──early──▶ delays ──due──▶ replay set, or queue of its key ──read again──▶ consumer
//	     └─────────────────in time──────────────────────────────────────────────────────────▲
//
// Nothing of it is stored: what is not acknowledged lies behind the mark-delete position, and is read again after a
// restart. Entries are delivered at their time or after it, never before. With DelayedDeliveryStrict a timer runs to the
// millisecond; else it fires on whole ticks of the clock, so that many entries share one.
//
// An entry that is acknowledged while it is here is found out when its time has come.
type delays struct {
	heap    delayHeap
	run     int // entries of the last read ahead that were early
	timer   *executor.Timer
	wakes   int64 // ms, when the timer fires
	onTimer executor.Task
}

// delayed is an entry that waits for its time.
type delayed struct {
	due uint64 // ms since 1970, shifted by 16 bits; below them the hash of its key
	at  ledger.Position
}

const latestDue = 1<<48 - 1 // ms

func (d *delayed) millis() int64 { return int64(d.due >> 16) }

func (d *delayed) before(o *delayed) bool {
	if a, b := d.due>>16, o.due>>16; a != b {
		return a < b
	}
	return d.at.Less(o.at)
}

func (s *subscription) setUpDelays() {
	s.delays.onTimer = executor.Func(func() {
		s.delays.timer = nil
		s.pump()
	})
}

// early reports that an entry with a time of delivery, which has been read ahead, is not due at now.
func (s *subscription) early(it item, now time.Time) bool {
	return !s.opts.DelayedDeliveryDisabled && !s.single() && it.deliverAt > now.UnixMilli()
}

// delay lets an entry wait for its time.
func (s *subscription) delay(p ledger.Position, it item) {
	s.delays.heap.push(delayed{uint64(min(it.deliverAt, latestDue))<<16 | uint64(it.hash), p})
}

// serveDelays lets go what is due, as much as may wait for consumers, and sees to it that the rest is not forgotten.
func (s *subscription) serveDelays() {
	d := &s.delays
	if len(d.heap) == 0 || s.full() || s.demand().Entries == 0 {
		return // whatever makes demand or unblocks calls pump
	}
	now := time.Now()
	for len(d.heap) > 0 && d.heap[0].millis() <= now.UnixMilli() && !s.manyWait() {
		e := d.heap.pop()
		if !s.cursor.IsDeleted(e.at) {
			s.putBack(e.at, waitingItem{hash: keyHash(e.due)})
		}
	}
	d.arm(s, now)
}

// manyWait reports that enough entries can be read again.
func (s *subscription) manyWait() bool {
	if s.keys != nil {
		return s.keys.full(len(s.consumers))
	}
	return s.again.replay.len() >= s.opts.DispatcherMaxReadBatchSize
}

// arm sets the timer for the first entry that is not due.
func (d *delays) arm(s *subscription, now time.Time) {
	if len(d.heap) == 0 {
		return
	}
	due := d.heap[0].millis()
	if due <= now.UnixMilli() {
		return // it waits for consumers, and they will ask
	}
	if tick := s.opts.DelayedDeliveryTickTime.Milliseconds(); !s.opts.DelayedDeliveryStrict && tick > 0 {
		due += tick - 1
		due -= due % tick
	}
	if d.timer != nil {
		if d.wakes <= due {
			return
		}
		d.timer.Stop()
	}
	d.wakes = due
	d.timer = s.exec.After(time.UnixMilli(due).Sub(now), d.onTimer)
}

// clear forgets everything: it will be read again, or nobody wants it.
func (d *delays) clear() {
	d.heap, d.run = nil, 0
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// more is how many entries to read ahead when n are wanted: where entries are early, most of them will not be delivered.
func (d *delays) more(n, most int) int { return min(max(n, 2*d.run), most) }

// delayHeap has the entry that is due first at its root, entries of one time in their order.
type delayHeap []delayed

func (h *delayHeap) push(e delayed) {
	s := append(*h, e)
	*h = s
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = e
}

// pop returns the first entry; the heap must not be empty. Memory of a heap that was much larger is let go.
func (h *delayHeap) pop() delayed {
	s := *h
	first, e := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	for i := 0; len(s) > 0; {
		down := 2*i + 1
		if r := down + 1; r < len(s) && s[r].before(&s[down]) {
			down = r
		}
		if down >= len(s) || !s[down].before(&e) {
			s[i] = e
			break
		}
		s[i] = s[down]
		i = down
	}
	if cap(s) > 1024 && len(s) < cap(s)/4 {
		s = append(make(delayHeap, 0, cap(s)/2), s...)
	}
	*h = s
	return first
}
