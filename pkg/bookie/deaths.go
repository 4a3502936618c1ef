package bookie

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// deaths notices bookies whose process is gone. Silence proves little, so raft waits for an election timeout. A refused
// connection proves more: the host answers and nobody listens. Like an election timeout it is a suggestion, so being
// wrong costs an election and nothing else (decision 019).
//
//	stream to a peer breaks ─▶ its port refuses every connection for a while ─▶ died
//	                       └─▶ it does not ─▶ nothing: raft decides
type deaths struct {
	ctx   context.Context
	after time.Duration // for how long connections must be refused; negative: never
	find  func(peer string) (addr string, ok bool)
	dial  Dial
	died  func(peer string)      // called once for each death, on the goroutine that found it
	start func(func()) (ok bool) // runs something on a goroutine of its own

	mu      sync.Mutex
	suspect map[string]bool
}

// lost says that a connection to a peer that had been good is gone. It returns at once.
func (d *deaths) lost(peer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.after < 0 || d.suspect[peer] {
		return
	}
	d.suspect[peer] = d.start(func() {
		gone := d.refuses(peer)
		d.mu.Lock()
		delete(d.suspect, peer)
		d.mu.Unlock()
		if gone {
			d.died(peer)
		}
	})
}

// refuses dials until the peer has refused connections for long enough, or has not.
func (d *deaths) refuses(peer string) bool {
	start := time.Now()
	tick := time.NewTicker(max(d.after/4, time.Millisecond))
	defer tick.Stop()
	for {
		addr, ok := d.find(peer)
		if !ok || !d.refused(addr) {
			return false
		}
		if time.Since(start) >= d.after {
			return true
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return false
		}
	}
}

// refused dials once. What it connects to hears nothing.
func (d *deaths) refused(addr string) bool {
	ctx, cancel := context.WithTimeout(d.ctx, time.Second)
	defer cancel()
	c, err := d.dial(ctx, addr)
	if err == nil {
		_ = c.Close() // nothing was sent
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// succeed lets the replicas whose leader has died stand for election, one after the other in the order of their group's
// configuration: if all stood at once none might win. One whose log is too short loses, and the next is at its turn.
func (b *Bookie) succeed(peer string) {
	b.log.Warn("a bookie refuses connections: its groups elect other leaders", "peer", peer)
	left := slices.DeleteFunc(b.nodes(), func(n *node) bool { return n.leader() != peer })
	for round := 0; len(left) > 0; round++ {
		left = slices.DeleteFunc(left, func(n *node) bool {
			rank := n.rank(peer)
			if rank == round {
				n.stand(peer, b.opts.Raft.Turn)
			}
			return rank <= round
		})
		select {
		case <-time.After(b.opts.Raft.Turn):
		case <-b.ctx.Done():
			return
		}
	}
}

// nodes lists all replicas that run here.
func (b *Bookie) nodes() []*node {
	var out []*node
	if m := b.meta(); m != nil {
		out = append(out, &m.node)
	}
	for _, g := range b.groups.all() {
		out = append(out, &g.node)
	}
	return out
}

// rank counts the voters that stand for election before this replica when a peer has died. It is -1 for one that does
// not vote.
func (n *node) rank(peer string) int {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return -1
	}
	rank := 0
	for _, s := range f.Configuration().Servers {
		switch {
		case s.Suffrage != raft.Voter:
		case string(s.ID) == n.transport.self:
			return rank
		case string(s.ID) != peer:
			rank++
		}
	}
	return -1
}

func (n *node) leader() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// stand tells raft that the election timeout is over, unless it has heard of another leader. The others vote for it
// although they have not missed theirs yet, as the library's message says that they should.
func (n *node) stand(peer string, patience time.Duration) {
	if leader := n.leader(); leader != peer && leader != "" || n.raft.State() != raft.Follower || !n.health.ok() {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case n.transport.inbox <- raft.RPC{Command: n.transport.timeoutIsOver(), RespChan: make(chan raft.RPCResponse, 1)}:
	case <-n.transport.closed:
	case <-timer.C: // raft's main loop waits for its disk; it will hear of the timeout in any case
	}
}
