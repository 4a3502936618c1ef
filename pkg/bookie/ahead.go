package bookie

import (
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// aheadBytes bounds what a call to a follower that lags is filled up to.
	aheadBytes = 4 << 20
	// aheadEntries bounds the same by number.
	aheadEntries = 4096
)

// sizedLog is a log that knows how large an entry is before it is read.
type sizedLog interface {
	GetLog(index uint64, log *raft.Log) error
	size(index uint64) (int, bool) // false: there is no such entry
}

// ahead lets a follower that lags catch up by as many bytes in a call as are good for the network and the disk.
//
// Raft counts the entries of a call, not their bytes. Few of the largest proposals make a message, so MaxAppendEntries is
// small, and a follower that lags by thousands of small proposals would get a handful of them for each round trip and
// each fsync of its own. Here the transport adds the entries that follow, out of the same log. Raft looks at the entries
// of a request again after the call, to learn up to where the follower has the log, so it goes on behind the added ones.
// The library's pipeline is no way out: it is for followers that have caught up, and sends no more in a message.
//
// Only a call with all the entries that raft puts into one is filled up, and only when the call before it, to the same
// follower, succeeded up to where this one begins: a follower whose log differs is not sent megabytes in vain.
//
// A leader never removes entries of its log, but raft goes on with calls for a moment after it stepped down:
//
//	call in term 5                     main loop
//	reads entry 10
//	                                   term 6 begins: not the leader any more
//	                                   entry 11 is replaced by that of another leader
//	reads entry 11
//	still the leader of term 5? no: what was read ahead is dropped
type ahead struct {
	log   sizedLog
	full  int                    // entries of a call that raft has more for, probably
	leads func(term uint64) bool // whether the replica leads now, in this term

	mu   sync.Mutex
	upTo map[raft.ServerID]uint64 // the last entry of the last call with entries; none when that failed
}

func newAhead(log sizedLog, full int, r *raft.Raft) *ahead {
	return &ahead{
		log: log, full: full, upTo: map[raft.ServerID]uint64{},
		leads: func(term uint64) bool { return r.State() == raft.Leader && r.CurrentTerm() == term },
	}
}

// extend adds entries to a call. It may be called on a nil ahead.
func (a *ahead) extend(to raft.ServerID, args *raft.AppendEntriesRequest) {
	if a == nil || len(args.Entries) < a.full || !a.follows(to, args.PrevLogEntry) {
		return
	}
	entries, bytes := args.Entries, 0
	for _, e := range entries {
		bytes += len(e.Data)
	}
	for next := entries[len(entries)-1].Index + 1; len(entries) < aheadEntries; next++ {
		n, ok := a.log.size(next)
		if bytes += n; !ok || bytes > aheadBytes {
			break
		}
		e := &raft.Log{}
		if a.log.GetLog(next, e) != nil {
			break // raft meets it, too, when it comes so far
		}
		entries = append(entries, e)
	}
	if a.leads(args.Term) {
		args.Entries = entries
	}
}

func (a *ahead) follows(to raft.ServerID, prev uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.upTo[to]
	return ok && last == prev
}

// ended notes how a call ended. It may be called on a nil ahead.
func (a *ahead) ended(to raft.ServerID, args *raft.AppendEntriesRequest, success bool) {
	if a == nil || len(args.Entries) == 0 {
		return // heartbeats say nothing about the log
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !success {
		delete(a.upTo, to)
		return
	}
	a.upTo[to] = args.Entries[len(args.Entries)-1].Index
}
