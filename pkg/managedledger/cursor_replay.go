package managedledger

import (
	"slices"

	"geminga/pkg/ledger"
)

// ReadAt reads the entries at positions, without those that are deleted or do not exist; for redelivery. Positions that
// lie side by side, in ascending order, are read together. It may give fewer after a failure: the caller asks again for
// what is missing; an error comes only when there is nothing at all. Several may be under way, beside a Read. done may
// come before ReadAt returns; slice and references are as in Read. After Close done does not come.
func (c *Cursor) ReadAt(positions []ledger.Position, done func([]ledger.Entry, error)) {
	c.assertCurrent()
	if c.closed {
		done(nil, ErrClosed)
		return
	}
	r := &replay{c: c, positions: slices.Clone(positions), done: done}
	r.next()
}

// replay is one ReadAt.
type replay struct {
	c         *Cursor
	positions []ledger.Position // left to read
	out       []ledger.Entry
	done      func([]ledger.Entry, error)
}

const replayBytes = 5 << 20

func (r *replay) next() {
	c := r.c
	for len(r.positions) > 0 {
		s := c.log()
		want, ok := r.run(s)
		if !ok {
			r.positions = r.positions[1:]
			continue
		}
		was := len(r.out)
		if r.out = c.m.lookup(r.out, want); len(r.out) == was {
			c.m.readBookies(s, want, func(entries []ledger.Entry, err error) {
				c.executor.PostFunc(func() { r.fetched(want, entries, err) })
			})
			return
		}
		r.positions = r.positions[len(r.out)-was:]
	}
	r.finish(nil)
}

// run returns the entries at the head of positions that lie side by side and are to be read.
func (r *replay) run(s snapshot) (span, bool) {
	first := r.positions[0]
	n := 0
	for n < len(r.positions) && r.positions[n] == (ledger.Position{Ledger: first.Ledger, Entry: first.Entry + ledger.EntryID(n)}) &&
		s.exists(r.positions[n]) && !r.c.IsDeleted(r.positions[n]) {
		n++
	}
	return span{ledger: first.Ledger, first: first.Entry, max: ledger.Limits{Entries: n, Bytes: replayBytes}}, n > 0
}

func (r *replay) fetched(want span, entries []ledger.Entry, err error) {
	if err == nil {
		err = want.verify(entries)
	}
	if err != nil {
		release(entries)
		r.finish(err)
		return
	}
	r.out = append(r.out, entries...)
	r.positions = r.positions[len(entries):]
	r.next()
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
}
