package bookie

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// rebuilding makes an index anew of which layers cannot be read, from what is here.
//
//	layers that are whole, blocks that are whole ─▶ entries that nothing names ─▶ append commands in the journal ─▶ layer
//
// The machine says which entries a ledger has, and who wrote it: only the epoch that created a ledger appends to it. An entry
// was written once, so any append of that epoch which has it has the right bytes, even one that was refused because it came
// too early. Where the running checksum of a ledger covers all that is left of it, it is compared; a ledger that is wrong by
// it gets nothing from the journal.
//
// It finds commands in records that are whole, and in pieces of records that reclaim has kept with their headers. Pieces that
// were fetched from other replicas have none: what only those hold stays lost, unless a block names it.
type rebuilding struct {
	group *journal.Group
	state *fsmState // all its layers can be read: what was damaged is salvaged
	from  int       // the first layer that was damaged
	body  func(run) ([]byte, error)
}

// stretch is some entries of a ledger.
type stretch struct{ first, last ledger.EntryID }

// coverage finds the entries that ledgers have and the index does not name. It visits the runs of an index.
type coverage struct {
	next map[ledger.ID]ledger.EntryID
	gaps map[ledger.ID][]stretch
}

func newCoverage() *coverage {
	return &coverage{next: map[ledger.ID]ledger.EntryID{}, gaps: map[ledger.ID][]stretch{}}
}

func (c *coverage) visit(id ledger.ID, r run) {
	if next := c.next[id]; r.first > next {
		c.gaps[id] = append(c.gaps[id], stretch{next, r.first - 1})
	}
	c.next[id] = max(c.next[id], r.end()+1)
}

// end is called when all runs were visited.
func (c *coverage) end(m *ledger.Machine) {
	for id, st := range m.Ledgers() {
		if next := c.next[id]; next <= st.Last {
			c.gaps[id] = append(c.gaps[id], stretch{next, st.Last})
		}
	}
}

// entries counts what is not named.
func (c *coverage) entries() (n int64) {
	for _, gaps := range c.gaps {
		for _, s := range gaps {
			n += int64(s.last - s.first + 1)
		}
	}
	return n
}

func (s *fsmState) coverage() (*coverage, error) {
	c := newCoverage()
	err := s.each(0, func(id ledger.ID, r run) error {
		c.visit(id, r)
		return nil
	})
	c.end(s.machine)
	return c, err
}

// run puts the layers of the state in order, and returns how many entries nothing names that is here.
func (r *rebuilding) run(ctx context.Context) (lost int64, err error) {
	c, err := r.state.coverage()
	if err != nil {
		return 0, err
	}
	found := map[ledger.ID][]run{}
	if len(c.gaps) > 0 {
		if found, err = r.search(ctx, c.gaps); err != nil {
			return 0, err
		}
	}
	layers := r.state.index.layers
	for {
		if r.state.index.layers, err = r.with(layers, found); err != nil {
			return 0, err
		}
		if c, err = r.state.coverage(); err != nil {
			return 0, err
		}
		wrong := r.wrong(found, c)
		if len(wrong) == 0 {
			return c.entries(), nil
		}
		for _, id := range wrong {
			delete(found, id)
		}
	}
}

// with makes one layer of all from the first that was damaged on, and of what was found. One layer, because a newer one hides
// what an older one has.
func (r *rebuilding) with(layers []*layer, found map[ledger.ID][]run) ([]*layer, error) {
	all := maps.Clone(found)
	for id := range all {
		all[id] = slices.Clone(all[id])
	}
	var sources []*cursor
	for _, l := range layers[r.from:] {
		sources = append(sources, l.cursor())
	}
	err := merge(sources, r.state.last, func(id ledger.ID, r run) error {
		all[id] = append(all[id], r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, runs := range all {
		slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	}
	made, err := layerOf(func(add func(ledger.ID, run) error) error {
		return merge([]*cursor{tailCursor(all)}, r.state.last, add)
	})
	return append(slices.Clone(layers[:r.from]), made), err
}

// search looks through the journal for appends of entries that nothing names.
func (r *rebuilding) search(ctx context.Context, gaps map[ledger.ID][]stretch) (map[ledger.ID][]run, error) {
	appends := map[ledger.ID][]run{}
	take := func(index uint64, offset int, c *ledger.Command) {
		st, ok := r.state.machine.State(c.Ledger)
		if !ok || c.Op != ledger.OpAppend || c.Epoch != st.Owner || len(gaps[c.Ledger]) == 0 {
			return
		}
		at := run{first: c.First, count: uint32(c.Count), offset: uint32(offset), length: uint32(len(c.Body)), index: index}
		if at.check(c.Body) == nil {
			appends[c.Ledger] = append(appends[c.Ledger], at)
		}
	}
	var err error
	r.group.Held(func(h journal.Held) bool {
		if h.Index > r.state.applied || h.Damaged || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		var k journal.Kept
		if k, err = r.group.ReadHeld(h.Index); isLost(err) {
			err = nil
			return true
		}
		if err != nil {
			return false
		}
		commandsOf(&k, take)
		return true
	})
	found := map[ledger.ID][]run{}
	for id := range gaps {
		for _, s := range gaps[id] {
			found[id] = append(found[id], s.fill(appends[id])...)
		}
	}
	maps.DeleteFunc(found, func(_ ledger.ID, runs []run) bool { return len(runs) == 0 })
	return found, cmp.Or(err, ctx.Err())
}

// commandsOf visits the commands in what is held of a record, with the offset of their bodies in the proposal.
func commandsOf(k *journal.Kept, visit func(index uint64, offset int, c *ledger.Command)) {
	if len(k.Pieces) == 0 {
		for rest := k.Data; len(rest) > 0; {
			c, tail, err := ledger.NextCommand(rest)
			if err != nil {
				return // it is an entry of raft's own
			}
			visit(k.Index, len(k.Data)-len(tail)-len(c.Body), &c)
			rest = tail
		}
		return
	}
	data := k.Data
	for _, p := range k.Pieces {
		if c, ok := commandIn(data[:p.Length]); ok {
			visit(k.Index, int(p.Offset)+ledger.AppendHeaderLen, &c)
		}
		data = data[p.Length:]
	}
}

// commandIn returns the append command that a piece is. False: there are entries only.
func commandIn(piece []byte) (ledger.Command, bool) {
	c, rest, err := ledger.NextCommand(piece)
	return c, err == nil && len(rest) == 0 && c.Op == ledger.OpAppend
}

// fill returns runs that have the entries of a stretch, as far as there are some.
func (s stretch) fill(appends []run) []run {
	slices.SortFunc(appends, func(a, b run) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.index, b.index)) })
	var out []run
	for _, a := range appends {
		if a.first >= s.first && a.first <= s.last {
			a = a.clipped(s.last)
			out = append(out, a)
			s.first = a.end() + 1
		}
	}
	return out
}

// wrong returns the ledgers of those found whose entries are not what their running checksum says.
func (r *rebuilding) wrong(found map[ledger.ID][]run, c *coverage) (out []ledger.ID) {
	for id := range found {
		st, _ := r.state.machine.State(id)
		if st.Summed != st.Last || len(c.gaps[id]) > 0 {
			continue
		}
		sum := uint64(0)
		err := r.state.runs(id, st.Last, func(at run) error {
			body, err := r.body(at)
			if err == nil {
				sum, err = ledger.Sum(sum, at.first, body)
			}
			return err
		})
		if err == nil && sum != st.Checksum {
			out = append(out, id)
		}
	}
	return out
}

// mendRotten mends the index if it was found damaged; after an error it is tried again.
func (g *group) mendRotten(ctx context.Context) error {
	if !g.rotten.Swap(false) {
		return nil
	}
	err := g.mendIndex(ctx)
	if err != nil {
		g.rotten.Store(true)
	}
	return err
}

// mendIndex makes the index anew if layers of it cannot be read. When not all of it is found and there are other replicas,
// this one begins again with a snapshot.
func (g *group) mendIndex(ctx context.Context) error {
	state := g.fsm.view()
	old := state.index.layers
	layers, from := slices.Clone(old), len(old)
	for i, l := range old {
		if err := l.verify(); err == nil {
			continue
		}
		whole, err := l.salvaged()
		if err != nil {
			return err
		}
		layers[i], from = whole, min(from, i)
	}
	if from == len(old) {
		return nil
	}
	state.index = &index{layers: layers, tail: state.index.tail}
	r := &rebuilding{group: g.store.group, state: state, from: from, body: g.store.body}
	lost, err := r.run(ctx)
	switch {
	case err != nil:
		return err
	case lost > 0 && len(g.others()) > 0:
		err := fmt.Errorf("%w: index: %d entries are not found in the journal", ErrDamaged, lost)
		g.health.fail(err)
		return err
	case !g.fsm.relayer(state.life, old, state.index.layers):
		g.rotten.Store(true) // another snapshot came meanwhile: again
		g.fill.signal()
		return nil
	}
	g.log.Info("made the index of a group anew from the journal", "group", g.id, "lost", lost)
	if err := g.snapshot(ctx); err != nil {
		g.log.Warn("no snapshot of a mended index could be taken", "group", g.id, "error", err)
	}
	return nil
}

// relayer replaces the layers of the index, unless they have changed.
func (f *fsm) relayer(life int, old, layers []*layer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life != life || !slices.Equal(f.index.layers, old) {
		return false
	}
	f.index = &index{layers: layers, tail: f.index.tail}
	return true
}
