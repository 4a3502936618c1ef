package managedledger

import (
	"fmt"
	"math"

	"geminga/pkg/ledger"
)

// readLast reads the last record, which tells where its chain begins.
func (o *cursorOpening) readLast(last ledger.EntryID) {
	ref := o.store.info.ref()
	if last == ledger.NoEntry {
		o.finish(fmt.Errorf("%w: cursor %s is empty", ErrCorrupt, ref))
		return
	}
	o.read(last, last, func(entries []ledger.Entry) {
		n, err := recordDistance(entries[0].Payload.Data)
		if err == nil && n > uint64(last) {
			err = fmt.Errorf("%w: record %d of cursor ledger %s is %d records from a whole one", ErrCorrupt, last, ref, n)
		}
		if err != nil {
			o.finish(err)
			return
		}
		o.state = recovery{ledger: ref.ID}
		o.readChain(last-ledger.EntryID(n), last)
	})
}

// chainPage is how much of a chain is read at a time.
const chainPage = 8 << 20

// readChain reads the records from next to last and puts the state together.
func (o *cursorOpening) readChain(next, last ledger.EntryID) {
	o.read(next, last, func(entries []ledger.Entry) {
		s := o.c.m.snapshot()
		for _, e := range entries {
			if err := o.state.apply(e.Payload.Data, e.Position.Entry, s); err != nil {
				o.finish(err)
				return
			}
		}
		if next += ledger.EntryID(len(entries)); next <= last {
			o.readChain(next, last)
			return
		}
		o.recovered()
	})
}

// read reads some records from first on; done has them during the call only.
func (o *cursorOpening) read(first, last ledger.EntryID, done func([]ledger.Entry)) {
	ref := o.store.info.ref()
	want := span{ledger: ref.ID, first: first, max: ledger.Limits{Entries: int(last-first) + 1, Bytes: chainPage}}
	if first == last {
		want.max.Bytes = math.MaxInt32
	}
	o.c.m.env.Bookies.Read(ref, first, last, want.max, func(entries []ledger.Entry, err error) {
		o.c.executor.PostFunc(func() {
			if err == nil {
				err = want.verify(entries)
			}
			if o.done != nil && !o.retry(err) {
				done(entries)
			}
			release(entries)
		})
	})
}

// recovered takes the state over.
func (o *cursorOpening) recovered() {
	c := o.c
	s := c.m.snapshot()
	c.deletions = o.state.deletions
	o.state = recovery{}
	c.read = ledger.Earliest
	c.moveTo(s, s.floor(c.mark))
	c.tidy()
	o.claim()
}
