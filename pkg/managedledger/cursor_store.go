package managedledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// cursorStore keeps a durable cursor's state, in records of which each is the whole state or what has changed since the
// one before (cursor_record.go). Any number of acknowledgements that gather while a record is on its way make one record.
//
//	acks ──▶ dirty ──▶ [ record on its way ] ──stored──▶ receipts answered; dirty again? next record
//	            └ with a receipt wanted: at once, else within CursorFlushInterval
//
// Records go to a ledger of the cursor's own, which is made at the first write, and replaced when it is full, broken or
// stalled. A new ledger first takes a whole record, then the metadata names it, and then the receipts of that record are
// answered: so the ledger that the metadata names always has a state, and it is at least as new as any receipt.
//
//	create ──▶ append whole record ──▶ put {ledger} ──▶ delete the old ledger
//
// A crash before the put leaves the old ledger named, whose last record is as new as the receipts answered so far. The
// new ledger is then left over, unnamed.
type cursorStore struct {
	c      *Cursor
	record record
	info   cursorInfo // as put last

	phase    storePhase
	failure  error      // FAILED
	ledger   ledger.Ref // takes records; zero: none yet
	next     ledger.EntryID
	avoid    ledger.GroupID
	turn     int // of the write under way; late answers have an older one
	attempts int // to create a ledger
	failures int // in a row, of records
	stalls   int // in a row, of records

	dirty   bool
	mark    ledger.Position // of the record under way
	changes changes         // since the last record
	chain   chain           // in ledger
	cut     bool            // the last whole record was not all
	waiting []func(error)   // their state is in the next record
	flying  []func(error)   // their state is in the record under way
	flush   *executor.Timer
	stall   *executor.Timer
	closing func(error)
	limit   *executor.Timer
}

type storePhase int

const (
	storeIdle storePhase = iota
	storeWriting
	storeFailed // lost or deleted
	storeClosed
)

// changed has the state written: soon, or at once if somebody waits for it.
func (s *cursorStore) changed(done func(error)) {
	if s.phase >= storeFailed {
		answer(done, s.failure)
		return
	}
	s.dirty = true
	if done != nil {
		s.waiting = append(s.waiting, done)
	}
	s.kick()
}

// settled answers when the state as it is now is durable.
func (s *cursorStore) settled(done func(error)) {
	switch {
	case done == nil:
	case s.phase >= storeFailed:
		done(s.failure)
	case s.dirty:
		s.waiting = append(s.waiting, done)
		s.kick()
	case s.phase == storeWriting:
		s.flying = append(s.flying, done)
	default:
		done(nil)
	}
}

// kick starts a write if one is due.
func (s *cursorStore) kick() {
	switch {
	case s.phase != storeIdle || !s.dirty:
	case len(s.waiting) > 0:
		s.write()
	case s.flush == nil:
		s.flush = s.after(s.c.m.opts.CursorFlushInterval, func() {
			s.flush = nil
			if s.phase == storeIdle && s.dirty {
				s.write()
			}
		})
	}
}

func (s *cursorStore) after(d time.Duration, f func()) *executor.Timer {
	return s.c.executor.After(d, executor.Func(f))
}

// write stores the state as it is now.
func (s *cursorStore) write() {
	stopTimer(&s.flush)
	s.phase = storeWriting
	if full := int64(s.next) >= s.c.m.opts.CursorMaxEntriesPerLedger; full || s.ledger.ID == 0 {
		s.attempts = 0
		s.create()
		return
	}
	s.append()
}

// take makes a record at the entry of a ledger; whoever waits for the state as it is now waits for the record under way.
func (s *cursorStore) take(ref ledger.Ref, entry ledger.EntryID) []byte {
	s.dirty = false
	s.flying = append(s.flying, s.waiting...)
	s.waiting, s.mark = nil, s.c.mark
	record, over := s.chain.next(ref, entry, &s.c.deletions, &s.changes, s.c.m.opts.recordBounds())
	if s.chain.length > 1 {
		return record
	}
	if over != (cut{}) {
		s.c.m.env.Metrics.truncated()
		if !s.cut {
			s.c.m.log.Warn("cursor has more acknowledged ranges than are kept: those beyond will be delivered again after a crash",
				"cursor", s.c.name, "ranges", over.ranges, "batches", over.parts)
		}
	}
	s.cut = over != cut{}
	return record
}

// create makes a ledger and appends to it.
func (s *cursorStore) create() {
	s.turn++
	turn, env := s.turn, &s.c.m.env
	env.Bookies.Create(env.Epoch, s.avoid, func(ref ledger.Ref, err error) {
		s.c.executor.PostFunc(func() {
			switch wanted := turn == s.turn && s.phase == storeWriting; {
			case err == nil && wanted:
				s.retire()
				s.ledger, s.next, s.avoid = ref, 0, 0
				s.append()
			case err == nil:
				env.Bookies.Delete(ref, ignore)
			case wanted:
				s.createLater(backoff(s.attempts))
				s.attempts++
			}
		})
	})
}

func (s *cursorStore) createLater(wait time.Duration) {
	turn := s.turn
	s.after(wait, func() {
		if turn == s.turn && s.phase == storeWriting {
			s.create()
		}
	})
}

// retire gives up the ledger in use; if the metadata names it, it stays until they name another.
func (s *cursorStore) retire() {
	bookies := s.c.m.env.Bookies
	if s.ledger.ID != 0 {
		bookies.Abandon(s.ledger)
		if s.ledger.ID != s.info.Ledger {
			bookies.Delete(s.ledger, ignore)
		}
	}
	s.ledger, s.next, s.chain = ledger.Ref{}, 0, chain{}
}

// append writes a record to the ledger in use.
func (s *cursorStore) append() {
	s.turn++
	entry := s.next
	s.next++
	env := &s.c.m.env
	a := &stateAppend{s: s, turn: s.turn, entry: entry}
	s.stall = s.after(s.stallTimeout(), func() {
		s.stall = nil
		s.stalls++
		a.handle(ledger.ErrUnknown)
	})
	env.Bookies.Append(s.ledger, env.Epoch, entry, []ledger.Payload{{Data: s.take(s.ledger, entry)}}, a)
}

// stallTimeout is longer than that of the data, because nobody is blocked; it backs off in the same way.
func (s *cursorStore) stallTimeout() time.Duration {
	return 4 * s.c.m.opts.LedgerStallTimeout << min(s.stalls, stallDoublings)
}

// stateAppend is the waiter of one record.
type stateAppend struct {
	s     *cursorStore
	turn  int
	entry ledger.EntryID
}

// Appended implements ledger.Waiter.
func (a *stateAppend) Appended(_ ledger.Ref, last ledger.EntryID, err error) {
	if last >= a.entry {
		err = nil
	} else if err == nil {
		return
	}
	a.s.c.executor.PostFunc(func() { a.handle(err) })
}

func (a *stateAppend) handle(err error) {
	s := a.s
	if a.turn != s.turn || s.phase != storeWriting {
		return
	}
	s.turn++
	stopTimer(&s.stall)
	switch {
	case err == nil && s.ledger.ID == s.info.Ledger:
		s.stalls, s.failures = 0, 0
		s.written()
	case err == nil:
		s.put(cursorInfo{Epoch: s.c.m.env.Epoch, Ledger: s.ledger.ID, Group: s.ledger.Group}, s.written)
	case errors.Is(err, ledger.ErrFenced):
		s.lose(fmt.Errorf("%w: %w", ErrLost, err))
	case errors.Is(err, ledger.ErrShutdown), errors.Is(err, ledger.ErrBadCommand): // no other ledger will take it either
		s.fail(err)
	default:
		s.c.m.log.Warn("cursor ledger in trouble", "cursor", s.c.name, "ledger", s.ledger, "err", err)
		s.avoid = s.ledger.Group
		s.retire()
		s.attempts = 0
		if s.failures++; s.failures < 2 {
			s.create()
		} else {
			s.createLater(backoff(s.failures))
		}
	}
}

// put names another ledger, or the state itself, in the metadata, then deletes the ledger named before.
func (s *cursorStore) put(info cursorInfo, done func()) {
	value, err := info.encode()
	if err != nil {
		s.fail(err)
		return
	}
	s.record.put(value, func(err error) {
		switch {
		case s.phase >= storeFailed:
		case errors.Is(err, errConflict):
			s.lose(lostIfConflict(err))
		case err != nil:
			s.fail(err)
		default:
			old := s.info.ref()
			s.info = info
			if old.ID != 0 && old.ID != info.Ledger {
				s.c.m.env.Bookies.Delete(old, ignore)
			}
			done()
		}
	})
}

// written answers the receipts of a record that is durable.
func (s *cursorStore) written() {
	s.phase = storeIdle
	s.c.m.env.Metrics.persisted(nil)
	s.c.keepFrom(s.mark)
	flying := s.flying
	s.flying = nil
	for _, done := range flying {
		done(nil)
	}
	s.flying = reuse(s.flying, flying)
	if s.closing != nil && s.phase == storeIdle {
		s.finish()
		return
	}
	s.kick()
}

// reuse keeps the memory of a slice that was handed out, unless there is a new one already.
func reuse(now, was []func(error)) []func(error) {
	if now != nil {
		return now
	}
	clear(was)
	return was[:0]
}

// lose fails, and the managed ledger with it: somebody else writes the cursor, so somebody else owns the topic.
func (s *cursorStore) lose(err error) {
	s.fail(err)
	m := s.c.m
	m.env.Executor.PostFunc(func() { m.lose(err) })
}

// fail ends the storing; whoever waits gets the error.
func (s *cursorStore) fail(err error) {
	if s.phase >= storeFailed {
		return
	}
	s.c.m.env.Metrics.persisted(err)
	s.end(storeFailed, err)
}

func (s *cursorStore) end(phase storePhase, err error) {
	waiting := slices.Concat(s.flying, s.waiting)
	if s.closing != nil {
		waiting = append(waiting, s.closing)
	}
	s.phase, s.failure = phase, err
	s.flying, s.waiting, s.closing = nil, nil, nil
	s.turn++
	stopTimer(&s.flush)
	stopTimer(&s.stall)
	stopTimer(&s.limit)
	s.record.stop()
	if s.ledger.ID != 0 {
		s.c.m.env.Bookies.Abandon(s.ledger)
	}
	for _, done := range waiting {
		done(err)
	}
}

// close stores the state in the metadata, where the next owner finds it at once, and deletes the ledger; a state with
// too many ranges stays in the ledger.
func (s *cursorStore) close(done func(error)) {
	if s.phase >= storeFailed {
		done = orIgnore(done)
		done(s.failure)
		return
	}
	s.closing = orIgnore(done)
	stopTimer(&s.flush)
	s.limit = s.after(s.c.m.opts.CloseTimeout, func() {
		s.end(storeFailed, fmt.Errorf("managedledger: close cursor %s: %w", s.c.name, ledger.ErrUnknown))
	})
	if s.phase == storeIdle {
		s.finish()
	}
}

func orIgnore(done func(error)) func(error) {
	if done == nil {
		return ignore
	}
	return done
}

// finish does the last write of a cursor that is being closed.
func (s *cursorStore) finish() {
	if s.info.Ledger == 0 && !s.dirty {
		s.finished()
		return
	}
	state, _, over := appendRecord(nil, link{}, s.c.content(), s.c.m.opts.metadataBounds())
	switch {
	case over == cut{}:
		s.dirty = false
		s.flying = append(s.flying, s.waiting...)
		s.waiting = nil
		s.phase = storeWriting
		s.put(cursorInfo{Epoch: s.c.m.env.Epoch, State: state}, s.finished)
	case s.dirty:
		s.write()
	default:
		if s.ledger.ID != 0 {
			s.c.m.env.Bookies.Close(s.ledger, s.next-1, ignore)
		}
		s.finished()
	}
}

// finished answers after the last write.
func (s *cursorStore) finished() { s.end(storeClosed, nil) }
