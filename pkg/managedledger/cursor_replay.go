package managedledger

import "geminga/pkg/ledger"

// ReadAt reads the entries at positions, without those that are deleted or do not exist; for redelivery. Positions that
// lie side by side or near each other, in ascending order, are read together; what lies between is read in vain, and kept
// in the cache for those that ask for it next. It may give fewer after a failure: the caller asks again for
// what is missing; an error comes only when there is nothing at all. Several may be under way, beside a Read. done may
// come before ReadAt returns; slice and references are as in Read. After Close done does not come.
func (c *Cursor) ReadAt(positions []ledger.Position, done func([]ledger.Entry, error)) {
	c.assertCurrent()
	if c.closed {
		done(nil, ErrClosed)
		return
	}
	r := c.replay // there is no more than one mostly
	if c.replay = nil; r == nil {
		r = &replay{c: c}
	}
	r.asked = append(r.asked[:0], positions...)
	r.positions, r.out, r.done = r.asked, r.out[:0], done
	r.next()
}

// WillReadAt says that entries which were read will be asked for once more, so that the cache keeps them for that if it
// can. It is no promise.
func (c *Cursor) WillReadAt(positions []ledger.Position) {
	c.assertCurrent()
	if c.m.env.Cache != nil {
		c.m.env.Cache.expect(positions)
	}
}

// replay is one ReadAt.
type replay struct {
	c         *Cursor
	asked     []ledger.Position // reused
	positions []ledger.Position // of these, left to read
	out       []ledger.Entry    // reused
	done      func([]ledger.Entry, error)
}

const (
	replayBytes   = 5 << 20
	maxReplayKept = 4096 // entries for which memory is kept

	// A read of the bookies goes on over so many entries that were not asked for, as long as it brings no more than so
	// many bytes: small entries cost little beside a request of its own, large ones do not.
	replayGap      = 128
	replayGapBytes = 256 << 10
)

func (r *replay) next() {
	c := r.c
	for len(r.positions) > 0 {
		s := c.log()
		n := r.wanted(s)
		if n == 0 {
			r.positions = r.positions[1:]
			continue
		}
		was := len(r.out)
		r.out = c.m.lookupAt(r.out, r.positions[:n])
		got := len(r.out) - was
		r.positions = r.positions[got:]
		if got < n {
			r.fetch(s, r.run(s))
			return
		}
	}
	r.finish(nil)
}

// wanted counts the positions up to the first one that is not to be read.
func (r *replay) wanted(s snapshot) int {
	n := 0
	for n < len(r.positions) && s.exists(r.positions[n]) && !r.c.IsDeleted(r.positions[n]) {
		n++
	}
	return n
}

// run returns the entries at the head of positions that lie side by side and are to be read, of which there is one.
func (r *replay) run(s snapshot) span {
	first := r.positions[0]
	n := 1
	for n < len(r.positions) && r.positions[n] == (ledger.Position{Ledger: first.Ledger, Entry: first.Entry + ledger.EntryID(n)}) &&
		s.exists(r.positions[n]) && !r.c.IsDeleted(r.positions[n]) {
		n++
	}
	return span{ledger: first.Ledger, first: first.Entry, max: ledger.Limits{Entries: n, Bytes: replayBytes}}
}

// fetch reads from the bookies, from a run on over small gaps.
func (r *replay) fetch(s snapshot, run span) {
	want := r.stretch(s, run)
	r.c.m.readBookies(s, want, func(entries []ledger.Entry, err error) {
		r.c.executor.PostFunc(func() { r.fetched(want, entries, err) })
	})
}

// stretch makes a run go on to later positions, as far as the gaps between them are small.
func (r *replay) stretch(s snapshot, run span) span {
	end := run.first + ledger.EntryID(run.max.Entries)
	for _, p := range r.positions[run.max.Entries:] {
		if p.Ledger != run.ledger || p.Entry < end || p.Entry-end > replayGap || !s.exists(p) {
			break
		}
		if !r.c.IsDeleted(p) {
			end = p.Entry + 1
		}
	}
	if n := int(end - run.first); n > run.max.Entries {
		run.max = ledger.Limits{Entries: n, Bytes: replayGapBytes}
	}
	return run
}

// fetched takes the entries that were asked for, of which the first one is there, out of what was read.
func (r *replay) fetched(want span, entries []ledger.Entry, err error) {
	if err == nil {
		err = want.verify(entries)
	}
	if err != nil {
		release(entries)
		r.finish(err)
		return
	}
	if r.gaps(entries) {
		r.c.m.cache(entries)
	}
	for _, e := range entries {
		r.take(e)
	}
	r.next()
}

// gaps reports that there are entries that were not asked for.
func (r *replay) gaps(entries []ledger.Entry) bool {
	return len(entries) > len(r.positions) || r.positions[len(entries)-1] != entries[len(entries)-1].Position
}

// take hands out an entry if it was asked for, and gives it back otherwise, or if it is deleted.
func (r *replay) take(e ledger.Entry) {
	asked := len(r.positions) > 0 && r.positions[0] == e.Position
	if asked {
		r.positions = r.positions[1:]
	}
	if !asked || r.c.IsDeleted(e.Position) {
		e.Payload.Release()
		return
	}
	r.out = append(r.out, e)
}

func (r *replay) finish(err error) {
	if r.c.closed {
		release(r.out)
		return
	}
	if len(r.out) > 0 {
		err = nil
	}
	r.done(r.out, err)
	if cap(r.out) <= maxReplayKept {
		clear(r.out)
		r.done = nil
		r.c.replay = r
	}
}
