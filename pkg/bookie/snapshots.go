package bookie

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/hashicorp/raft"
)

// errDiverged is why a member restarts: see healLog.
var errDiverged = errors.New("the log disagrees with a snapshot that the leader sent; starting again mends it")

// lockedSnapshots keeps raft's snapshots goroutine, which reaps old ones, and its reader, which lists and opens them,
// apart.
type lockedSnapshots struct {
	raft.SnapshotStore
	log      raft.LogStore
	diverged func(error)
	mu       sync.Mutex
}

// List implements raft.SnapshotStore.
func (s *lockedSnapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.SnapshotStore.List()
}

// Open implements raft.SnapshotStore. Raft opens a snapshot when it has installed it, which is when a log that disagrees
// with it is noticed.
func (s *lockedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	meta, r, err := s.SnapshotStore.Open(id)
	if err == nil && disagrees(s.log, meta) {
		s.diverged(errDiverged)
	}
	return meta, r, err
}

// disagrees says whether the log has another entry at a snapshot's end than the snapshot.
func disagrees(log raft.LogStore, meta *raft.SnapshotMeta) bool {
	var at raft.Log
	return log.GetLog(meta.Index, &at) == nil && at.Term != meta.Term
}

// healLog deletes a log that disagrees with the newest snapshot.
//
// A member that was away with entries that nobody else has, and comes back when the leader has compacted its log beyond
// them, gets a snapshot. The library then keeps its own entry at the snapshot's end, refuses the leader's next append
// because the term there is not the leader's, and is sent the snapshot again, for ever. What is after an entry that a
// snapshot contradicts was never committed, and what is before it is in the snapshot; so all of the log may go. It can
// go only before raft reads where it ends: hence a restart.
func healLog(store raft.LogStore, snapshots raft.SnapshotStore, log *slog.Logger) error {
	metas, err := snapshots.List()
	if err != nil || len(metas) == 0 || !disagrees(store, metas[0]) {
		return err
	}
	first, err := store.FirstIndex()
	if err != nil {
		return err
	}
	last, err := store.LastIndex()
	if err != nil {
		return err
	}
	log.Warn("deleting metadata log entries that were never committed", "snapshot", metas[0].Index, "first", first, "last", last)
	if err := store.DeleteRange(first, last); err != nil {
		return fmt.Errorf("deleting [%d, %d]: %w", first, last, err)
	}
	return nil
}

// Create implements raft.SnapshotStore.
//
//nolint:revive // the library's signature
func (s *lockedSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sink, err := s.SnapshotStore.Create(v, index, term, c, ci, t)
	if err != nil {
		return nil, err
	}
	return &lockedSink{sink, s}, nil
}

// lockedSink reaps when it is closed.
type lockedSink struct {
	raft.SnapshotSink
	store *lockedSnapshots
}

// Close implements raft.SnapshotSink.
func (s *lockedSink) Close() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.SnapshotSink.Close()
}

// settle makes the log of a ledger group fit its snapshots, before raft reads either. It returns ErrDamaged when they
// cannot fit: then only a fresh snapshot of the leader helps.
//
//	snapshot        S                      S                    S                      S
//	log      first ──┼── last     ── last  ┊           ── other ┼── last               ┊  first ──
//	         fits                 removed: it was      removed: it was                 damaged
//	                              installed            installed, see healLog
//
// What was committed for certain, because the log agrees with an older snapshot there, stays kept in the journal.
func settle(store journalStore, snaps *snapshotStore) error {
	first, last := store.group.FirstIndex(), store.group.LastIndex()
	newest, ok := snaps.newest()
	for _, d := range snaps.damaged {
		if d.Index > max(newest.Index, last) {
			return fmt.Errorf("%w: its snapshot of index %d, and its log ends at %d", ErrDamaged, d.Index, last)
		}
	}
	switch {
	case last == 0:
		return nil
	case first > newest.Index+1:
		return fmt.Errorf("%w: its log begins at %d, its snapshot ends at %d", ErrDamaged, first, newest.Index)
	case ok && (last < newest.Index || disagrees(store, &newest)):
		return store.clear(snaps.agreed(store))
	}
	return nil
}
