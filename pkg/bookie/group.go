package bookie

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// group is a replica of a ledger group.
type group struct {
	node
	opts      *Options
	record    atomic.Pointer[metadata.GroupInfo] // as last seen
	store     journalStore
	snapshots *snapshotStore
	fsm       *fsm
	fill      *filler
	metrics   *metrics
	proposer  *proposer
	intake    *intake       // of the bookie
	rooms     *rooms        // of the other bookies
	stopped   chan struct{} // it serves no more

	rotten atomic.Bool // the index is damaged, which was said

	stall stall // watchdog's
	rate  rate
}

// bootstrapKey is set in a group's stable store once its first configuration is written. It is never written again: a
// group that has the key and no log has lost its log, and a fresh start would elect a leader that knows nothing.
const bootstrapKey = "geminga.bootstrapped"

// termKey is the library's key of the current term.
const termKey = "CurrentTerm"

// groupDeps is what groups share.
type groupDeps struct {
	opts    *Options
	journal *journal.Journal
	links   *links
	metrics *metrics
	log     *slog.Logger
	intake  *intake
	failed  func(ledger.GroupID, error)
}

func openGroup(d groupDeps, info metadata.GroupInfo) (*group, error) {
	jg := d.journal.Group(uint32(info.ID))
	if err := jg.Damaged(); err != nil {
		return nil, fmt.Errorf("%w: group %d: %w", ErrDamaged, info.ID, err)
	}
	snaps, err := openSnapshotStore(d.opts.FS, snapshotDir(d.opts.DataDir, info.ID), d.log)
	if err != nil {
		return nil, fmt.Errorf("snapshots of group %d: %w", info.ID, err)
	}
	g := &group{opts: d.opts, snapshots: snaps, metrics: d.metrics, intake: d.intake, rooms: &d.links.rooms, stopped: make(chan struct{})}
	self := d.links.self.bookieID
	g.record.Store(&info)
	g.health = newHealth(func(err error) { d.failed(info.ID, err) })
	g.book, g.log, g.wait, g.stop = d.links.book, d.log, d.opts.ApplyTimeout, make(chan struct{})
	g.fill = newFiller()
	g.fsm = newFSM(g.health)
	g.fsm.restored, g.fsm.whole, g.fsm.files = g.installed, g.fill.trusted.Load, snaps
	g.store = newJournalStore(jg, d.opts.RecentBytes, snaps, g.fsm.logged.Load)
	g.store.cleared = func() { g.installed(false) }
	if err := bootstrap(g.store, info.Founding(self)); err != nil {
		return nil, fmt.Errorf("group %d: %w", info.ID, err)
	}
	g.proposer = newProposer(d.opts, d.metrics)
	g.proposer.refuses = g.refuses
	err = g.start(d.links, d.opts.Raft, nodeOptions{
		id: info.ID, timeout: groupTimeout(self, info.Replicas, d.opts.Raft), fsm: g.fsm,
		store:     &guardedStore{store: g.store, health: g.health, stop: g.stop},
		log:       g.store,
		lagging:   g.store.lagging,
		snapshots: &lockedSnapshots{SnapshotStore: snaps, log: g.store, diverged: g.health.fail},
		onReady:   func(leading bool) { d.metrics.leading(leading) },
	})
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", info.ID, err)
	}
	g.proposer.start(g.raft.Apply, g.leads)
	return g, nil
}

// groupTimeout makes the first replica the likely winner of an election, so that leaders spread over the bookies
// without anybody moving leadership. A group of one has nobody to wait for.
func groupTimeout(self string, replicas []string, o RaftOptions) time.Duration {
	switch {
	case len(replicas) == 1:
		return min(o.PreferredTimeout, 100*time.Millisecond)
	case len(replicas) > 0 && replicas[0] == self:
		return o.PreferredTimeout
	}
	return o.FollowerTimeout
}

// followRecord takes a newer record over: another replica may be the preferred leader now.
func (g *group) followRecord(info metadata.GroupInfo) {
	g.record.Store(&info)
	timeout := groupTimeout(g.transport.self, info.Replicas, g.opts.Raft)
	if g.raft.ReloadableConfig().ElectionTimeout == timeout {
		return
	}
	if err := g.retune(func(c *raft.ReloadableConfig) { c.HeartbeatTimeout, c.ElectionTimeout = timeout, timeout }); err != nil {
		g.log.Error("cannot change the timeouts of a group", "group", g.id, "error", err)
	}
}

// bootstrap writes the first entry of a group's log, once in its life. All founders write the same entry, so it does
// not matter who is first. A replica that is not among them, or has left the group since, gets the log from the leader:
// founders that begin a second time could elect a leader that knows nothing.
//
// A crash in between leaves the entry without the key, or the key not yet durable: both steps are done again, and both
// write what is there already.
func bootstrap(s journalStore, founders []string) error {
	done, err := s.Get([]byte(bootstrapKey))
	if err != nil {
		return err
	}
	last, _ := s.LastIndex() // is never an error
	if len(done) > 0 {
		if _, ok := s.snapshots.newest(); last == 0 && !ok {
			return fmt.Errorf("%w: its log is gone, and it has no snapshot", ErrDamaged)
		}
		return settle(s, s.snapshots)
	}
	if len(founders) == 0 {
		if _, ok := s.snapshots.newest(); last == 0 && !ok {
			return nil
		}
		if err := s.Set([]byte(bootstrapKey), []byte{1}); err != nil { // from now on there is something to lose
			return err
		}
		return settle(s, s.snapshots)
	}
	if _, ok := s.snapshots.newest(); ok || last > 1 {
		return fmt.Errorf("%w: it has entries or a snapshot, but it was never bootstrapped", ErrDamaged)
	}
	if last == 0 {
		entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(configurationOf(founders))}
		if err := s.StoreLog(entry); err != nil {
			return err
		}
	}
	if err := s.Set([]byte(termKey), binary.BigEndian.AppendUint64(nil, 1)); err != nil {
		return err
	}
	return s.Set([]byte(bootstrapKey), []byte{1})
}

func configurationOf(ids []string) raft.Configuration {
	var c raft.Configuration
	for _, id := range ids {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	return c
}

// submit queues commands behind all that were submitted before.
func (g *group) submit(ctx context.Context, s *submission) error {
	if !g.health.ok() {
		return fmt.Errorf("%w: %w", ledger.ErrNoGroup, ErrDamaged)
	}
	if g.leads() && g.refuses() && grows([]*submission{s}) { // who does not lead says so, and who does
		return ledger.ErrReadOnly
	}
	return g.proposer.submit(ctx, s)
}

// stalled says for how long this replica has led with work and applied nothing.
func (g *group) stalled(now time.Time) time.Duration {
	return g.stall.look(now, g.leads() && g.proposer.pending() > 0, g.fsm.applies.Load())
}

// stall measures for how long there was work and no progress.
type stall struct {
	progress uint64
	looked   time.Time
	lasted   time.Duration
}

// maxLook is what counts between two looks: a process that was stopped did not stall in that time.
const maxLook = 2 * time.Second

func (s *stall) look(now time.Time, busy bool, progress uint64) time.Duration {
	if !busy || progress != s.progress || s.looked.IsZero() {
		s.lasted = 0
	} else {
		s.lasted += min(now.Sub(s.looked), maxLook)
	}
	s.progress, s.looked = progress, now
	return s.lasted
}

// refuse takes no more commands, and waits for the outcome of those that are under way.
func (g *group) refuse(ctx context.Context) {
	g.proposer.refuse()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for g.leads() && g.proposer.pending() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// close ends the replica.
func (g *group) close(ctx context.Context) {
	g.proposer.refuse()
	close(g.stopped)
	g.node.close(ctx)
	g.proposer.close()
}

// isDamage says whether an error concerns this replica only.
func isDamage(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, journal.ErrCorrupt)
}
