package bookie

import (
	"context"
	"errors"
	"hash/crc64"
	"slices"

	"geminga/pkg/ledger"
)

// errPassed: the state as of an index cannot be had any more.
var errPassed = errors.New("the index is passed")

// moment is somebody who waits for the state as of an index of the log.
type moment struct {
	index uint64
	got   chan *fsmState // holds one; nil: passed
}

// at returns a copy of the state after the commands up to an index of the log and before the next one: what any replica has
// there. It waits until ctx ends for an index that is still to come. errPassed says that it is too late.
func (f *fsm) at(ctx context.Context, index uint64) (*fsmState, error) {
	m := moment{index: index, got: make(chan *fsmState, 1)}
	f.mu.Lock()
	f.moments = append(f.moments, m)
	f.reachedLocked(f.applied.Load())
	f.mu.Unlock()
	select {
	case s := <-m.got:
		if s == nil {
			return nil, errPassed
		}
		return s, nil
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		f.moments = slices.DeleteFunc(f.moments, func(o moment) bool { return o.got == m.got })
		return nil, ctx.Err()
	}
}

// reachedLocked serves those who wait for what has been applied now.
func (f *fsm) reachedLocked(applied uint64) {
	if len(f.moments) > 0 {
		f.serveLocked(func(index uint64) bool { return index == applied }, func(index uint64) bool { return index < applied })
	}
}

// beforeLocked serves those whose moment ends with the next command.
func (f *fsm) beforeLocked(next uint64) {
	if len(f.moments) > 0 {
		f.serveLocked(func(index uint64) bool { return index < next }, func(uint64) bool { return false })
	}
}

func (f *fsm) serveLocked(now, late func(index uint64) bool) {
	var s *fsmState
	f.moments = slices.DeleteFunc(f.moments, func(m moment) bool {
		switch {
		case late(m.index):
			m.got <- nil
		case now(m.index):
			if s == nil {
				s = f.stateLocked()
			}
			m.got <- s
		default:
			return false
		}
		return true
	})
}

// ledgerSum is a digest of what a machine knows of one ledger.
type ledgerSum struct {
	id  ledger.ID
	sum uint64
}

// sums returns the digests of all ledgers, by id, and one of all of them. They are made from the state itself, not kept
// beside it: so what has changed without a command shows. Where the entries are is not in it: an index that is wrong finds
// other entries than the running checksum is of, which verifySums sees.
func (s *fsmState) sums() (all []ledgerSum, digest uint64) {
	table := crc64.MakeTable(crc64.ECMA)
	all = make([]ledgerSum, 0, s.machine.Len())
	var b []byte
	for id, st := range s.machine.Ledgers() {
		b = st.AppendTo(b[:0], id)
		all = append(all, ledgerSum{id, crc64.Checksum(b, table)})
		digest = crc64.Update(digest, table, b)
	}
	return all, digest
}

// differing names the ledgers that are not the same on two replicas. Both lists ascend.
func differing(a, b []ledgerSum) (out []ledger.ID) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].id < b[0].id:
			out, a = append(out, a[0].id), a[1:]
		case len(a) == 0 || b[0].id < a[0].id:
			out, b = append(out, b[0].id), b[1:]
		default:
			if a[0].sum != b[0].sum {
				out = append(out, a[0].id)
			}
			a, b = a[1:], b[1:]
		}
	}
	return out
}
