package bookie

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// laggingPatience is how long a replica that was sent a snapshot may take for its next step.
const laggingPatience = time.Minute

// lagging remembers which replicas are being sent a snapshot, or have got one and follow its leader's log from there on. The
// log is not compacted beyond where they are: under load it would be before a large snapshot is installed, and they would
// be sent the next one, again and again, for as long as the load lasts. It costs memory for the records' places only: what
// leaves the log stays in the journal anyway.
type lagging struct {
	mu sync.Mutex
	by map[raft.ServerID]lag
}

type lag struct {
	at    uint64    // the log is needed from this index on: raft asks for the term of the entry before those that it sends
	until time.Time // it is given up
}

// sending says that a replica is being sent a snapshot, which takes some time at most.
func (l *lagging) sending(id raft.ServerID, index uint64, most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[raft.ServerID]lag{}
	}
	l.by[id] = lag{index, time.Now().Add(most)}
}

// sent says how that ended.
func (l *lagging) sent(id raft.ServerID, index uint64, success bool) {
	if success {
		l.sending(id, index, laggingPatience)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, id)
}

// appended says that a replica has taken entries up to an index. more: there are some that it does not have yet.
func (l *lagging) appended(id raft.ServerID, index uint64, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch _, known := l.by[id]; {
	case !known:
	case more:
		l.by[id] = lag{index, time.Now().Add(laggingPatience)}
	default:
		delete(l.by, id)
	}
}

// least lowers an index up to which the log may be compacted to what the slowest replica has.
func (l *lagging) least(index uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.by {
		if time.Now().After(at.until) {
			delete(l.by, id)
			continue
		}
		index = min(index, max(at.at, 1)-1)
	}
	return index
}
