package bookietest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// Options for a Cluster.
type Options struct {
	Groups int // ledger groups, default 3: their ids are 1 … Groups; 0 is the metadata group
}

// Cluster is a set of bookies in memory.
type Cluster struct {
	worker      sync.WaitGroup
	outstanding atomic.Int64 // payloads read and not released yet
	retained    atomic.Int64 // payloads of appends still referenced

	mu     sync.Mutex // guards all below; nothing is called under it
	wake   *sync.Cond
	closed bool
	groups []*group
	meta   *metadata.Machine
	faults []*fault
	watch  []*watcher
	extra  []func() // calls to make before all others
	place  int      // the group that got the last ledger
	counts map[Kind]int
}

// group is one Raft group, without replicas.
type group struct {
	id      ledger.GroupID
	machine *ledger.Machine
	entries map[ledger.ID][][]byte
	damaged map[ledger.Position]bool

	queue   []*request
	answers []answer

	held  bool // nothing is applied
	down  bool // requests fail
	lossy bool // answers are withheld
	delay time.Duration
}

// answer is a call to make, not before due.
type answer struct {
	due     time.Time
	call    func()
	request *request // nil for watchers
}

// request is a call of a client on its way. Exactly one of what apply returns and fail is called, outside the mutex,
// by the cluster's goroutine.
type request struct {
	client *Client
	kind   Kind
	ref    ledger.Ref
	apply  func() func()
	fail   func(error)
}

// New starts a cluster. Close it.
func New(o Options) *Cluster {
	if o.Groups == 0 {
		o.Groups = 3
	}
	c := &Cluster{meta: metadata.NewMachine(), counts: map[Kind]int{}}
	c.wake = sync.NewCond(&c.mu)
	for i := range o.Groups + 1 {
		c.groups = append(c.groups, &group{
			id: ledger.GroupID(i), machine: ledger.NewMachine(), entries: map[ledger.ID][][]byte{}, damaged: map[ledger.Position]bool{},
		})
	}
	c.worker.Go(c.run)
	return c
}

// Close ends the cluster: requests and answers that are still pending end with ledger.ErrShutdown, held or not.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	c.wake.Broadcast()
	c.mu.Unlock()
	c.worker.Wait()
}

// run applies and answers until Close.
func (c *Cluster) run() {
	for {
		calls, closed := c.next()
		for _, call := range calls {
			call()
		}
		if closed {
			return
		}
	}
}

// next waits for something to do, does one request of each group, and returns the calls that are due.
func (c *Cluster) next() (calls []func(), closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.closed {
			return c.drain(), true
		}
		worked := false
		calls, c.extra = append(calls, c.extra...), nil
		for _, g := range c.groups {
			if r := g.take(); r != nil {
				c.process(g, r)
				worked = true
			}
			calls = g.due(calls)
		}
		if worked || len(calls) > 0 {
			return calls, false
		}
		c.wake.Wait()
	}
}

// take removes the first request that can be processed now, keeping each client's order.
func (g *group) take() *request {
	if g.held {
		return nil
	}
	for i, r := range g.queue {
		if !r.client.cut && (!g.down || r.kind != CloseLedger) {
			if i == 0 {
				g.queue = g.queue[1:]
			} else {
				g.queue = slices.Delete(g.queue, i, i+1)
			}
			return r
		}
	}
	return nil
}

// process decides what a request meets: a group that is down, a scripted fault, or the machine.
func (c *Cluster) process(g *group, r *request) {
	c.counts[r.kind]++
	var call func()
	if g.down {
		call = func() { r.fail(ledger.ErrUnknown) }
	} else if f := c.fault(r); f != nil {
		if f.applied {
			r.apply()
		}
		call = func() { r.fail(f.err) }
	} else {
		call = r.apply()
	}
	if r.client.killed {
		return // it was on its way; nobody is there to be told
	}
	a := answer{call: r.client.guard(call), request: r}
	if g.delay > 0 {
		a.due = time.Now().Add(g.delay)
		time.AfterFunc(g.delay, c.poke)
	}
	g.answers = append(g.answers, a)
}

// due moves the answers whose time has come to calls, in order.
func (g *group) due(calls []func()) []func() {
	if g.lossy || len(g.answers) == 0 {
		return calls
	}
	now := time.Now()
	n := 0
	for n < len(g.answers) && !g.answers[n].due.After(now) {
		calls = append(calls, g.answers[n].call)
		n++
	}
	g.answers = append([]answer(nil), g.answers[n:]...)
	return calls
}

// drain ends everything at Close.
func (c *Cluster) drain() (calls []func()) {
	calls, c.extra = c.extra, nil
	for _, g := range c.groups {
		for _, a := range g.answers {
			calls = append(calls, a.call)
		}
		for _, r := range g.queue {
			calls = append(calls, r.client.guard(func() { r.fail(ledger.ErrShutdown) }))
		}
		g.answers, g.queue = nil, nil
	}
	return calls
}

// submit queues a request, or fails it when the cluster has ended.
func (c *Cluster) submit(id ledger.GroupID, r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.submitLocked(id, r)
}

func (c *Cluster) submitLocked(id ledger.GroupID, r *request) {
	fail := func(err error) func() { return r.client.guard(func() { r.fail(err) }) }
	switch {
	case r.client.killed:
		return
	case c.closed:
		time.AfterFunc(0, fail(ledger.ErrShutdown)) // the cluster's own goroutine has ended
	case r.client.shut:
		c.extra = append(c.extra, fail(ledger.ErrShutdown))
	case int(id) >= len(c.groups):
		c.extra = append(c.extra, fail(ledger.ErrNoGroup))
	default:
		g := c.groups[id]
		g.queue = append(g.queue, r)
	}
	c.wake.Broadcast()
}

func (c *Cluster) poke() {
	c.mu.Lock()
	c.wake.Broadcast()
	c.mu.Unlock()
}

// healthy picks a group for a new ledger: neither down nor held nor avoided, else avoided, else none.
func (c *Cluster) healthy(avoid ledger.GroupID) (ledger.GroupID, bool) {
	n := len(c.groups) - 1
	for range n {
		c.place = c.place%n + 1
		if g := c.groups[c.place]; !g.down && !g.held && !g.lossy && g.id != avoid {
			return g.id, true
		}
	}
	if g := c.groups[avoid]; avoid != 0 && !g.down && !g.held {
		return avoid, true
	}
	return 0, false
}
