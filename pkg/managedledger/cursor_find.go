package managedledger

import "geminga/pkg/ledger"

// Bisect halves the log, as it is now, until at most least entries are left, and gives the first of them to done: where
// precedes holds of an entry it goes on behind that one, else in front of it. So precedes holds of the entry in front of
// the result, unless the result is the first one; entries may be in any order. The cursor must have nothing deleted. A
// handful of entries is read, one after the other. done comes on the cursor's executor, perhaps inline, and not after
// Close.
func (c *Cursor) Bisect(least int64, precedes func(payload []byte) bool, done func(ledger.Position, error)) {
	c.assertCurrent()
	if c.closed {
		done(ledger.Position{}, ErrClosed)
		return
	}
	s := c.log()
	b := &bisection{c: c, s: s, high: s.total(), least: max(0, least), precedes: precedes, done: done}
	b.next()
}

// bisection looks among the entries [low, high), counted from the first.
type bisection struct {
	c         *Cursor
	s         snapshot
	low, high int64
	least     int64
	precedes  func([]byte) bool
	done      func(ledger.Position, error)
}

func (b *bisection) next() {
	if b.high-b.low <= b.least || b.high == b.low {
		b.done(b.s.next(b.s.nth(b.low)), nil)
		return
	}
	middle := b.low + (b.high-b.low)/2
	b.c.ReadAt([]ledger.Position{b.s.nth(middle + 1)}, func(entries []ledger.Entry, err error) {
		if s := b.c.log(); err == nil && len(entries) == 0 && s.first() != b.s.first() { // trimmed meanwhile
			b.s, b.low, b.high = s, 0, s.total()
			b.next()
			return
		}
		if err == nil && len(entries) == 0 {
			err = ErrBadPosition
		}
		if err != nil {
			release(entries)
			b.done(ledger.Position{}, err)
			return
		}
		if b.precedes(entries[0].Payload.Data) {
			b.low = middle + 1
		} else {
			b.high = middle
		}
		release(entries)
		b.next()
	})
}
