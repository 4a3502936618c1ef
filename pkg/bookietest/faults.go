package bookietest

import (
	"slices"
	"time"

	"geminga/pkg/ledger"
)

// Kind names a method of Client, for faults and counts.
type Kind string

// The kinds.
const (
	Create      Kind = "create"
	Append      Kind = "append"
	Fence       Kind = "fence"
	CloseLedger Kind = "close"
	Delete      Kind = "delete"
	Read        Kind = "read"
	Get         Kind = "get"
	List        Kind = "list"
	Commit      Kind = "commit"
	Watch       Kind = "watch"

	allocate Kind = "allocate" // the ledger id for a create
)

// fault is met by the next requests of its kind.
type fault struct {
	kind    Kind
	client  *Client // nil: of any client
	err     error
	applied bool
	left    int
}

// FailNext makes the next n requests of this kind fail with err; nothing is applied.
func (c *Cluster) FailNext(kind Kind, n int, err error) {
	c.script(&fault{kind: kind, err: err, left: n})
}

// UnknownNext makes the next n requests of this kind end with ledger.ErrUnknown, though they are applied.
func (c *Cluster) UnknownNext(kind Kind, n int) {
	c.script(&fault{kind: kind, err: ledger.ErrUnknown, applied: true, left: n})
}

// FailNext is Cluster.FailNext for the requests of one client.
func (cl *Client) FailNext(kind Kind, n int, err error) {
	cl.cluster.script(&fault{kind: kind, client: cl, err: err, left: n})
}

// UnknownNext is Cluster.UnknownNext for the requests of one client.
func (cl *Client) UnknownNext(kind Kind, n int) {
	cl.cluster.script(&fault{kind: kind, client: cl, err: ledger.ErrUnknown, applied: true, left: n})
}

func (c *Cluster) script(f *fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, f)
}

// fault takes the fault that a request meets, if any; the mutex is held.
func (c *Cluster) fault(r *request) *fault {
	for _, f := range c.faults {
		if f.left > 0 && f.kind == r.kind && (f.client == nil || f.client == r.client) {
			f.left--
			return f
		}
	}
	return nil
}

// change changes a group and lets the cluster look at it.
func (c *Cluster) change(id ledger.GroupID, fn func(*group)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(c.groups[id])
	c.wake.Broadcast()
}

// Hold stops a group: requests pile up as in a group without a leader. New ledgers go elsewhere.
func (c *Cluster) Hold(id ledger.GroupID) { c.change(id, func(g *group) { g.held = true }) }

// Release lets a group go on after Hold, with what has piled up, in order.
func (c *Cluster) Release(id ledger.GroupID) { c.change(id, func(g *group) { g.held = false }) }

// Down makes every request to a group fail with ledger.ErrUnknown, unapplied; Close of a ledger waits. New ledgers go
// elsewhere.
func (c *Cluster) Down(id ledger.GroupID) { c.change(id, func(g *group) { g.down = true }) }

// Up ends Down.
func (c *Cluster) Up(id ledger.GroupID) { c.change(id, func(g *group) { g.down = false }) }

// LoseAcks lets a group, while on, apply requests without answering. Switched off, it answers them all, as a client that
// sends them again would see it. New ledgers go elsewhere.
func (c *Cluster) LoseAcks(id ledger.GroupID, on bool) { c.change(id, func(g *group) { g.lossy = on }) }

// Delay makes a group answer each request d after it is applied.
func (c *Cluster) Delay(id ledger.GroupID, d time.Duration) {
	c.change(id, func(g *group) { g.delay = d })
}

// Damage makes an entry unreadable.
func (c *Cluster) Damage(ref ledger.Ref, entry ledger.EntryID) {
	c.change(ref.Group, func(g *group) { g.damaged[ledger.Position{Ledger: ref.ID, Entry: entry}] = true })
}

// Cut keeps the client's requests from reaching the cluster: they pile up.
func (cl *Client) Cut() { cl.set(func() { cl.cut = true }) }

// Heal ends Cut: what has piled up arrives, in order, however late.
func (cl *Client) Heal() { cl.set(func() { cl.cut = false }) }

// Shutdown ends the client: all it has asked and asks from now on ends with ledger.ErrShutdown, even what a group holds
// back. (Its method Close closes ledgers.)
func (cl *Client) Shutdown() {
	cl.set(func() {
		cl.shut = true
		for _, r := range cl.withdraw(true) {
			cl.cluster.extra = append(cl.cluster.extra, cl.guard(func() { r.fail(ledger.ErrShutdown) }))
		}
	})
}

// Kill ends the client like a crash of its process: nothing is called back any more, and it holds no payloads. What it
// has sent is applied, unless it is cut.
func (cl *Client) Kill() {
	var drop []*appending
	cl.set(func() {
		cl.killed = true
		if cl.cut {
			cl.withdraw(false)
		}
		for _, st := range cl.streams {
			for _, a := range st.pending {
				a.gone = true
				drop = append(drop, a)
			}
			st.pending = nil
		}
	})
	cl.cluster.release(drop)
}

// withdraw takes the client's requests out of all queues, and on demand the answers that are still to be given.
func (cl *Client) withdraw(answers bool) (rs []*request) {
	for _, g := range cl.cluster.groups {
		if answers {
			g.answers = slices.DeleteFunc(g.answers, func(a answer) bool {
				mine := a.request != nil && a.request.client == cl
				if mine {
					rs = append(rs, a.request)
				}
				return mine
			})
		}
		g.queue = slices.DeleteFunc(g.queue, func(r *request) bool {
			if r.client == cl {
				rs = append(rs, r)
			}
			return r.client == cl
		})
	}
	return rs
}

func (cl *Client) set(fn func()) {
	cl.cluster.mu.Lock()
	defer cl.cluster.mu.Unlock()
	fn()
	cl.cluster.wake.Broadcast()
}
