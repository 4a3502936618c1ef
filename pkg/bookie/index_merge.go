package bookie

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"geminga/pkg/ledger"
)

// cursor walks through the runs of a layer or of a tail, by ledger and first entry.
type cursor struct {
	id ledger.ID
	at run

	layer *layer
	block int // the next one
	dec   blockDecoder
	buf   []byte

	tail map[ledger.ID][]run
	ids  []ledger.ID // not begun yet
	runs []run       // of id, not visited yet

	done bool
	err  error
}

func (l *layer) cursor() *cursor {
	c := &cursor{layer: l}
	c.next()
	return c
}

func tailCursor(tail map[ledger.ID][]run) *cursor {
	c := &cursor{tail: tail, ids: slices.Sorted(maps.Keys(tail))}
	c.next()
	return c
}

// valid says that id and at are those of a run.
func (c *cursor) valid() bool { return !c.done }

func (c *cursor) next() {
	if c.layer == nil {
		c.nextOfTail()
		return
	}
	for !c.dec.next() {
		if c.dec.bad {
			c.err = fmt.Errorf("%w: index %s, block %d", ErrDamaged, c.layer.name, c.block-1)
		}
		if c.err != nil || c.block == len(c.layer.dir) {
			c.done = true
			return
		}
		b, err := c.layer.read(c.block, c.buf)
		if err != nil {
			c.err, c.done = err, true
			return
		}
		c.buf, c.dec = b[:0], decodeBlock(b)
		c.block++
	}
	c.id, c.at = c.dec.ledger, c.dec.run
}

func (c *cursor) nextOfTail() {
	for len(c.runs) == 0 {
		if len(c.ids) == 0 {
			c.done = true
			return
		}
		c.id, c.runs, c.ids = c.ids[0], c.tail[c.ids[0]], c.ids[1:]
	}
	c.at, c.runs = c.runs[0], c.runs[1:]
}

// merge visits the runs that the ledgers have, by ledger and first entry, until visit returns an error. Sources are oldest
// first; last says where a ledger ends, false that there is none.
//
// A ledger's runs go on from source to source. What a newer source has hides what an older one has from there on.
func merge(sources []*cursor, last func(ledger.ID) (ledger.EntryID, bool), visit func(ledger.ID, run) error) error {
	for id, some := lowest(sources); some; id, some = lowest(sources) {
		end, exists := last(id)
		if !exists {
			end = ledger.NoEntry
		}
		for i, c := range sources {
			if err := c.visit(id, min(end, before(sources[i+1:], id)), visit); err != nil {
				return err
			}
		}
	}
	for _, c := range sources {
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

// visit visits the runs of a ledger up to an entry, and steps over the others.
func (c *cursor) visit(id ledger.ID, last ledger.EntryID, visit func(ledger.ID, run) error) error {
	for ; c.valid() && c.id == id; c.next() {
		if c.at.first > last {
			continue
		}
		if err := visit(id, c.at.clipped(last)); err != nil {
			return err
		}
	}
	return nil
}

// before is the entry before the first that newer sources have of a ledger.
func before(newer []*cursor, id ledger.ID) ledger.EntryID {
	limit := ledger.EntryID(math.MaxInt64)
	for _, c := range newer {
		if c.valid() && c.id == id {
			limit = min(limit, c.at.first-1)
		}
	}
	return limit
}

func lowest(sources []*cursor) (id ledger.ID, some bool) {
	for _, c := range sources {
		if c.valid() && (!some || c.id < id) {
			id, some = c.id, true
		}
	}
	return id, some
}

// each visits the runs that name proposals from low on, and maybe others: what lies wholly before is not looked at.
func (s *fsmState) each(low uint64, visit func(ledger.ID, run) error) error {
	var sources []*cursor
	for _, l := range s.index.layers {
		if l.high >= low {
			sources = append(sources, l.cursor())
		}
	}
	return merge(append(sources, tailCursor(s.index.tail)), s.last, visit)
}

// last says where a ledger ends.
func (s *fsmState) last(id ledger.ID) (ledger.EntryID, bool) {
	st, ok := s.machine.State(id)
	return st.Last, ok
}

// find returns the run that holds an entry.
func (s *fsmState) find(id ledger.ID, entry ledger.EntryID) (run, bool, error) {
	last, ok := s.last(id)
	if !ok || entry < 0 || entry > last {
		return run{}, false, nil
	}
	if r, ok := s.index.findTail(id, entry); ok {
		return r.clipped(last), true, nil
	}
	r, ok, err := findLayer(s.index.layers, id, entry)
	return r.clipped(last), ok, err
}
