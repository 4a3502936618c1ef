package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

// Offline is the data directory of a bookie that does not run, opened for looking: nothing in it changes, and no
// process can serve it meanwhile. It is what the tools of bookied stand on. One goroutine uses it at a time.
//
//	OpenOffline ── lock, shared ── cluster.json
//	     │
//	     ├── journal.Reader: every byte once ──▶ damage of records ──┐
//	     │        └── each intact record ──▶ damage of entries ──────┤──▶ Verify
//	     ├── raft.db, snapshots of the metadata group ───────────────┘
//	     │
//	     └── newest snapshot and log of a group ──▶ fsm, as when a bookie starts ──▶ Ledgers, Dump
//
// Which entries of a group's log are committed is not on the disk: raft learns it from a majority. Ledgers and Dump
// apply the whole log, as if all of it were committed. What the newest entries brought may therefore be taken back, and
// by another leader's entries be replaced, when the bookie starts.
type Offline struct {
	opts    OfflineOptions
	cluster *clusterJSON
	lock    io.Closer
	journal *journal.Reader
	meta    *offlineMeta // nil when not a member of the metadata group
	entries entryCheck
	applied map[ledger.GroupID]*Applied
}

// OfflineOptions say where the data is.
type OfflineOptions struct {
	DataDir     string // made by Init
	JournalDir  string // default DataDir/journal
	MetadataDir string // default DataDir/metadata, always on the real disk
	FS          vfs.FS // of cluster.json and the journal; default the real disk
}

// OfflineGroup describes a replica of a group.
type OfflineGroup struct {
	Group      ledger.GroupID `json:"group"`
	Kind       string         `json:"kind"`  // ledgers or metadata
	First      uint64         `json:"first"` // index of the first entry of the log, 0 when it is empty
	Last       uint64         `json:"last"`
	Term       uint64         `json:"term"`       // that the replica has voted in or heard of
	LastTerm   uint64         `json:"lastTerm"`   // of the last entry; 0 when it cannot be read
	Bytes      int64          `json:"bytes"`      // of the log's records
	Unreadable int            `json:"unreadable"` // entries of the log
	Damage     string         `json:"damage"`     // why the replica would not run, empty when it is whole
}

// OpenOffline opens the data directory of a bookie that does not run, and reads all of its journal. The error is about
// what could not be read, a bookie that runs included; damage is what Verify returns.
func OpenOffline(ctx context.Context, o OfflineOptions) (*Offline, error) {
	if o.FS == nil {
		o.FS = vfs.Disk{}
	}
	o.FS = vfs.NewReadOnly(o.FS)
	setDefault(&o.JournalDir, filepath.Join(o.DataDir, "journal"))
	setDefault(&o.MetadataDir, filepath.Join(o.DataDir, "metadata"))
	d := &Offline{opts: o, applied: map[ledger.GroupID]*Applied{}}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Offline) open(ctx context.Context) (err error) {
	o := &d.opts
	if d.cluster, err = readCluster(o.FS, o.DataDir); err != nil {
		return err
	}
	if d.lock, err = o.FS.Lock(filepath.Join(o.DataDir, lockFile)); err != nil {
		return inUse(o.DataDir, err)
	}
	d.journal, err = journal.OpenReader(ctx, journal.ReadOptions{Dir: o.JournalDir, FS: o.FS, Visit: d.entries.visit, VisitKept: d.entries.visitKept})
	if isNotExist(err) {
		return fmt.Errorf("no journal in %s: the bookie never ran, or its journal is elsewhere: %w", o.JournalDir, err)
	}
	if err != nil {
		return inUse(o.JournalDir, err)
	}
	held, err := holdsMetadata(o.FS, o.DataDir, d.cluster)
	if err == nil && held {
		d.meta, err = openOfflineMeta(o.MetadataDir)
	}
	return err
}

func inUse(dir string, err error) error {
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("%s is in use by another process; stop the bookie first: %w", dir, err)
	}
	return fmt.Errorf("cannot read %s: %w", dir, err)
}

// Close lets go of the directory.
func (d *Offline) Close() error {
	var errs []error
	if d.meta != nil {
		errs = append(errs, d.meta.close())
	}
	if d.journal != nil {
		errs = append(errs, d.journal.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}

// Segments describes the files of the journal.
func (d *Offline) Segments() []journal.SegmentInfo { return d.journal.Segments() }

// Groups describes the replicas, the metadata group's first.
func (d *Offline) Groups() []OfflineGroup {
	var out []OfflineGroup
	if d.meta != nil {
		out = append(out, d.meta.group())
	}
	for _, g := range d.journal.Groups() {
		info := OfflineGroup{
			Group: ledger.GroupID(g.ID), Kind: "ledgers", First: g.First, Last: g.Last, LastTerm: g.LastTerm, Bytes: g.Bytes,
			Unreadable: g.Unreadable, Damage: text(g.Damage),
		}
		term, err := uint64Value(d.journal.GetStable(g.ID, []byte(termKey)))
		if info.Term = term; err != nil && info.Damage == "" {
			info.Damage = fmt.Sprintf("its term: %v", err)
		}
		out = append(out, info)
	}
	return out
}

// uint64Value decodes a stable value as journalStore.GetUint64 does.
func uint64Value(b []byte, err error) (uint64, error) {
	if errors.Is(err, journal.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return decodeUint64(termKey, b)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Applied is a group's log applied to an empty machine, as if all of it were committed.
type Applied struct {
	Group ledger.GroupID
	Index uint64 // of the last entry that was applied
	Err   error  // why not all of the log was applied; nil: all was

	fsm *fsm
}

// apply restores the newest snapshot of a group and replays its log behind it. It stops at the first entry that cannot be
// read: what follows depends on it.
func (d *Offline) apply(ctx context.Context, g journal.GroupInfo) (*Applied, error) {
	id := ledger.GroupID(g.ID)
	if a := d.applied[id]; a != nil {
		return a, nil
	}
	a := &Applied{Group: id, Err: g.Damage, fsm: newFSM(newHealth(nil))}
	if err := d.restore(a); err != nil {
		return nil, err
	}
	if g.First > a.Index+1 {
		a.Err = errors.Join(fmt.Errorf("the log begins at entry %d: what was before is not here", g.First), g.Damage)
	}
	for i := max(g.First, a.Index+1); i <= g.Last && g.First > 0; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var rec journal.Record
		err := d.journal.Get(g.ID, i, &rec)
		if errors.Is(err, journal.ErrCorrupt) {
			a.Err = err
			break
		}
		if err != nil {
			return nil, err
		}
		a.fsm.Apply(&raft.Log{Index: rec.Index, Term: rec.Term, Type: raft.LogType(rec.Type), Data: rec.Data})
		a.Index = i
	}
	d.applied[id] = a
	return a, nil
}

// restore begins with the newest snapshot that is whole, if there is one.
func (d *Offline) restore(a *Applied) error {
	snaps, err := d.snapshots(a.Group)
	if err != nil {
		return err
	}
	newest, ok := snaps.newest()
	if !ok {
		return nil
	}
	_, r, err := snaps.Open(newest.ID)
	if err != nil {
		return err
	}
	a.Index = newest.Index
	return a.fsm.Restore(r)
}

// snapshots reads the snapshots of a group; there need not be any.
func (d *Offline) snapshots(id ledger.GroupID) (*snapshotStore, error) {
	s := &snapshotStore{fs: d.opts.FS, dir: snapshotDir(d.opts.DataDir, id), log: slog.New(slog.DiscardHandler)}
	if err := s.load(false); err != nil && !isNotExist(err) {
		return nil, fmt.Errorf("snapshots of group %d: %w", id, err)
	}
	return s, nil
}

// OfflineLedger is a ledger as the log of its group makes it.
type OfflineLedger struct {
	ID ledger.ID
	ledger.State
	Applied *Applied // how far the log of its group could be applied
}

// Ledgers returns the ledgers of all groups, by group and id. A group whose log could not be applied to the end may have
// more, and these may have changed since.
func (d *Offline) Ledgers(ctx context.Context) ([]OfflineLedger, []*Applied, error) {
	var out []OfflineLedger
	var groups []*Applied
	for _, g := range d.journal.Groups() {
		a, err := d.apply(ctx, g)
		if err != nil {
			return nil, nil, err
		}
		groups = append(groups, a)
		for id, st := range a.fsm.machine.Ledgers() {
			out = append(out, OfflineLedger{ID: id, State: st, Applied: a})
		}
	}
	return out, groups, nil
}
