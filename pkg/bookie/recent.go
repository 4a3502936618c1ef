package bookie

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recent keeps the newest entries of a group's log in memory, up to a number of bytes. Each is asked for again at once
// after it was stored: by a leader once for each follower, by a follower when it applies it, and by readers at the tail.
// Without it every such question would copy the entry out of the journal's memory.
//
// It holds no copies either: a proposal's bytes, and those of a received message, belong to the log once they are stored
// and are never changed.
//
// INVARIANT: logs are contiguous, none is before the log's first index, and they end at its last, or there are none.
type recent struct {
	limit int

	mu    sync.Mutex
	logs  []raft.Log
	bytes int
}

// stored takes over what was just made durable.
func (r *recent) stored(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range logs {
		if n := len(r.logs); n > 0 && r.logs[n-1].Index+1 != l.Index {
			r.dropLocked(n)
		}
		r.logs = append(r.logs, *l)
		r.bytes += len(l.Data)
	}
	n, over := 0, r.bytes-r.limit
	for ; over > 0 && n < len(r.logs); n++ {
		over -= len(r.logs[n].Data)
	}
	r.dropLocked(n)
}

// dropLocked forgets the n oldest.
func (r *recent) dropLocked(n int) {
	for i := range r.logs[:n] {
		r.bytes -= len(r.logs[i].Data)
		r.logs[i] = raft.Log{}
	}
	r.logs = r.logs[n:]
}

// get returns an entry if it is here.
func (r *recent) get(index uint64, log *raft.Log) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.logs) == 0 || index < r.logs[0].Index || index-r.logs[0].Index >= uint64(len(r.logs)) {
		return false
	}
	*log = r.logs[index-r.logs[0].Index]
	return true
}

// compacted drops the entries up to and including an index.
func (r *recent) compacted(to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.logs) && r.logs[n].Index <= to {
		n++
	}
	r.dropLocked(n)
}

// forget drops everything: the log was cut.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked(len(r.logs))
}
