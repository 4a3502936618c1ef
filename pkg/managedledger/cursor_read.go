package managedledger

import (
	"errors"
	"math"

	"geminga/pkg/ledger"
)

// reader is the one Read that a cursor may have outstanding.
type reader struct {
	phase readPhase
	max   ledger.Limits
	done  func([]ledger.Entry, error)
	turn  int            // Rewind and Seek make another
	out   []ledger.Entry // reused
	busy  bool           // inside pump
}

type readPhase int

const (
	readIdle     readPhase = iota
	readTrying             // looks for entries
	readWaiting            // parked until there are any
	readFetching           // waits for the bookies
)

// Read reads on from the read position, passing over deleted entries: at least one entry, at most max, none beyond
// LastConfirmed. A read that gets to the last confirmed entry is done with what it has, at once and on this executor;
// only one that has nothing yet goes on, into the next ledger or until there are entries. It comes from the cache as far
// as that has entries side by side, otherwise from the bookies.
//
// There is one Read at a time. done may come before Read returns. A Read made inside done begins when done has
// returned: there is no recursion, however many entries are cached. The slice is valid during done; each entry carries a
// reference to its payload, which the receiver releases. After an error nothing has moved: the caller tries again later.
func (c *Cursor) Read(max ledger.Limits, done func([]ledger.Entry, error)) {
	c.assertCurrent()
	switch {
	case c.closed:
		done(nil, ErrClosed)
		return
	case c.reader.phase != readIdle:
		done(nil, ErrBusy)
		return
	}
	max.Entries = min(max.Entries, 1<<20)
	if max.Entries <= 0 {
		max.Entries = 1
	}
	if max.Bytes <= 0 {
		max.Bytes = math.MaxInt32 // no limit
	}
	if cache := c.m.env.Cache; cache != nil {
		c.asked.Store(int64(cache.now()))
	}
	c.reader.max, c.reader.done = max, done
	c.reader.phase = readTrying
	c.pump()
}

// CancelRead withdraws a Read that waits for entries: true means that its done will not come. A Read that is under way
// is not withdrawn.
func (c *Cursor) CancelRead() bool {
	c.assertCurrent()
	if c.reader.phase != readWaiting {
		return false
	}
	c.waiting.Store(false)
	c.reader.phase, c.reader.done = readIdle, nil
	return true
}

// Reading reports that done of a Read is outstanding.
func (c *Cursor) Reading() bool { return c.reader.phase != readIdle }

// restart makes a Read look again from the read position.
func (r *reader) restart(c *Cursor) {
	switch r.phase {
	case readWaiting:
		c.waiting.Store(false)
		r.phase = readTrying
		c.executor.PostFunc(c.pump)
	case readFetching:
		r.turn++ // what comes is thrown away, then it tries again
	}
}

// pump goes on with the Read, and with those that are made inside done.
func (c *Cursor) pump() {
	r := &c.reader
	if r.busy {
		return
	}
	r.busy = true
	for r.phase == readTrying && !c.closed {
		c.try()
	}
	r.busy = false
}

// try looks for entries once: it finishes the Read, parks it or sends it to the bookies.
func (c *Cursor) try() {
	r := &c.reader
	s := c.log()
	last := s.last()
	out := r.out[:0]
	left := r.max
	for pos := c.read; left.Entries > 0; {
		pos = c.undeleted(s, pos)
		if len(out) > 0 && (pos.Ledger != out[0].Position.Ledger || left.Bytes <= 0) || pos.Compare(last) > 0 {
			break
		}
		want := c.want(s, pos, left)
		want.whole = len(out) > 0
		was := len(out)
		if out = c.m.lookup(out, want); len(out) == was {
			if len(out) == 0 {
				c.fetch(s, c.stretch(s, want, left))
				return
			}
			break
		}
		for _, e := range out[was:] {
			left.Entries--
			left.Bytes -= len(e.Payload.Data)
		}
		pos = after(out[len(out)-1].Position)
	}
	r.out = out
	if len(out) == 0 {
		c.park()
		return
	}
	c.deliver(out, nil)
}

// want returns the entries from pos on that a Read may take in one piece: in one ledger, confirmed, none deleted.
func (c *Cursor) want(s snapshot, pos ledger.Position, left ledger.Limits) span {
	end := ledger.EntryID(s.size(s.find(pos.Ledger)))
	if e, ok := c.acks.nextSet(pos.Ledger, pos.Entry); ok && e < end {
		end = e
	}
	left.Entries = int(min(int64(left.Entries), int64(end-pos.Entry)))
	return span{ledger: pos.Ledger, first: pos.Entry, max: left}
}

// stretch makes what is asked of the bookies go on behind deleted entries, as far as they are few side by side: behind
// many small holes a read for each piece would cost much more than what is read in vain.
func (c *Cursor) stretch(s snapshot, want span, left ledger.Limits) span {
	const few = 32
	size := ledger.EntryID(s.size(s.find(want.ledger)))
	limit := min(size, want.first+ledger.EntryID(left.Entries))
	end := want.first + ledger.EntryID(want.max.Entries)
	for end < limit {
		next := c.acks.nextClear(want.ledger, end)
		if next >= limit || next-end > few {
			break
		}
		end = limit
		if e, ok := c.acks.nextSet(want.ledger, next); ok && e < limit {
			end = e
		}
	}
	want.max.Entries = int(end - want.first)
	return want
}

func (m *ManagedLedger) lookup(out []ledger.Entry, want span) []ledger.Entry {
	if m.env.Cache == nil {
		return out
	}
	return m.env.Cache.lookup(out, want)
}

func (m *ManagedLedger) lookupAt(out []ledger.Entry, ps []ledger.Position) []ledger.Entry {
	if m.env.Cache == nil {
		return out
	}
	return m.env.Cache.lookupAt(out, ps)
}

// park waits for entries. The topic's executor may confirm one at the very moment at which nothing was found:
//
//	cursor                                  topic
//	1 finds nothing behind the read position
//	                                        2 confirms an entry
//	                                        3 sees waiting false: wakes nobody
//	4 waiting = true
//	5 looks again: finds the entry, takes waiting back and reads
//
// Had the topic done 3 after 4 it would have taken the flag itself, and posted the wake-up; then 5 leaves it to that.
// Whoever turns the flag from true to false goes on with the Read: exactly one.
func (c *Cursor) park() {
	c.reader.phase = readWaiting
	c.waiting.Store(true)
	if c.HasMore() && c.waiting.CompareAndSwap(true, false) {
		c.reader.phase = readTrying
	}
}

// woken goes on with a Read that waited. A wake-up may be stale, for a Read that was cancelled: looking again is harmless.
func (c *Cursor) woken() {
	if c.reader.phase == readWaiting {
		c.waiting.Store(false)
		c.reader.phase = readTrying
		c.pump()
	}
}

// fetch reads from the bookies.
func (c *Cursor) fetch(s snapshot, want span) {
	r := &c.reader
	r.phase = readFetching
	turn := r.turn
	c.m.readBookies(s, want, func(entries []ledger.Entry, err error) {
		c.executor.PostFunc(func() { c.fetched(turn, want, entries, err) })
	})
}

// readBookies reads a span, in any case not more than is confirmed.
func (m *ManagedLedger) readBookies(s snapshot, want span, done func([]ledger.Entry, error)) {
	i := s.find(want.ledger)
	if m.env.Cache != nil {
		m.env.Cache.counts.misses.Add(1)
	}
	m.env.Metrics.cacheMissed()
	m.env.Bookies.Read(s.segments[i].ref, want.first, ledger.EntryID(s.size(i)-1), want.max, done)
}

func (c *Cursor) fetched(turn int, want span, entries []ledger.Entry, err error) {
	r := &c.reader
	if err == nil {
		err = want.verify(entries)
	}
	if err != nil || c.closed || turn != r.turn {
		release(entries)
		entries = nil
	}
	switch {
	case c.closed:
		return
	case turn != r.turn:
		r.phase = readTrying
	case err != nil:
		c.deliver(nil, err)
	default:
		c.m.keep(entries)
		out := r.out[:0]
		for _, e := range entries {
			if c.IsDeleted(e.Position) { // meanwhile
				e.Payload.Release()
				continue
			}
			out = append(out, e)
		}
		r.out = out
		c.read = maxPosition(c.read, ledger.Position{Ledger: want.ledger, Entry: want.first + ledger.EntryID(len(entries))})
		if len(out) == 0 {
			r.phase = readTrying
			break
		}
		c.deliver(out, nil)
	}
	c.pump()
}

// keep puts entries from the bookies into the cache when other cursors may want them.
func (m *ManagedLedger) keep(entries []ledger.Entry) {
	if m.cursors.n.Load() > 1 {
		m.cache(entries)
	}
}

// cache puts entries from the bookies, which lie side by side, into the cache.
func (m *ManagedLedger) cache(entries []ledger.Entry) {
	if m.env.Cache == nil {
		return
	}
	payloads := make([]ledger.Payload, len(entries))
	for i := range entries {
		payloads[i] = entries[i].Payload
	}
	first := entries[0].Position
	m.env.Cache.insert(m.env.Executor, first.Ledger, first.Entry, payloads, 0)
}

// verify reports entries that were not asked for.
func (s *span) verify(entries []ledger.Entry) error {
	if len(entries) == 0 || len(entries) > s.max.Entries {
		return errors.Join(ledger.ErrUnreadable, errBadAnswer)
	}
	for i, e := range entries {
		if (e.Position != ledger.Position{Ledger: s.ledger, Entry: s.first + ledger.EntryID(i)}) {
			return errors.Join(ledger.ErrUnreadable, errBadAnswer)
		}
	}
	return nil
}

func release(entries []ledger.Entry) {
	for _, e := range entries {
		e.Payload.Release()
	}
}

// deliver ends the Read.
func (c *Cursor) deliver(out []ledger.Entry, err error) {
	r := &c.reader
	size := int64(0)
	for i := range out {
		size += int64(len(out[i].Payload.Data))
	}
	c.m.env.Metrics.read(size, err)
	if len(out) > 0 {
		c.read = maxPosition(c.read, after(out[len(out)-1].Position))
	}
	done := r.done
	r.phase, r.done = readIdle, nil
	busy := r.busy
	r.busy = true // a Read made inside done waits until here
	done(out, err)
	r.busy = busy
	clear(out)
}

func maxPosition(a, b ledger.Position) ledger.Position {
	if a.Less(b) {
		return b
	}
	return a
}
