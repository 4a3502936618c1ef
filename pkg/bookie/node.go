package bookie

import (
	"context"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
)

// node is one running raft.Raft with what it needs: the part that ledger groups and the metadata group have in common.
type node struct {
	id        ledger.GroupID
	raft      *raft.Raft
	transport *transport
	health    *health
	book      *addressBook
	log       *slog.Logger
	wait      time.Duration // deadline of barriers

	notify  chan bool
	stop    chan struct{}
	wg      sync.WaitGroup
	ready   atomic.Uint64 // term in which this replica leads and has applied everything before it; 0: it does not
	onReady func(leading bool)
	tuning  sync.Mutex // from reading raft's reloadable settings to writing them
}

// retune changes some of raft's settings. The library takes all of them at once, and others may be changing theirs.
func (n *node) retune(change func(*raft.ReloadableConfig)) error {
	n.tuning.Lock()
	defer n.tuning.Unlock()
	conf := n.raft.ReloadableConfig()
	change(&conf)
	return n.raft.ReloadConfig(conf)
}

// nodeOptions is what differs between groups.
type nodeOptions struct {
	id        ledger.GroupID
	timeout   time.Duration // heartbeat and election timeout
	fsm       raft.FSM
	store     store
	log       sizedLog // what is read for followers that lag; nil: they get what raft gives them
	lagging   *lagging // whom the log is kept for; nil: nobody
	snapshots raft.SnapshotStore
	every     uint64 // entries between snapshots, 0: none
	trailing  uint64 // entries that stay in the log behind a snapshot
	onReady   func(leading bool)
	silent    bool // it has no say in elections, see transport
}

// raftConfig makes the library's settings out of ours.
func raftConfig(self string, timeout time.Duration, o RaftOptions) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(self)
	c.HeartbeatTimeout, c.ElectionTimeout = timeout, timeout
	// The timeout may become that of a preferred replica later, and the lease must not be longer.
	c.LeaderLeaseTimeout = max(min(timeout, o.PreferredTimeout)*2/3, 5*time.Millisecond)
	// How often an idle leader tells its followers what is committed: what an idle group costs, and how long its
	// followers may be behind its leader in what they serve.
	c.CommitTimeout = min(100*time.Millisecond, timeout/4)
	c.MaxAppendEntries = o.MaxAppendEntries
	// A replica that is removed stops by the metadata's word, after it stopped serving; never by itself in between.
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	return c
}

// start runs raft over a store that was bootstrapped before. The caller made n.health and n.stop.
func (n *node) start(links *links, o RaftOptions, no nodeOptions) error {
	n.id, n.onReady = no.id, no.onReady
	n.transport = newTransport(no.id, links, n.health, o)
	n.transport.silent.Store(no.silent)
	if no.lagging != nil {
		n.transport.lagging = no.lagging
	}
	n.notify = make(chan bool, 8)
	c := raftConfig(links.self.bookieID, no.timeout, o)
	c.Logger = newRaftLogger(n.log)
	c.NotifyCh = n.notify
	c.SnapshotThreshold, c.SnapshotInterval = no.every, 30*time.Second
	c.TrailingLogs = no.trailing
	if no.every == 0 {
		c.SnapshotThreshold, c.SnapshotInterval = math.MaxUint64, 24*time.Hour
	}
	r, err := raft.NewRaft(c, no.fsm, no.store, no.store, no.snapshots, n.transport)
	if err != nil {
		return err
	}
	n.raft = r
	if no.log != nil {
		n.transport.ahead.Store(newAhead(no.log, o.MaxAppendEntries, r))
	}
	n.transport.progress = func() (term, applied uint64) { return r.CurrentTerm(), r.AppliedIndex() }
	n.wg.Go(n.follow)
	return nil
}

// follow takes every change of leadership off raft's channel, which blocks raft when it is full.
//
//	false ──true──▶ leading, not ready ──barrier applied──▶ ready(term)
//	  ▲                   │                                    │
//	  └───────false───────┴───────────────false────────────────┘
func (n *node) follow() {
	barrier := make(chan uint64, 1) // term of a barrier that was applied; 0: it failed
	leading, waiting := false, false
	for {
		select {
		case leading = <-n.notify:
			if !leading {
				n.setReady(0)
			}
		case term := <-barrier:
			waiting = false
			if leading && term != 0 && term == n.raft.CurrentTerm() {
				n.setReady(term)
			}
		case <-n.stop:
			n.setReady(0)
			return
		}
		if leading && !waiting && n.ready.Load() == 0 {
			waiting = true
			go func() { barrier <- n.barrier() }() // not waited for: raft may drop a future when it stops
		}
	}
}

// barrier returns the term in which everything up to now is applied.
func (n *node) barrier() uint64 {
	term := n.raft.CurrentTerm()
	if err := n.raft.Barrier(n.wait).Error(); err != nil {
		select { // not at once again
		case <-time.After(20 * time.Millisecond):
		case <-n.stop:
		}
		return 0
	}
	return term
}

func (n *node) setReady(term uint64) {
	if n.ready.Swap(term) == term {
		return
	}
	if term != 0 {
		n.log.Info("leading", "group", groupName(n.id), "term", term)
	} else {
		n.log.Info("not leading any more", "group", groupName(n.id))
	}
	if n.onReady != nil {
		n.onReady(term != 0)
	}
}

// groupName is what people call a group.
func groupName(id ledger.GroupID) string {
	if id == ledger.MetadataGroup {
		return "metadata"
	}
	return strconv.FormatUint(uint64(id), 10)
}

// leads says whether raft takes proposals here, ready or not.
func (n *node) leads() bool { return n.health.ok() && n.raft.State() == raft.Leader }

// isReady says whether this replica leads and has applied everything that was committed before it led.
func (n *node) isReady() bool { return n.leads() && n.ready.Load() == n.raft.CurrentTerm() }

// hint is the address of the leader, if another one is known.
func (n *node) hint() string {
	_, id := n.raft.LeaderWithID()
	if id == "" || string(id) == n.transport.self {
		return ""
	}
	addr, _ := n.book.address(string(id))
	return addr
}

// verify returns nil when a quorum has confirmed, after the call began, that this replica leads and is ready.
func (n *node) verify(ctx context.Context) error {
	if !n.isReady() {
		return ledger.ErrNotLeader
	}
	answered, err := n.await(ctx, func() raft.Future { return n.raft.VerifyLeader() })
	if answered && (err != nil || !n.isReady()) {
		return ledger.ErrNotLeader
	}
	return err
}

// await asks raft for something and waits for the answer, which may never come: raft drops futures when it stops. answered
// says whether the error is raft's.
func (n *node) await(ctx context.Context, ask func() raft.Future) (answered bool, err error) {
	done := make(chan error, 1)
	go func() { done <- ask().Error() }() // not waited for, see above
	timer := time.NewTimer(n.wait)
	defer timer.Stop()
	select {
	case err := <-done:
		return true, err
	case <-timer.C:
		return false, ledger.ErrUnknown
	case <-n.stop:
		return false, ledger.ErrShutdown
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// transfer asks another replica to take the lead: at shutdown only, because a transfer that is interrupted leaves the
// library refusing proposals for ever.
func (n *node) transfer(ctx context.Context) {
	if !n.leads() || len(n.voters()) < 2 {
		return
	}
	done := make(chan struct{})
	go func() {
		_ = n.raft.LeadershipTransfer().Error() // an election comes anyway
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (n *node) voters() []string {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	var ids []string
	for _, s := range f.Configuration().Servers {
		ids = append(ids, string(s.ID))
	}
	return ids
}

// close stops raft and waits for it, unless a store hangs longer than ctx allows.
func (n *node) close(ctx context.Context) {
	close(n.stop)
	done := make(chan struct{})
	go func() {
		_ = n.raft.Shutdown().Error() // is never an error
		close(done)
	}()
	n.transport.close()
	select {
	case <-done:
	case <-ctx.Done():
		n.log.Warn("a group did not stop in time", "group", groupName(n.id))
	}
	n.wg.Wait()
}
