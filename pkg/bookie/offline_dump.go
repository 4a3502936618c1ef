package bookie

import (
	"context"
	"errors"
	"fmt"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// DumpRange names entries of a ledger.
type DumpRange struct {
	Ledger ledger.ID
	First  ledger.EntryID
	Last   ledger.EntryID // beyond the last entry: up to that
}

// DumpedEntry is an entry as it lies in the journal.
type DumpedEntry struct {
	Ledger  ledger.ID
	Entry   ledger.EntryID
	Group   ledger.GroupID
	Index   uint64 // of the proposal in the group's log
	Segment uint64
	Offset  int64 // of the payload in the segment; 0: only parts of the record are left, and it was not looked for
	CRC     uint32
	Payload []byte // what is there, damaged or not
	Err     error  // of damage: ledger.ErrUnreadable; then CRC is what it should be
}

// Dump hands out the entries of a range, in order; damaged ones have an Err. Besides the errors of reading and of visit
// there are ledger.ErrNoLedger and ledger.ErrNoEntry, which are no proofs: see Offline. The ledger tells where the range
// was cut, and by Applied.Err whether damage in the log of its group hides later entries.
func (d *Offline) Dump(ctx context.Context, r DumpRange, visit func(*DumpedEntry) error) (*OfflineLedger, error) {
	l, err := d.find(ctx, r.Ledger)
	if err != nil {
		return nil, err
	}
	r.Last = min(r.Last, l.Last)
	if r.First < 0 || r.First > r.Last {
		return l, fmt.Errorf("%w: ledger %d ends at %d", ledger.ErrNoEntry, r.Ledger, l.Last)
	}
	for next := r.First; next <= r.Last; {
		at, err := l.Applied.fsm.find(r.Ledger, next)
		if err != nil {
			return l, fmt.Errorf("%w: %w", ledger.ErrUnreadable, err)
		}
		if !at.found {
			return l, fmt.Errorf("%w: entry %d is not in the index", ledger.ErrUnreadable, next)
		}
		if err := d.dumpRun(l, at.run, r, visit); err != nil {
			return l, err
		}
		next = at.run.end() + 1
	}
	return l, nil
}

// find looks for a ledger in all groups.
func (d *Offline) find(ctx context.Context, id ledger.ID) (*OfflineLedger, error) {
	all, groups, err := d.Ledgers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].ID == id {
			return &all[i], nil
		}
	}
	err = fmt.Errorf("%w: %d is in none of the %d groups", ledger.ErrNoLedger, id, len(groups))
	for _, a := range groups {
		if a.Err != nil {
			err = fmt.Errorf("%w; the log of group %d was applied up to %d only: %w", err, a.Group, a.Index, a.Err)
		}
	}
	return nil, err
}

// dumpRun hands out the entries of one append command that are in the range.
func (d *Offline) dumpRun(l *OfflineLedger, r run, want DumpRange, visit func(*DumpedEntry) error) error {
	group := l.Applied.Group
	body, err := d.journal.ReadPiece(uint32(group), r.index, r.piece(), nil)
	if isLost(err) {
		return d.dumpLost(l, r, want, visit, err)
	}
	if err != nil {
		return err
	}
	place, whole := d.place(uint32(group), r.index)
	for id := r.first; id <= min(r.end(), want.Last); id++ {
		e := DumpedEntry{Ledger: l.ID, Entry: id, Group: group, Index: r.index, Segment: place.Segment}
		var ok bool
		at := place.DataOffset() + int64(r.offset+r.length) - int64(len(body)) + ledger.EntryHeaderLen
		if e.Payload, e.CRC, body, ok = ledger.CutEntry(body); ok {
			if whole {
				e.Offset = at
			}
			if got := ledger.Checksum(e.Payload); got != e.CRC {
				e.Err = fmt.Errorf("%w: checksum %08x, expected %08x", ledger.ErrUnreadable, got, e.CRC)
			}
		} else {
			e.Err = fmt.Errorf("%w: broken frame", ledger.ErrUnreadable)
		}
		if id < want.First {
			continue
		}
		if err := visit(&e); err != nil {
			return err
		}
	}
	return nil
}

// isLost says whether a record is damaged, or not here: its replica would fetch it from others.
func isLost(err error) bool {
	return errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNotFound)
}

// dumpLost hands out the entries of a command whose bytes are not here.
func (d *Offline) dumpLost(l *OfflineLedger, r run, want DumpRange, visit func(*DumpedEntry) error, why error) error {
	for id := max(r.first, want.First); id <= min(r.end(), want.Last); id++ {
		e := DumpedEntry{Ledger: l.ID, Entry: id, Group: l.Applied.Group, Index: r.index, Err: fmt.Errorf("%w: %w", ledger.ErrUnreadable, why)}
		if err := visit(&e); err != nil {
			return err
		}
	}
	return nil
}

// place returns where a record is, and whether all of it is there: what is left of one has no header of a command.
func (d *Offline) place(group uint32, index uint64) (journal.Place, bool) {
	p, ok := d.journal.Place(group, index)
	_, err := d.journal.ReadPiece(group, index, journal.Piece{Length: 1}, nil)
	return p, ok && err == nil
}
