package bookie

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// metaGroup is a replica of the metadata group. Its log and stable store are in bbolt: small, rare, long-lived
// records. It has a file of its own, on the real disk, because bbolt does its own I/O.
type metaGroup struct {
	node
	fsm      *metaFSM
	bolt     metaLog
	opts     *Options
	reserve  *reserve
	verifier *verifier
	joining  atomic.Bool // it has no say in elections yet, see seat
}

// metaDeps is what a replica of the metadata group is opened with.
type metaDeps struct {
	opts    *Options
	links   *links
	spare   *reserve
	joining bool // it may be empty, and has no say in elections
	onReady func(leading bool)
	failed  func(error)
}

const (
	boltFile      = "raft.db"
	raftSnapshots = "snapshots" // directory, named by the library
	keepSnapshots = 2
	// boltDeadline is how long a write may take: then the process must end, and another member leads.
	boltDeadline = 5 * time.Second
	// boltLockWait is how long to wait for the file's lock, which another process may be giving up just now.
	boltLockWait = time.Second
	// neverStand is the election timeout of a replica that has no say.
	neverStand = 24 * time.Hour
)

// openBolt opens the log. NoFreelistSync and the map freelist keep a commit small after a burst has grown the file;
// NoSync is never set, or a member would forget what it acknowledged.
func openBolt(dir string) (metaLog, error) {
	options := *bbolt.DefaultOptions
	options.Timeout = boltLockWait
	options.NoFreelistSync = true
	options.FreelistType = bbolt.FreelistMapType
	return openMetaLog(dir, &options)
}

// bootstrapMetadata makes the first state of a member. It is called by Init only.
func bootstrapMetadata(dir string, c *clusterJSON) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s, err := openBolt(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ids := make([]string, len(c.Metadata))
	for i, m := range c.Metadata {
		ids[i] = m.ID
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(c.BookieID)
	_, t := raft.NewInmemTransport(raft.ServerAddress(c.BookieID)) // only asked to encode addresses
	return raft.BootstrapCluster(conf, s, s, raft.NewInmemSnapshotStore(), t, configurationOf(ids))
}

// openMetaGroup opens a member's replica.
func openMetaGroup(d metaDeps) (_ *metaGroup, err error) {
	o, links, spare, log := d.opts, d.links, d.spare, d.links.log
	bolt, err := openBolt(o.MetadataDir)
	if foundNoSpace(err) && spare.release() {
		bolt, err = openBolt(o.MetadataDir)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, bolt.Close())
		}
	}()
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(o.MetadataDir, keepSnapshots, newRaftLogger(log))
	if err != nil {
		return nil, fmt.Errorf("metadata snapshots: %w", err)
	}
	if err := mayOpen(bolt, snapshots, d.joining); err != nil {
		return nil, fmt.Errorf("in %s: %w", o.MetadataDir, err)
	}
	if err := healLog(bolt, snapshots, log); err != nil {
		return nil, fmt.Errorf("metadata group: %w", err)
	}
	g := &metaGroup{bolt: bolt, opts: o, reserve: spare}
	g.joining.Store(d.joining)
	g.health = newHealth(d.failed)
	g.book, g.log, g.wait, g.stop = links.book, log, o.ApplyTimeout, make(chan struct{})
	g.fsm = newMetaFSM(g.health, o.WatchBuffer)
	g.verifier = newVerifier(g.node.verify)
	timeout := g.timeout()
	err = g.start(links, o.Raft, nodeOptions{
		id: ledger.MetadataGroup, timeout: timeout, fsm: g.fsm,
		store:     &guardedStore{store: deadlineStore{reservedStore{bolt, spare}, boltDeadline}, health: g.health, stop: g.stop},
		snapshots: &lockedSnapshots{SnapshotStore: snapshots, log: bolt, diverged: g.health.fail},
		every:     o.Raft.SnapshotEvery, trailing: o.Raft.TrailingLogs,
		onReady: func(leading bool) {
			if !leading {
				g.fsm.cut() // the watches here would miss what the next leader commits
			}
			d.onReady(leading)
		},
		silent: d.joining,
	})
	if err != nil {
		return nil, fmt.Errorf("metadata group: %w", err)
	}
	return g, nil
}

// mayOpen refuses a replica that is empty and must not be: it has forgotten what it voted for and acknowledged.
func mayOpen(bolt raft.LogStore, snapshots raft.SnapshotStore, joining bool) error {
	last, err := bolt.LastIndex()
	if err != nil || last > 0 || joining {
		return err
	}
	if all, err := snapshots.List(); err != nil || len(all) > 0 {
		return err
	}
	return fmt.Errorf("%w: the metadata log is gone", ErrDamaged)
}

// timeout is the one for elections.
func (g *metaGroup) timeout() time.Duration {
	switch {
	case g.joining.Load():
		return neverStand
	case members(g.bolt) == 1:
		return min(g.opts.Raft.MetadataTimeout, 100*time.Millisecond) // nobody to wait for
	}
	return g.opts.Raft.MetadataTimeout
}

// joined gives the replica its say in elections.
func (g *metaGroup) joined() {
	g.joining.Store(false)
	g.transport.silent.Store(false)
	if err := g.retune(func(c *raft.ReloadableConfig) { c.HeartbeatTimeout, c.ElectionTimeout = g.timeout(), g.timeout() }); err != nil {
		g.log.Error("cannot change the timeouts of the metadata group", "error", err)
	}
}

// record returns the group's own record as applied here, nil while there is none.
func (g *metaGroup) record() *metadata.GroupInfo {
	it, _ := g.fsm.get(metadata.GroupKey(ledger.MetadataGroup))
	info, err := groupRecord(it)
	if err != nil {
		return nil
	}
	return &info
}

// members counts the voters of the configuration that the group began with, 0 when that is compacted away.
func members(s raft.LogStore) int {
	var first raft.Log
	if s.GetLog(1, &first) != nil || first.Type != raft.LogConfiguration {
		return 0
	}
	return len(raft.DecodeConfiguration(first.Data).Servers)
}

// commit proposes a transaction. The error is ErrNotLeader when nothing was done, ErrUnknown when it may be.
func (g *metaGroup) commit(ctx context.Context, txn *metadata.Txn) (metadata.Outcome, error) {
	if err := txn.Validate(); err != nil {
		return metadata.Outcome{}, err
	}
	b := txn.Encode()
	if len(b) > g.opts.MaxCommandBytes {
		return metadata.Outcome{}, fmt.Errorf("%w: %d bytes, at most %d", metadata.ErrTooLarge, len(b), g.opts.MaxCommandBytes)
	}
	if !g.isReady() {
		return metadata.Outcome{}, ledger.ErrNotLeader
	}
	if g.reserve.exhausted() {
		return metadata.Outcome{}, fmt.Errorf("%w: the disk of the metadata is full", ledger.ErrOverloaded)
	}
	type answer struct {
		out metadata.Outcome
		ok  bool
		err error
	}
	done := make(chan answer, 1)
	go func() { // not waited for: raft may drop a future when it stops
		f := g.raft.Apply(b, g.wait)
		err := f.Error()
		out, ok := f.Response().(metadata.Outcome)
		done <- answer{out, ok, err}
	}()
	timer := time.NewTimer(g.wait)
	defer timer.Stop()
	select {
	case a := <-done:
		if err := outcome(a.err); err != nil {
			return metadata.Outcome{}, err
		}
		if !a.ok {
			return metadata.Outcome{}, ledger.ErrUnknown
		}
		return a.out, nil
	case <-timer.C:
	case <-g.stop:
	case <-ctx.Done():
	}
	return metadata.Outcome{}, ledger.ErrUnknown
}

func (g *metaGroup) close(ctx context.Context) error {
	g.fsm.cut()
	g.node.close(ctx)
	g.verifier.close()
	return g.bolt.Close()
}
