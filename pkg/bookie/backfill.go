package bookie

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

const (
	// fetchBatch is about how many bytes are asked for at once, if that is no more than a second's.
	fetchBatch = 1 << 20
	// fetchParallel is how many questions of a group are under way.
	fetchParallel = 4
	// fetchRecords is how many records are asked for at once, at most.
	fetchRecords = 4096
	// fetchTimeout is how long the answer to one question may take.
	fetchTimeout = 30 * time.Second
	// fillRetry is how long to wait before what nobody had is asked for again.
	fillRetry = 5 * time.Second
	// fillPoll is how often it is looked whether the replica has applied its log again.
	fillPoll = 100 * time.Millisecond
)

// filler makes a replica whole: it fetches from the other replicas the entries that the index names and the journal does
// not hold, or holds damaged.
//
//	snapshot installed ──┐
//	bookie started ──────┼─▶ log applied again ──▶ index − journal = lacks ──▶ fetch, check, Keep ──▶ whole
//	damage met ──────────┘         ▲                                              │ nobody has it
//	                               └──────────────────── after a while ───────────┘
//
// What was kept is durable, and what is lacking is computed anew each time, so it goes on after a restart where it ended.
// A damaged record that is still in the log is compacted out of it first, by a snapshot.
type filler struct {
	wake    chan struct{} // holds one
	missing atomic.Int64  // records, as of the last look
	bytes   atomic.Int64  // of their entries
	whole   atomic.Bool   // all peers were asked since the last snapshot was installed, or since the start
	trusted atomic.Bool   // nothing is known to be lacking: whole, or so before a restart
	applied atomic.Bool   // what the log had at the start was applied, so it is known whether a snapshot has to come
	doubt   doubt
	lost    atomic.Pointer[string] // says which entries no replica has that could be asked; nil: none are known

	mu       sync.Mutex
	installs int                 // how often a snapshot has replaced the state
	damaged  map[uint64]struct{} // indexes whose record was found damaged, though the journal may not know
}

func newFiller() *filler {
	f := &filler{wake: make(chan struct{}, 1), damaged: map[uint64]struct{}{}, doubt: doubt{ledgers: map[ledger.ID]bool{}}}
	f.trusted.Store(true) // what comes from the own log is here
	f.signal()
	return f
}

// serves says whether there is no reason to believe that entries are lacking.
func (f *filler) serves() bool {
	return f.whole.Load() || f.trusted.Load() && f.applied.Load()
}

// generation tells one state from the next.
func (f *filler) generation() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.installs
}

// judge notes what is known of the state of a generation.
func (f *filler) judge(generation int, whole, trusted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.installs == generation {
		f.whole.Store(whole)
		f.trusted.Store(trusted)
	}
}

func (f *filler) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// repair has a damaged record fetched from others.
func (g *group) repair(index uint64) {
	g.fill.mu.Lock()
	_, known := g.fill.damaged[index]
	g.fill.damaged[index] = struct{}{}
	g.fill.mu.Unlock()
	if !known {
		g.log.Warn("a damaged record is to be fetched from other replicas", "group", g.id, "index", index)
		g.fill.signal()
	}
}

// installed is called before and after a snapshot replaces the state: nobody is to see the new state and believe it whole.
// A snapshot that was taken here says itself whether nothing was lacking then: a restart need not compare everything before
// it serves. It is compared all the same.
func (g *group) installed(trusted bool) {
	g.fill.mu.Lock()
	g.fill.installs++
	g.fill.whole.Store(false)
	g.fill.trusted.Store(trusted)
	g.fill.mu.Unlock()
	g.fill.signal()
}

// tendEntries keeps a replica whole until it stops.
func (g *group) tendEntries(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the replica or with the bookie
		select {
		case <-g.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	behind := g.store.group.LastIndex() // what may have been applied before a restart
	for {
		select {
		case <-g.fill.wake:
		case <-ctx.Done():
			return
		}
		for g.raft.AppliedIndex() < min(behind, g.raft.LastIndex()) { // a tail that was never committed may be cut
			if pause(ctx, fillPoll) != nil {
				return
			}
		}
		g.fill.applied.Store(true)
		left, err := g.makeWhole(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || left > 0 {
			g.log.Warn("entries are missing here and could not be fetched; it is tried again", "group", g.id, "records", left, "error", err)
			if pause(ctx, fillRetry) != nil {
				return
			}
			g.fill.signal()
		}
	}
}

// makeWhole fetches what is lacking, from each of the other replicas in turn. It returns the number of records that none
// of them had.
func (g *group) makeWhole(ctx context.Context) (int, error) {
	began := time.Now()
	if err := errors.Join(g.mendRotten(ctx), g.compactDamaged(ctx)); err != nil {
		return 0, err
	}
	generation := g.fill.generation()
	lacks, unnamed, err := g.lacks()
	if err != nil {
		g.indexDamaged(err)
		return 0, err
	}
	g.fill.missing.Store(int64(len(lacks)))
	first := len(lacks)
	total, touched := totals(lacks)
	g.fill.bytes.Store(total)
	if first > 0 {
		g.fill.judge(generation, false, false)
		g.log.Info("fetching entries from other replicas", "group", g.id, "records", first, "bytes", total)
	}
	var errs []error
	for _, peer := range g.others() {
		if len(lacks) == 0 {
			break
		}
		left, err := g.fetchAll(ctx, peer, lacks)
		if lacks = left; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", peer, err))
		}
		if ctx.Err() != nil {
			return len(lacks), ctx.Err()
		}
	}
	g.fill.missing.Store(int64(len(lacks)))
	if len(lacks) == 0 {
		g.fill.bytes.Store(0)
		errs = nil
	}
	if len(lacks) == 0 && !g.settleDoubt(ctx, touched) {
		g.fill.judge(generation, false, false)
		return 0, ctx.Err()
	}
	lost := lostEntries(lacks, unnamed)
	if len(errs) == 0 {
		g.fill.judge(generation, true, lost == nil)
		g.fill.lost.Store(lost)
	}
	if first > 0 && lost == nil {
		g.log.Info("all entries are here again", "group", g.id, "records", first, "bytes", total, "took", time.Since(began))
	}
	return len(lacks), errors.Join(errs...)
}

// totals adds up what is lacking, and of which ledgers.
func totals(lacks []lack) (bytes int64, ledgers map[ledger.ID]struct{}) {
	ledgers = map[ledger.ID]struct{}{}
	for i := range lacks {
		bytes += lacks[i].bytes()
		for _, n := range lacks[i].needs {
			ledgers[n.ledger] = struct{}{}
		}
	}
	return bytes, ledgers
}

// others are the other replicas, the leader first: it is the least likely to lack anything. Those that have left the group
// are asked too, as long as they are to keep what they have.
func (g *group) others() []string {
	_, leader := g.raft.LeaderWithID()
	out := []string{string(leader)}
	for _, id := range slices.Concat(g.voters(), g.record.Load().Members()) {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return slices.DeleteFunc(out, func(id string) bool { return id == "" || id == g.transport.self })
}

// isWhole says whether the replica has all entries of the ledgers that it knows.
func isWhole(st *bookiepb.GroupStatus) bool { return !st.GetFilling() && st.GetMissing() == 0 }

// fetchAll asks one peer for everything, at a bounded rate, and returns what it did not have. Some questions are under way
// at once: each waits for the peer's disk, the network, and this disk's sync, which takes long while others write.
func (g *group) fetchAll(ctx context.Context, peer string, lacks []lack) ([]lack, error) {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // of left and errs
		left []lack
		errs []error
		next time.Time
	)
	room := make(chan struct{}, fetchParallel)
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(errs) > 0
	}
	for len(lacks) > 0 && !failed() && pause(ctx, time.Until(next)) == nil {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		some, size := g.question(lacks)
		lacks = lacks[len(some):]
		next = time.Now().Add(time.Duration(float64(size) / float64(g.opts.BackfillBytesPerSecond) * float64(time.Second)))
		wg.Go(func() {
			kept, err := g.fetchSome(ctx, peer, some)
			mu.Lock()
			defer mu.Unlock()
			for i := range some {
				if _, ok := kept[some[i].index]; !ok {
					left = append(left, some[i])
				}
			}
			if err != nil {
				errs = append(errs, err)
			}
			<-room
		})
	}
	wg.Wait()
	left = append(left, lacks...)
	slices.SortFunc(left, func(a, b lack) int { return cmp.Compare(a.index, b.index) })
	return left, errors.Join(append(errs, ctx.Err())...)
}

// question is what is asked for at once, and its bytes.
func (g *group) question(lacks []lack) ([]lack, int64) {
	most := min(fetchBatch, g.opts.BackfillBytesPerSecond)
	n, size := 0, int64(0)
	for n < len(lacks) && n < fetchRecords && (n == 0 || size+lacks[n].bytes() <= most) {
		size += lacks[n].bytes()
		n++
	}
	return lacks[:n], size
}

// fetchSome asks one question and keeps what comes. It returns the indexes that are here now.
func (g *group) fetchSome(ctx context.Context, peer string, want []lack) (map[uint64]struct{}, error) {
	var list []journal.Kept
	_, err := g.transport.links.fetch(ctx, peer, g.id, want, func(_ *lack, k journal.Kept) error {
		list = append(list, k)
		return nil
	})
	if kerr := g.store.group.Keep(list); kerr != nil {
		return nil, errors.Join(err, kerr)
	}
	here, bytes := map[uint64]struct{}{}, 0
	g.fill.mu.Lock()
	for i := range list {
		here[list[i].Index] = struct{}{}
		delete(g.fill.damaged, list[i].Index)
		bytes += len(list[i].Data)
	}
	g.fill.mu.Unlock()
	g.fill.missing.Add(-int64(len(list)))
	g.fill.bytes.Add(-int64(bytes))
	g.metrics.fetched(len(list), bytes)
	return here, err
}

// lacks computes what the index names and the journal does not hold whole, ascending by index, and what the index does not
// name. In memory are a bit for each record, and what is lacking.
func (g *group) lacks() ([]lack, *coverage, error) {
	state := g.fsm.view()
	g.fill.mu.Lock()
	damaged := maps.Clone(g.fill.damaged)
	g.fill.mu.Unlock()
	here, alone, named := indexSet{}, len(g.others()) == 0, newCoverage()
	g.store.group.Held(func(h journal.Held) bool {
		if _, known := damaged[h.Index]; !known && !h.Damaged || h.InLog && (!known || !alone) {
			here.add(h.Index)
		}
		return true
	})
	var missing []need
	err := state.each(0, func(id ledger.ID, r run) error {
		named.visit(id, r)
		delete(damaged, r.index)
		if !here.has(r.index) {
			missing = append(missing, need{id, r})
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	named.end(state.machine)
	g.fill.mu.Lock()
	defer g.fill.mu.Unlock()
	for index := range damaged {
		if index <= state.applied {
			delete(g.fill.damaged, index) // no ledger needs it any more
		}
	}
	return lacksOf(missing), named, nil
}

// lacksOf gathers runs by their records.
func lacksOf(missing []need) []lack {
	sortNeeds(missing)
	var out []lack
	for at := 0; at < len(missing); {
		end := skipNeeds(missing, at)
		out = append(out, lack{index: missing[at].run.index, needs: missing[at:end:end]})
		at = end
	}
	return out
}

func skipNeeds(needs []need, at int) int {
	index := needs[at].run.index
	for at < len(needs) && needs[at].run.index == index {
		at++
	}
	return at
}

// sortNeeds sorts by the index of the record and the offset in it.
func sortNeeds(needs []need) {
	slices.SortFunc(needs, func(a, b need) int {
		return cmp.Or(cmp.Compare(a.run.index, b.run.index), cmp.Compare(a.run.offset, b.run.offset))
	})
}

// compactDamaged takes records that are damaged out of the log: only then can others be kept in their place. It is for
// those that this replica has applied, of which there is nothing to learn any more.
func (g *group) compactDamaged(ctx context.Context) error {
	g.fill.mu.Lock()
	highest := uint64(0)
	for i := range g.fill.damaged {
		highest = max(highest, i)
	}
	g.fill.mu.Unlock()
	if first := g.store.group.FirstIndex(); first == 0 || highest < first || highest > g.raft.AppliedIndex() {
		return nil
	}
	for range snapshotKept {
		if err := g.snapshotLeaving(ctx, g.store.group.LastIndex()-highest); err != nil {
			return err
		}
	}
	if len(g.others()) == 0 {
		return nil // nobody has what would take its place
	}
	return g.store.leave(highest)
}
