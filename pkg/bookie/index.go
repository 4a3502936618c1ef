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

// command is where the body is with the header of its command, which says whose it is.
func (r run) command() journal.Piece {
	return journal.Piece{Offset: r.offset - ledger.AppendHeaderLen, Length: r.length + ledger.AppendHeaderLen}
}

// clipped is the run without what lies after last. The body stays longer: readers count.
func (r run) clipped(last ledger.EntryID) run {
	if r.end() > last {
		r.count = uint32(max(last-r.first+1, 0))
	}
	return r
}

// index says where the entries of a group's ledgers are: for each ledger its runs, in order, without gaps.
//
//	layers  immutable, on the disk, each of a stretch of the log ── tail, in memory: of what no snapshot covers
//	├────────────────────────────────┼─────────────┼───────┼────┤▒▒▒▒▒▒▒│
//	oldest and largest                                          ▲       applied
//	                                                   newest snapshot
//
// It names the proposal by its index in the Raft log, not by its place in the journal: the journal keeps the places of
// the log anyway, and these eight bytes stay true when a segment is copied.
//
// What a layer says is true as far as the machine knows the ledger: entries after its last one were discarded when it was
// closed, and a ledger that the machine does not know was deleted. Should an id live a second time, its runs are in a
// newer layer, or in the tail, and begin at its first entry: the newer hides the older.
type index struct {
	layers []*layer // oldest first; the slice never changes in place
	tail   map[ledger.ID][]run
}

func newIndex() *index { return &index{tail: map[ledger.ID][]run{}} }

// update follows what the machine did.
func (x *index) update(id ledger.ID, change ledger.Change, r run) {
	switch {
	case change.Appended:
		r.first, r.count = change.First, uint32(change.Count)
		x.tail[id] = append(x.tail[id], r)
	case change.Truncated:
		x.truncate(id, change.Last)
	case change.Deleted:
		delete(x.tail, id)
	}
}

// truncate forgets what lies after last. It changes a copy of the runs: see clone.
func (x *index) truncate(id ledger.ID, last ledger.EntryID) {
	runs := x.tail[id]
	n := sort.Search(len(runs), func(i int) bool { return runs[i].first > last })
	if n == 0 {
		delete(x.tail, id)
		return
	}
	runs = slices.Clone(runs[:n])
	runs[n-1] = runs[n-1].clipped(last)
	x.tail[id] = runs
}

// clone returns a copy that shares the runs. What is appended later lies behind the end of the copy's slices, and
// nothing else ever changes a run in place.
func (x *index) clone() *index { return &index{layers: x.layers, tail: maps.Clone(x.tail)} }

// without returns the index when layers have taken over what the tail has up to a proposal.
func (x *index) without(upTo uint64, layers []*layer) *index {
	out := &index{layers: layers, tail: make(map[ledger.ID][]run, len(x.tail))}
	for id, runs := range x.tail {
		n := sort.Search(len(runs), func(i int) bool { return runs[i].index > upTo })
		if n < len(runs) {
			out.tail[id] = slices.Clone(runs[n:]) // the others are to be freed
		}
	}
	return out
}

// findTail returns the run of the tail that holds an entry.
func (x *index) findTail(id ledger.ID, entry ledger.EntryID) (run, bool) {
	runs := x.tail[id]
	n := sort.Search(len(runs), func(i int) bool { return runs[i].end() >= entry })
	if n == len(runs) || runs[n].first > entry {
		return run{}, false
	}
	return runs[n], true
}

// findLayer returns the run that holds an entry, from the newest layer that has one. It reads from the disk.
func findLayer(layers []*layer, id ledger.ID, entry ledger.EntryID) (run, bool, error) {
	for i := len(layers) - 1; i >= 0; i-- {
		if r, ok, err := layers[i].find(id, entry); ok || err != nil {
			return r, ok, err
		}
	}
	return run{}, false, nil
}

// runsOf counts the runs of the tail.
func (x *index) runsOf() uint64 {
	n := uint64(0)
	for _, runs := range x.tail {
		n += uint64(len(runs))
	}
	return n
}
