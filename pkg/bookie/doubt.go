package bookie

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// doubt says which entries of a replica are not handed out, though they are here and their own checksums are right: those
// that may be others than the group has agreed on. The running checksum of the ledger tells.
//
//	replica began again, because its state had differed ─▶ all ─▶ each ledger is summed ──▶ right: handed out again
//	scrub, back-fill: a ledger's sum is wrong ───────────▶ it ──▶ all its entries are fetched ──▶ summed again
//	                                                                   └─ wrong still: stays so, nobody can help
type doubt struct {
	all   atomic.Bool  // the state was replaced, and not all entries were compared with it since
	count atomic.Int64 // of ledgers

	mu      sync.Mutex
	ledgers map[ledger.ID]bool // whose sum was wrong; true: still after its entries were fetched
}

// withholds says whether entries of a ledger are not to be handed out.
func (d *doubt) withholds(id ledger.ID) bool {
	if d.all.Load() {
		return true
	}
	if d.count.Load() == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, in := d.ledgers[id]
	return in
}

// refute notes that a ledger's sum is wrong. It reports whether that is news: then its entries are to be fetched.
func (d *doubt) refute(id ledger.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, again := d.ledgers[id]
	d.ledgers[id] = again
	d.count.Store(int64(len(d.ledgers)))
	return !again
}

// clear notes that a ledger's entries are right, or gone.
func (d *doubt) clear(id ledger.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ledgers, id)
	d.count.Store(int64(len(d.ledgers)))
}

// prune drops the ledgers that are deleted.
func (d *doubt) prune(m *ledger.Machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.ledgers, func(id ledger.ID, _ bool) bool {
		_, there := m.State(id)
		return !there
	})
	d.count.Store(int64(len(d.ledgers)))
}

// settleDoubt sums the ledgers whose entries were fetched, or all of them if all are in doubt. False: some are to be
// fetched anew.
func (g *group) settleDoubt(ctx context.Context, touched map[ledger.ID]struct{}) bool {
	d, state := &g.fill.doubt, g.fsm.view()
	all := d.all.Load()
	if all {
		for id := range state.machine.Ledgers() {
			touched[id] = struct{}{}
		}
	}
	wrong := 0
	for id := range touched {
		if ctx.Err() != nil {
			return false
		}
		if !g.verifySum(ctx, state, id, verification{strict: all}) {
			wrong++
		}
	}
	if wrong > 0 {
		g.fill.signal()
		return false
	}
	if all {
		d.all.Store(false)
		g.log.Info("the entries of a replica that began again are those that the group has agreed on", "group", g.id, "ledgers", len(touched))
	}
	return true
}

// verifySums compares the running checksums of all ledgers with the entries that are here, rate bytes a second. It returns
// how many were wrong.
func (g *group) verifySums(ctx context.Context, rate int64) (wrong int) {
	state := g.fsm.view()
	for id := range state.machine.Ledgers() {
		if ctx.Err() != nil || !g.health.ok() {
			return wrong
		}
		if g.fill.whole.Load() && !g.verifySum(ctx, state, id, verification{rate: rate}) {
			wrong++
		}
	}
	g.fill.doubt.prune(state.machine)
	return wrong
}

// verification is how a ledger is verified.
type verification struct {
	rate int64 // bytes a second; 0: no bound
	// strict: a ledger whose checksum says nothing about what is left of it is wrong, unless its entries were just fetched.
	strict bool
}

// verifySum compares the running checksum of a ledger with the entries that are here. False: they are to be fetched.
func (g *group) verifySum(ctx context.Context, state *fsmState, id ledger.ID, how verification) bool {
	st, ok := state.machine.State(id)
	if !ok || st.Last == ledger.NoEntry {
		g.fill.doubt.clear(id)
		return true
	}
	if st.Summed != st.Last { // entries were discarded that the checksum covers
		if how.strict && g.fill.doubt.refute(id) {
			return g.repairLedger(state, id, st.Last)
		}
		g.fill.doubt.clear(id)
		return true
	}
	sum, err := g.sum(ctx, state, id, how.rate)
	var why *journal.CorruptError
	switch {
	case ctx.Err() != nil, errors.Is(err, journal.ErrNotFound): // deleted meanwhile, or not here yet
		return true
	case errors.Is(err, ErrDamaged):
		g.indexDamaged(err)
		return true
	case errors.As(err, &why):
		g.log.Error("a ledger cannot be checked", "group", g.id, "ledger", id, "error", err)
		g.repair(why.Index)
		return false
	case err == nil && sum == st.Checksum:
		g.fill.doubt.clear(id)
		return true
	}
	g.metrics.diverged()
	g.log.Error("entries are not those that the group has agreed on", "group", g.id, "ledger", id,
		"checksum", fmt.Sprintf("%016x", sum), "agreed", fmt.Sprintf("%016x", st.Checksum), "error", err)
	if !g.fill.doubt.refute(id) {
		g.log.Error("they were fetched from another replica already; they are not handed out", "group", g.id, "ledger", id)
		return true
	}
	return g.repairLedger(state, id, st.Last)
}

// sum makes the running checksum of the entries that are here.
func (g *group) sum(ctx context.Context, state *fsmState, id ledger.ID, rate int64) (sum uint64, err error) {
	began, bytes := time.Now(), int64(0)
	last, _ := state.last(id)
	err = state.runs(id, last, func(r run) error {
		body, err := g.store.body(r)
		if err == nil {
			err = r.check(body)
		}
		if err != nil {
			return err
		}
		if sum, err = ledger.Sum(sum, r.first, body); err != nil || rate <= 0 {
			return err
		}
		bytes += int64(len(body))
		return pause(ctx, time.Duration(float64(bytes)/float64(rate)*float64(time.Second))-time.Since(began))
	})
	return sum, err
}

// repairLedger has all records fetched that have entries of a ledger. False: so it is.
func (g *group) repairLedger(state *fsmState, id ledger.ID, last ledger.EntryID) bool {
	err := state.runs(id, last, func(r run) error {
		g.repair(r.index)
		return nil
	})
	if err != nil {
		g.indexDamaged(err)
	}
	return err != nil
}

// runs visits where the entries of a ledger are.
func (s *fsmState) runs(id ledger.ID, last ledger.EntryID, visit func(run) error) error {
	for next := ledger.EntryID(0); next <= last; {
		r, ok, err := s.find(id, next)
		switch {
		case err != nil:
			return err
		case !ok || r.count == 0:
			return fmt.Errorf("%w: index: entry %d of ledger %d is not in it", ErrDamaged, next, id)
		}
		if err := visit(r); err != nil {
			return err
		}
		next = r.end() + 1
	}
	return nil
}
