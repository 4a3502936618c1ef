package managedledger

import (
	"fmt"
	"math"
	"sync/atomic"

	"geminga/pkg/executor"
	"geminga/pkg/invariant"
	"geminga/pkg/ledger"
)

// Cursor is a reader's place in a managed ledger. It lives on its subscription's executor: all methods run there unless
// they say otherwise. What it shares with the topic's executor is the view of the log, the cache, and the waiting flag.
//
//	   all deleted             some deleted one by one                     confirmed      on the way
//	──────────────────┬──────────────────────────┬────────────────────────────────┬───────────────
//	             mark-delete                read position                   LastConfirmed
//
// Mark-delete positions are kept as the last existing entry at or before what was asked for, so there is one position
// for "everything up to here": the last entry of a ledger, never entry -1 of the one behind it. Only in front of the
// very first entry it is {first ledger, -1}. Deleting the entry behind the mark-delete position, or a range of which
// that entry is the first, moves it on, across the borders of ledgers.
//
// Invariants:
//
//  1. mark is an entry of the log, or in front of the first; no entry at or before mark is in acks, nor is the one
//     behind it.
//  2. acks holds confirmed entries only, hence Backlog = entries behind mark − count(acks), exactly. Nothing is counted
//     up or down over time. A batch of which a part is deleted counts as not deleted.
//  3. The stored state of a durable cursor is one that it has had, and no older than any answered receipt.
type Cursor struct {
	m        *ManagedLedger
	name     string
	executor *executor.Executor
	store    *cursorStore // nil: not durable

	deletions
	read   ledger.Position // the next to read; may lie behind the end of its ledger
	closed bool

	stored  atomic.Pointer[ledger.Position] // mark of the stored state, which trimming respects; nil: not known
	reader  reader
	replay  *replay      // kept to be used again; nil: none
	waiting atomic.Bool  // a Read waits for entries; see park
	asked   atomic.Int64 // time of the last Read, by the cache's clock
	wake    wake
}

// wake is the task that the topic's executor posts when there are entries.
type wake struct{ c *Cursor }

// Run implements executor.Task.
func (w *wake) Run() { w.c.woken() }

func newCursor(m *ManagedLedger, o CursorOptions) *Cursor {
	c := &Cursor{m: m, name: o.Name, executor: o.Executor}
	c.asked.Store(math.MinInt64)
	c.wake.c = c
	return c
}

// Name returns the name. Any goroutine.
func (c *Cursor) Name() string { return c.name }

// Durable reports whether the state survives. Any goroutine.
func (c *Cursor) Durable() bool { return c.store != nil }

// Executor returns the executor that the cursor lives on. Any goroutine.
func (c *Cursor) Executor() *executor.Executor { return c.executor }

// MarkDeleted returns the position up to which everything is deleted.
func (c *Cursor) MarkDeleted() ledger.Position { return c.mark }

// ReadPosition returns the first entry that Read will look at; it may be one that does not exist yet.
func (c *Cursor) ReadPosition() ledger.Position { return c.log().ceil(c.read) }

// IsDeleted reports whether the entry is deleted.
func (c *Cursor) IsDeleted(p ledger.Position) bool { return p.Compare(c.mark) <= 0 || c.acks.has(p) }

// Backlog returns the number of entries that are confirmed and not deleted.
func (c *Cursor) Backlog() int64 {
	s := c.log()
	return s.total() - s.rank(c.mark) - c.acks.count()
}

// HasMore reports that a Read would find entries at once.
func (c *Cursor) HasMore() bool {
	s := c.log()
	return c.undeleted(s, c.read).Compare(s.last()) <= 0
}

// log returns the log as it is now. A cursor whose place has been trimmed goes on with the first entry there is.
func (c *Cursor) log() snapshot {
	s := c.m.snapshot()
	if first := s.first(); c.mark.Ledger < first.Ledger {
		c.moveTo(s, before(first))
	}
	return s
}

// keepFrom says that the state with this mark-delete position is stored.
func (c *Cursor) keepFrom(mark ledger.Position) {
	was := c.stored.Load()
	if was != nil && *was == mark {
		return
	}
	c.stored.Store(&mark)
	if s := c.log(); was == nil || s.next(*was).Ledger != s.next(mark).Ledger {
		c.m.env.Executor.PostFunc(c.m.trim)
	}
}

// undeleted returns the first entry at p or after it that is not deleted; behind the last entry as snapshot.ceil.
func (c *Cursor) undeleted(s snapshot, p ledger.Position) ledger.Position {
	for {
		p = s.ceil(p)
		e := c.acks.nextClear(p.Ledger, p.Entry)
		if e == p.Entry {
			return p
		}
		p.Entry = e
	}
}

// MarkDelete deletes everything up to and including p. A p that is deleted already changes nothing and succeeds. done
// (nil: no receipt wanted) comes on the cursor's executor, possibly inline, when the deletion is durable.
func (c *Cursor) MarkDelete(p ledger.Position, done func(error)) {
	c.assertCurrent()
	s := c.log()
	if err := c.check(s, p); err != nil {
		answer(done, err)
		return
	}
	if p = s.floor(p); p.Compare(c.mark) > 0 {
		c.moveTo(s, p)
		c.m.env.Metrics.markDeleted()
		c.changed(done)
		return
	}
	c.unchanged(done)
}

// Delete deletes single entries. Positions that do not exist, or no more, are passed over. done as in MarkDelete, and also
// for every DeletePart before.
func (c *Cursor) Delete(ps []ledger.Position, done func(error)) {
	c.assertCurrent()
	s := c.log()
	for _, p := range ps {
		if err := c.check(s, p); err != nil {
			answer(done, err)
			return
		}
	}
	changed, mark := false, c.mark
	for _, p := range ps {
		switch {
		case p.Compare(c.mark) <= 0 || !s.exists(p):
		case p == s.next(c.mark): // in order: the bitmap is not touched
			c.moveTo(s, p)
			changed = true
		case c.acks.add(p):
			c.parts.remove(p)
			if c.store != nil {
				c.store.changes.ack(p)
			}
			changed = true
		}
	}
	if c.mark != mark {
		c.m.env.Metrics.markDeleted()
	}
	if changed {
		c.changed(done)
		return
	}
	c.unchanged(done)
}

func (c *Cursor) check(s snapshot, p ledger.Position) error {
	if c.closed {
		return ErrClosed
	}
	if p.Compare(s.last()) > 0 && p.Entry != ledger.NoEntry {
		return fmt.Errorf("%w: %s, last is %s", ErrBadPosition, p, s.last())
	}
	return nil
}

func answer(done func(error), err error) {
	if done != nil {
		done(err)
	}
}

// moveTo moves the mark-delete position to p, an entry, and on over what is deleted behind it.
func (c *Cursor) moveTo(s snapshot, p ledger.Position) {
	was := c.mark
	c.mark = p
	c.acks.removeTo(p)
	for c.acks.count() > 0 {
		next := s.next(c.mark)
		e := c.acks.nextClear(next.Ledger, next.Entry)
		if e == next.Entry {
			break
		}
		c.mark = ledger.Position{Ledger: next.Ledger, Entry: e - 1}
		c.acks.removeTo(c.mark)
	}
	c.parts.removeBetween(was, c.mark)
	if c.read.Compare(c.mark) <= 0 {
		c.read = after(c.mark)
	}
}

// Rewind makes Read start behind the mark-delete position again. Entries of a Read under way are not delivered; it reads
// again.
func (c *Cursor) Rewind() {
	c.assertCurrent()
	c.read = after(c.mark)
	c.reader.restart(c)
}

// Seek makes p the next entry to read: everything before is deleted, everything from there on is not. ledger.Earliest
// and ledger.Latest are the first entry and behind the last one. done as in MarkDelete.
func (c *Cursor) Seek(p ledger.Position, done func(error)) {
	c.assertCurrent()
	if c.closed {
		answer(done, ErrClosed)
		return
	}
	c.place(c.log(), p, true)
	c.reader.restart(c)
	c.changed(done)
}

// place puts a cursor at p: the next to read, or the last that is deleted.
func (c *Cursor) place(s snapshot, p ledger.Position, inclusive bool) {
	if inclusive && p != ledger.Latest {
		p = before(p)
	}
	c.mark = s.floor(p)
	c.read = after(c.mark)
	c.acks.clear()
	c.parts.clear()
	if c.store != nil {
		c.store.changes.everything()
		if stored := c.stored.Load(); stored != nil && c.mark.Less(*stored) {
			c.keepFrom(c.mark) // from now on, not only when it is stored
		}
	}
}

// changed has the new state stored.
func (c *Cursor) changed(done func(error)) {
	if c.store == nil {
		answer(done, nil)
		return
	}
	c.store.changed(done)
}

// unchanged answers when what was there before is durable.
func (c *Cursor) unchanged(done func(error)) {
	if c.store == nil {
		answer(done, nil)
		return
	}
	c.store.settled(done)
}

// Close stores the state of a durable cursor and ends it. A Read that is outstanding never gets its done. done comes on
// the cursor's executor, possibly inline.
func (c *Cursor) Close(done func(error)) {
	c.assertCurrent()
	if c.closed {
		answer(done, ErrClosed)
		return
	}
	c.end()
	if c.store == nil {
		answer(done, nil)
		return
	}
	c.store.close(done)
}

// end stops everything but the storing of the state.
func (c *Cursor) end() {
	c.closed = true
	c.waiting.Store(false)
	c.m.env.Executor.PostFunc(func() { c.m.removeCursor(c) })
}

// drop ends the cursor without storing anything: it has been deleted.
func (c *Cursor) drop() {
	if !c.closed {
		c.end()
	}
	if c.store != nil {
		c.store.fail(ErrClosed)
	}
}

func (c *Cursor) assertCurrent() {
	if invariant.Enabled {
		c.executor.AssertCurrent()
	}
}

// checkInvariants is for tests and invariants builds.
func (c *Cursor) checkInvariants() {
	if !invariant.Enabled {
		return
	}
	s := c.log()
	invariant.Assert(s.floor(c.mark) == c.mark || c.mark.Entry == ledger.NoEntry, "mark-delete position %s is no entry", c.mark)
	invariant.Assert(!c.acks.has(s.next(c.mark)), "entry behind mark-delete position %s is deleted", c.mark)
	for p := range c.parts.sets {
		invariant.Assert(!c.IsDeleted(p), "part of %s, which is deleted", p)
	}
	invariant.Assert(c.Backlog() >= 0, "backlog %d", c.Backlog())
}
