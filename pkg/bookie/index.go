package bookie

import (
	"maps"
	"slices"
	"sort"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// run is one committed append: where its entries are. There is one for each append command, however many entries it
// carried, because entries of a command lie together.
type run struct {
	first  ledger.EntryID
	count  uint32
	offset uint32 // of the body in the proposal
	length uint32 // of the body
	index  uint64 // of the proposal in the group's log
}

func (r run) end() ledger.EntryID { return r.first + ledger.EntryID(r.count) - 1 }

// piece is where the body is in its proposal.
func (r run) piece() journal.Piece { return journal.Piece{Offset: r.offset, Length: r.length} }

// index says where the entries of a group's ledgers are: for each ledger its runs, in order, without gaps.
//
// It names the proposal by its index in the Raft log, not by its place in the journal: the journal keeps the places of
// the log anyway, and these eight bytes stay true when a segment is copied.
type index struct {
	ledgers map[ledger.ID][]run
}

func newIndex() *index { return &index{ledgers: map[ledger.ID][]run{}} }

// update follows what the machine did.
func (x *index) update(id ledger.ID, change ledger.Change, r run) {
	switch {
	case change.Appended:
		r.first, r.count = change.First, uint32(change.Count)
		x.ledgers[id] = append(x.ledgers[id], r)
	case change.Truncated:
		x.truncate(id, change.Last)
	case change.Deleted:
		delete(x.ledgers, id)
	}
}

// truncate forgets what lies after last. It changes a copy of the runs: see clone.
func (x *index) truncate(id ledger.ID, last ledger.EntryID) {
	runs := x.ledgers[id]
	n := sort.Search(len(runs), func(i int) bool { return runs[i].first > last })
	if n == 0 {
		delete(x.ledgers, id)
		return
	}
	runs = slices.Clone(runs[:n])
	if runs[n-1].end() > last {
		runs[n-1].count = uint32(last - runs[n-1].first + 1) // the body stays longer: readers count
	}
	x.ledgers[id] = runs
}

// clone returns a copy that shares the runs. What is appended later lies behind the end of the copy's slices, and
// nothing else ever changes a run in place.
func (x *index) clone() *index { return &index{ledgers: maps.Clone(x.ledgers)} }

// find returns the run that holds an entry.
func (x *index) find(id ledger.ID, entry ledger.EntryID) (run, bool) {
	runs := x.ledgers[id]
	n := sort.Search(len(runs), func(i int) bool { return runs[i].end() >= entry })
	if n == len(runs) || runs[n].first > entry {
		return run{}, false
	}
	return runs[n], true
}
