package bookie

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
)

// store is what raft needs of a disk.
type store interface {
	raft.LogStore
	raft.StableStore
}

// journalStore is a group's view of the journal as raft's log and stable store. A write returns when it is durable,
// or when the journal's deadline for writes is over: raft's main loop never hangs in it for ever.
//
// A record that leaves the log at its front stays in the journal as a kept one, because the ledgers are made of it: see
// reclaim. Committed says up to where the log is known to be committed.
type journalStore struct {
	group     *journal.Group
	recent    *recent
	snapshots *snapshotStore
	committed func() uint64
	cleared   func() // nil: nobody is to know that the log was emptied
	lagging   *lagging
}

func newJournalStore(g *journal.Group, recentBytes int, snaps *snapshotStore, committed func() uint64) journalStore {
	return journalStore{group: g, recent: &recent{limit: recentBytes}, snapshots: snaps, committed: committed, lagging: &lagging{}}
}

var _ store = journalStore{}

// FirstIndex implements raft.LogStore.
func (s journalStore) FirstIndex() (uint64, error) { return s.group.FirstIndex(), nil }

// LastIndex implements raft.LogStore.
func (s journalStore) LastIndex() (uint64, error) { return s.group.LastIndex(), nil }

// GetLog implements raft.LogStore. What is not there is raft.ErrLogNotFound itself, because raft compares with ==.
func (s journalStore) GetLog(index uint64, log *raft.Log) error {
	if s.recent.get(index, log) {
		return nil
	}
	var rec journal.Record
	if err := s.group.Get(index, &rec); err != nil {
		if errors.Is(err, journal.ErrNotFound) {
			return raft.ErrLogNotFound
		}
		return err
	}
	*log = raft.Log{Index: rec.Index, Term: rec.Term, Type: raft.LogType(rec.Type), Data: rec.Data, Extensions: rec.Extra}
	if rec.Stamp != 0 {
		log.AppendedAt = time.Unix(0, rec.Stamp)
	}
	return nil
}

// size implements sizedLog.
func (s journalStore) size(index uint64) (int, bool) {
	p, err := s.group.Place(index)
	return int(p.Length), err == nil
}

// body returns the framed entries of a run, whether its record is still in the log or kept. The error is
// journal.ErrNotFound when the bytes are not here, and journal.ErrCorrupt when they are damaged.
func (s journalStore) body(r run) ([]byte, error) {
	var rec raft.Log
	if s.recent.get(r.index, &rec) && uint64(r.offset)+uint64(r.length) <= uint64(len(rec.Data)) {
		return rec.Data[r.offset : r.offset+r.length], nil
	}
	return s.group.ReadPiece(r.index, r.piece(), nil)
}

// StoreLog implements raft.LogStore.
func (s journalStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (s journalStore) StoreLogs(logs []*raft.Log) error {
	recs := make([]journal.Record, len(logs))
	for i, l := range logs {
		recs[i] = journal.Record{Index: l.Index, Term: l.Term, Type: uint8(l.Type), Data: l.Data, Extra: l.Extensions}
		if !l.AppendedAt.IsZero() {
			recs[i].Stamp = l.AppendedAt.UnixNano()
		}
	}
	// Raft goes on behind a snapshot that it installed without a word about the log before it. The journal takes no gaps.
	if last := s.group.LastIndex(); last != 0 && recs[0].Index > last+1 {
		if err := s.clear(s.committed()); err != nil {
			return err
		}
	}
	if err := s.group.Append(recs); err != nil {
		return err
	}
	s.recent.stored(logs)
	return nil
}

// clear empties the log. Records up to committed stay kept, the others are gone.
func (s journalStore) clear(committed uint64) error {
	s.recent.forget()
	if err := s.group.TruncateSuffix(committed + 1); err != nil {
		return err
	}
	if s.cleared != nil {
		defer s.cleared() // what the log had may have passed for what the snapshot names
	}
	return s.group.CompactPrefix(committed)
}

// trailing is how many entries at the end of the log have no more than limit bytes.
func (s journalStore) trailing(limit int64) uint64 {
	first, last := s.group.FirstIndex(), s.group.LastIndex()
	n := uint64(0)
	for i := last; i >= first && i > 0; i-- {
		p, err := s.group.Place(i)
		if limit -= int64(p.Length); err != nil || limit < 0 {
			break
		}
		n++
	}
	return n
}

// DeleteRange implements raft.LogStore.
//
//	log          first ├──────────────┤ last
//	prefix   [min ·····├──── max]     ·          of what a snapshot covers; what the older one does not cover, or a replica
//	                                             lacks that follows from a snapshot on, stays
//	all      [min ·····├──────────────┤ max  ┊   behind which a snapshot was installed: nothing joins on to it any more
//	suffix             ·     [min ────┤··· max]  of what was never committed, so no snapshot covers it
//	middle             · [min ── max] ·          raft never asks for it
func (s journalStore) DeleteRange(lo, hi uint64) error {
	first, last := s.group.FirstIndex(), s.group.LastIndex()
	newest, _ := s.snapshots.newest()
	switch {
	case last == 0 || lo > last || hi < first || lo > hi:
		return nil
	case lo <= first && last < newest.Index:
		return s.clear(s.committed()) // at once: entries after its end could not be kept while it is there
	case lo <= first && hi <= newest.Index:
		hi = s.lagging.least(min(hi, s.snapshots.floor()))
		s.recent.compacted(hi) // first: nobody may get what is not there any more
		return s.group.CompactPrefix(hi)
	case hi >= last:
		s.recent.forget()
		return s.group.TruncateSuffix(max(lo, first))
	}
	return fmt.Errorf("cannot delete [%d, %d] from the middle of [%d, %d]", lo, hi, first, last)
}

// leave takes out of the log what the newest snapshot covers, up to an index, though the older one does not: raft takes no
// second snapshot while a group is idle.
func (s journalStore) leave(index uint64) error {
	newest, _ := s.snapshots.newest()
	if first := s.group.FirstIndex(); first == 0 || first > index {
		return nil
	} else if index > newest.Index {
		return fmt.Errorf("entry %d is damaged and cannot leave the log: the newest snapshot is of %d", index, newest.Index)
	}
	s.recent.compacted(index)
	return s.group.CompactPrefix(index)
}

// Set implements raft.StableStore.
func (s journalStore) Set(key, val []byte) error { return s.group.SetStable(key, val) }

// Get implements raft.StableStore: nothing for a key that was never set.
func (s journalStore) Get(key []byte) ([]byte, error) {
	v, err := s.group.GetStable(key)
	if errors.Is(err, journal.ErrNotFound) {
		return nil, nil
	}
	return v, err
}

// SetUint64 implements raft.StableStore.
func (s journalStore) SetUint64(key []byte, val uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, val))
}

// GetUint64 implements raft.StableStore: 0 for a key that was never set.
func (s journalStore) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil || len(v) == 0 {
		return 0, err
	}
	return decodeUint64(string(key), v)
}

func decodeUint64(key string, v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: stable value %q has %d bytes", ErrDamaged, key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// guardedStore stands between raft and a store. Raft panics, and takes the process with it, when it cannot persist its
// term or cannot read what it applies, and it goes on as a candidate after a failed write. Here the first such fault
// fails the replica (see health) before raft gets its answer; from then on nothing is written, nothing true is said,
// and nothing raft says gets out.
//
// A full disk is different: nothing was written, and it may pass. A refused append makes a leader step down; a term
// that cannot be kept waits until it can. So do entries that take the place of others, which are gone already: raft would
// believe that its log ends where it ended before, and take nothing more from any leader.
type guardedStore struct {
	store
	health *health
	stop   <-chan struct{} // the replica is closing
	cut    atomic.Uint64   // the first index of the last range that was deleted and not written again
}

// GetLog implements raft.LogStore. A damaged entry reads as one that does nothing; the machine of a failed replica
// applies nothing, so the gap is never seen.
func (s *guardedStore) GetLog(index uint64, log *raft.Log) error {
	err := s.store.GetLog(index, log)
	if err == nil || err == raft.ErrLogNotFound { //nolint:errorlint // the library compares so, too
		return err
	}
	s.health.fail(fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err))
	*log = raft.Log{Index: index, Type: raft.LogNoop}
	return nil
}

// StoreLog implements raft.LogStore.
func (s *guardedStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (s *guardedStore) StoreLogs(logs []*raft.Log) error {
	for {
		err := s.write(func() error { return s.store.StoreLogs(logs) })
		if err == nil {
			s.cut.Store(0)
		}
		if !errors.Is(err, journal.ErrNoSpace) || len(logs) == 0 || logs[0].Index != s.cut.Load() {
			return err
		}
		s.awaitSpace(err)
	}
}

// DeleteRange implements raft.LogStore.
func (s *guardedStore) DeleteRange(lo, hi uint64) error {
	err := s.write(func() error { return s.store.DeleteRange(lo, hi) })
	if err == nil {
		// The end of the log may be cut while the beginning is compacted, and only the former is written again.
		for was := s.cut.Load(); lo > was; was = s.cut.Load() {
			if s.cut.CompareAndSwap(was, lo) {
				break
			}
		}
	}
	return err
}

// Set implements raft.StableStore.
func (s *guardedStore) Set(key, val []byte) error {
	return s.keep(func() error { return s.store.Set(key, val) })
}

// SetUint64 implements raft.StableStore.
func (s *guardedStore) SetUint64(key []byte, val uint64) error {
	return s.keep(func() error { return s.store.SetUint64(key, val) })
}

func (s *guardedStore) write(f func() error) error {
	if err := s.health.err(); err != nil {
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	err := f()
	if err != nil && !errors.Is(err, journal.ErrNoSpace) {
		s.health.fail(fmt.Errorf("%w: %w", ErrStore, err))
	}
	return err
}

// keep persists a value that raft cannot go on without. After a failure it says nil: see health.
func (s *guardedStore) keep(f func() error) error {
	for s.health.ok() {
		err := s.write(f)
		if !errors.Is(err, journal.ErrNoSpace) {
			return nil
		}
		s.awaitSpace(err)
	}
	return nil
}

// awaitSpace is between two tries of what raft cannot go on without.
func (s *guardedStore) awaitSpace(err error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-s.health.failed:
	case <-s.stop:
		s.health.fail(fmt.Errorf("%w: %w", ErrStore, err)) // closing: it is not to speak any more
	}
}

// deadlineStore gives a store that may hang a deadline. After the first miss it takes no writes any more: the one that
// hangs may still land.
type deadlineStore struct {
	store
	timeout time.Duration
}

func (s deadlineStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

func (s deadlineStore) StoreLogs(logs []*raft.Log) error {
	return s.run(func() error { return s.store.StoreLogs(logs) })
}

func (s deadlineStore) DeleteRange(lo, hi uint64) error {
	return s.run(func() error { return s.store.DeleteRange(lo, hi) })
}

func (s deadlineStore) Set(key, val []byte) error {
	return s.run(func() error { return s.store.Set(key, val) })
}

func (s deadlineStore) SetUint64(key []byte, val uint64) error {
	return s.run(func() error { return s.store.SetUint64(key, val) })
}

// deadlineSteps is in how many steps a deadline is counted. A step counts as one however long it took, so that a
// process which was stopped does not take its own absence for a hung disk.
const deadlineSteps = 10

// run does not wait for a write that hangs: its goroutine ends with the write, or with the process.
func (s deadlineStore) run(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	step := time.NewTicker(s.timeout / deadlineSteps)
	defer step.Stop()
	for range deadlineSteps {
		select {
		case err := <-done:
			return err
		case <-step.C:
		}
	}
	return fmt.Errorf("a write did not return within %s", s.timeout)
}
