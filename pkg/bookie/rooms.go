package bookie

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// rooms is what the other bookies say of their disks: each answer to a call of raft says whether the disk of the bookie that
// answers is nearly full. A leader calls its followers several times a second, idle or not, so it hears of theirs as soon
// as they know. What was heard longer ago is of bookies that follow nobody here, or are gone, and says nothing.
type rooms struct {
	full atomic.Int64 // bookies that said so last

	mu    sync.Mutex
	peers map[string]room
}

// room is what one of them said last.
type room struct {
	full bool
	at   time.Time
}

func (r *rooms) heard(peer string, full bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.peers[peer].full; was != full {
		if full {
			r.full.Add(1)
		} else {
			r.full.Add(-1)
		}
	}
	if r.peers == nil {
		r.peers = map[string]room{}
	}
	r.peers[peer] = room{full, now}
}

// of returns what a bookie said since then; nothing when it is silent.
func (r *rooms) of(peer string, since time.Time) (said room, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	said = r.peers[peer]
	return said, said.at.After(since)
}

// refuses says whether this leader takes nothing that grows: because of its own disk, by order, or for want of room on the
// others'.
func (g *group) refuses() bool { return g.intake.refuses() || g.crowded() }

// crowded says whether entries could be committed only by filling disks that are nearly full. A full follower stores what
// it is sent to the last byte, for it cannot leave anything away, and what frees space needs some: so the leader is who
// has to stop.
//
//	a +     b +     c full     goes on; c stores what it can
//	a +     b full  c full     refused
//	a +     b full  c silent   refused: whatever is committed goes to b
//	a +     b       c silent   raft's matter
func (g *group) crowded() bool {
	if g.rooms.full.Load() == 0 && !g.intake.full.Load() {
		return false
	}
	voters, roomy, full := 0, 0, 0
	since := time.Now().Add(-g.opts.Raft.FollowerTimeout) // who is silent for longer has left
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		said, ok := g.rooms.of(string(s.ID), since)
		if string(s.ID) == g.transport.self {
			said.full, ok = g.intake.full.Load(), true
		}
		switch {
		case ok && said.full:
			full++
		case ok:
			roomy++
		}
	}
	return full > 0 && 2*roomy <= voters
}
