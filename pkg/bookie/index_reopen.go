package bookie

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
)

// fromJournal mends a replica whose newest snapshot names layers that cannot be read: see rebuilding. False: something else
// is wrong, or what is lacking may be had from another replica.
func (r *repairing) fromJournal(ctx context.Context, alone bool) (bool, error) {
	snaps, err := openSnapshotStore(r.deps.opts.FS, snapshotDir(r.deps.opts.DataDir, r.info.ID), r.deps.log)
	if err != nil || len(snaps.damaged) == 0 {
		return false, err
	}
	jg := r.deps.journal.Group(uint32(r.info.ID))
	newest, _ := snaps.newest()
	for i := range snaps.damaged {
		m := snaps.damaged[i]
		if m.Index < newest.Index {
			break
		}
		state, from, err := snaps.salvage(&m)
		if errors.Is(err, ErrDamaged) {
			continue // the snapshot itself is damaged
		}
		if err != nil {
			return false, err
		}
		s := newJournalStore(jg, 1, snaps, func() uint64 { return 0 })
		lost, err := (&rebuilding{group: jg, state: state, from: from, body: s.body}).run(ctx)
		if err != nil || lost > 0 && !alone {
			return false, err
		}
		state.whole = state.whole && lost == 0
		sink, err := snaps.Create(m.Version, m.Index, m.Term, m.Configuration, m.ConfigurationIndex, nil)
		if err == nil {
			err = state.Persist(sink)
		}
		if err == nil {
			r.deps.metrics.repaired()
			r.deps.log.Info("replica of group begins again with an index made from the journal", "group", r.info.ID, "index", m.Index, "lost", lost)
		}
		return err == nil, err
	}
	return false, nil
}

// salvage reads a snapshot of which layers cannot be opened, with what is left of them, and says which was the first.
func (s *snapshotStore) salvage(m *raft.SnapshotMeta) (_ *fsmState, from int, err error) {
	f, err := s.fs.Open(filepath.Join(s.dir, m.ID))
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	at, err := readFileMeta(f, m)
	if err == nil {
		err = checkState(at, at.Size())
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	h, err := readStateHead(at, at.Size())
	if err == nil && (len(h.layers) == 0 || h.isInline()) {
		err = badState("its layers are in it")
	}
	if err != nil {
		return nil, 0, err
	}
	machine := make([]byte, h.machine)
	if _, err := at.ReadAt(machine, h.length); err != nil {
		return nil, 0, err
	}
	state := &fsmState{
		applied: h.applied, whole: h.flags&stateWhole != 0, machine: ledger.NewMachine(), index: newIndex(),
		files: s, taken: func(*fsmState, []*layer) {},
	}
	if err := state.machine.Restore(machine); err != nil {
		return nil, 0, brokenState(err)
	}
	from = len(h.layers)
	for i, lh := range h.layers {
		l, whole, err := s.salvageLayer(lh)
		if err != nil {
			return nil, 0, err
		}
		if state.index.layers = append(state.index.layers, l); !whole {
			from = min(from, i)
		}
	}
	if from == len(h.layers) {
		return nil, 0, badState("its layers are whole")
	}
	return state, from, nil
}

// salvageLayer opens a layer, or makes one of what is left of it.
func (s *snapshotStore) salvageLayer(h layerHead) (l *layer, whole bool, err error) {
	l, err = s.openLayer(h)
	switch {
	case err == nil && l.verify() == nil:
		return l, true, nil
	case err == nil:
		l, err = l.salvaged()
		return l, false, err
	case !errors.Is(err, ErrDamaged):
		return nil, false, err
	}
	f, err := s.fs.Open(filepath.Join(s.dir, h.name))
	if isNotExist(err) {
		l, err = layerOf(func(func(ledger.ID, run) error) error { return nil })
		return l, false, err
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, false, err
	}
	l, err = salvageFile(f, size)
	return l, false, err
}
