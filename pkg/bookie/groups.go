package bookie

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// groups holds the replicas that run here. They follow the keys below /groups/: what names this bookie is opened.
type groups struct {
	deps groupDeps
	self string
	fail func(error) // of the whole bookie

	opened  func(*group)                                                           // called for each replica that runs
	ask     func(ctx context.Context, id string) (*bookiepb.StatusResponse, error) // another bookie's status
	ctx     context.Context                                                        // of repairs
	confirm func(ledger.GroupID) error                                             // nil: the metadata says now that no replica is to be here

	mu     sync.RWMutex
	byID   map[ledger.GroupID]*group
	broken map[ledger.GroupID]error // stopped: under repair, or for good in this process
	synced bool                     // the keys have been seen once
	closed bool
	wg     sync.WaitGroup
}

func newGroups(d groupDeps, self string, fail func(error)) *groups {
	gs := &groups{self: self, fail: fail, byID: map[ledger.GroupID]*group{}, broken: map[ledger.GroupID]error{}}
	d.failed = gs.failed
	gs.deps = d
	return gs
}

func (gs *groups) get(id ledger.GroupID) *group {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	return gs.byID[id]
}

func (gs *groups) all() []*group {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	out := make([]*group, 0, len(gs.byID))
	for _, g := range gs.byID {
		out = append(out, g)
	}
	return out
}

// changed is called with all group records, by one goroutine.
func (gs *groups) changed(items map[string]metadata.Item) {
	for _, info := range decodeAll[metadata.GroupInfo](items, gs.deps.log) {
		switch {
		case info.ID == ledger.MetadataGroup:
		case slices.Contains(info.Members(), gs.self):
			gs.ensure(info)
		default:
			gs.leave(info.ID)
		}
	}
	gs.mu.Lock()
	gs.synced = true
	gs.mu.Unlock()
}

// ensure opens a replica unless it has failed, and tells one that runs what is new.
func (gs *groups) ensure(info metadata.GroupInfo) {
	gs.mu.RLock()
	running := gs.byID[info.ID]
	barred := gs.broken[info.ID] != nil || gs.closed
	gs.mu.RUnlock()
	if running != nil {
		running.followRecord(info)
		return
	}
	if barred {
		return
	}
	gs.open(info)
}

// open opens a replica. Nobody else does so meanwhile: there is one caller of ensure, and reopen bars it.
func (gs *groups) open(info metadata.GroupInfo) {
	g, err := openGroup(gs.deps, info)
	if err == nil && gs.differed(info.ID) {
		g.fill.doubt.all.Store(true)
	}
	if err != nil {
		gs.failed(info.ID, err)
		if isDamage(err) {
			gs.mend(info)
		}
		return
	}
	gs.mu.Lock()
	keep := !gs.closed && g.health.ok()
	if keep {
		gs.byID[info.ID] = g
		delete(gs.broken, info.ID)
	}
	gs.mu.Unlock()
	if !keep {
		g.close(context.Background())
		if isDamage(g.health.err()) {
			gs.mend(info)
		}
		return
	}
	gs.opened(g)
	gs.deps.metrics.opened(1)
	gs.deps.log.Info("replica of group is running", "group", info.ID, "replicas", info.Replicas)
}

// failed stops one replica, or, when the fault is not its own, the bookie. It is called on raft's goroutines.
func (gs *groups) failed(id ledger.GroupID, err error) {
	if errors.Is(err, errDiverged) {
		gs.reopen(id, err)
		return
	}
	if !isDamage(err) {
		gs.fail(err)
		return
	}
	gs.deps.log.Error("replica of group stopped; other replicas, if it has any, serve on", "group", id, "error", err)
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.broken[id] == nil {
		gs.broken[id] = err
	}
	g := gs.byID[id]
	delete(gs.byID, id)
	if g != nil && !gs.closed {
		gs.deps.metrics.opened(-1)
		gs.wg.Go(func() {
			g.close(context.Background())
			gs.mendNow(*g.record.Load())
		})
	}
}

// mend repairs a damaged replica that does not run.
func (gs *groups) mend(info metadata.GroupInfo) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if !gs.closed {
		gs.wg.Go(func() {
			if pause(gs.ctx, repairRetry) == nil { // it may be damaged again and again
				gs.mendNow(info)
			}
		})
	}
}

// mendNow repairs a replica and opens it again. What cannot be repaired stays in broken.
func (gs *groups) mendNow(info metadata.GroupInfo) {
	r := &repairing{deps: gs.deps, info: info, ask: gs.ask, differed: gs.differed(info.ID)}
	err := r.run(gs.ctx)
	gs.mu.RLock()
	wanted := gs.broken[info.ID] != nil && !gs.closed // else the group has left this bookie
	gs.mu.RUnlock()
	switch {
	case err == nil && wanted:
		gs.open(info)
	case err != nil && gs.ctx.Err() == nil:
		gs.deps.log.Error("a damaged replica cannot be repaired", "group", info.ID, "error", err)
		gs.mu.Lock()
		defer gs.mu.Unlock()
		if was := gs.broken[info.ID]; was != nil && errors.Is(err, errAlone) {
			gs.broken[info.ID] = fmt.Errorf("%w: %w", errAlone, was)
		}
	}
}

// differed says whether a replica was stopped because its state was not that of the majority.
func (gs *groups) differed(id ledger.GroupID) bool {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	return errors.Is(gs.broken[id], errDiffers)
}

// reopen closes a replica whose log disagrees with a snapshot that it installed, and opens it again: see settle.
func (gs *groups) reopen(id ledger.GroupID, err error) {
	gs.deps.log.Warn("replica of group starts again", "group", id, "reason", err)
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.byID[id]
	delete(gs.byID, id)
	if g == nil || gs.closed {
		return
	}
	gs.broken[id] = err
	gs.deps.metrics.opened(-1)
	gs.wg.Go(func() {
		g.close(context.Background())
		if err := g.store.clear(g.fsm.logged.Load()); err != nil {
			gs.fail(err)
			return
		}
		gs.open(*g.record.Load())
	})
}

// allLed says whether everything that should run here runs, knows its leader, and has what entries others could give it.
// Replicas that have yet to get their first
// entry from one do not count. There has to be at least one, unless none is wanted.
func (gs *groups) allLed(none bool) bool {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	if !gs.synced || len(gs.byID) == 0 && !none {
		return false
	}
	for _, g := range gs.byID {
		if g.raft.LastIndex() == 0 {
			continue
		}
		if !g.fill.serves() {
			return false
		}
		if _, id := g.raft.LeaderWithID(); id == "" || g.leads() && !g.isReady() {
			return false
		}
	}
	return true
}

// refuse stops taking commands in all groups and hands their leadership over.
func (gs *groups) refuse(ctx context.Context) {
	var wg sync.WaitGroup
	for _, g := range gs.all() {
		wg.Go(func() {
			g.refuse(ctx)
			g.transfer(ctx)
		})
	}
	wg.Wait()
}

// close stops all replicas.
func (gs *groups) close(ctx context.Context) {
	gs.mu.Lock()
	gs.closed = true
	gs.mu.Unlock()
	var wg sync.WaitGroup
	for _, g := range gs.all() {
		wg.Go(func() { g.close(ctx) })
	}
	wg.Wait()
	gs.wg.Wait()
}

// stalled returns a group that leads with work and has applied nothing for longer than limit.
func (gs *groups) stalled(now time.Time, limit time.Duration) (ledger.GroupID, bool) {
	for _, g := range gs.all() {
		if g.stalled(now) > limit {
			return g.id, true
		}
	}
	return 0, false
}

// measure looks how fast the groups grow.
func (gs *groups) measure(now time.Time) {
	for _, g := range gs.all() {
		g.rate.look(now, g.proposer.proposed.Load())
	}
}

// decodeAll decodes JSON items and leaves away, with a log line, what cannot be decoded.
func decodeAll[T any](items map[string]metadata.Item, log interface{ Error(string, ...any) }) []T {
	out := make([]T, 0, len(items))
	for key, it := range items {
		var v T
		if err := json.Unmarshal(it.Value, &v); err != nil {
			log.Error("cannot read a metadata record", "key", key, "error", err)
			continue
		}
		out = append(out, v)
	}
	return out
}

// errClosed is the reason when a bookie closes before what was asked for came true.
var errClosed = errors.New("bookie is closed")
