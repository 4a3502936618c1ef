package eventloop

import "sync/atomic"

// LiveRoots returns how many roots are given out.
func (g *Group) LiveRoots() int64 { return g.pool.live.Load() }

// LiveRootBytes returns their sizes.
func (g *Group) LiveRootBytes() int64 { return g.pool.bytes.Load() }

// Sleeps returns how often the loop has slept.
func (l *Loop) Sleeps() int64 { return l.load.publishedSleeps.Load() }

// SocketWrites returns bytes written by the group.
func (g *Group) SocketWrites() (n int64) {
	for _, l := range g.loops {
		n += l.load.publishOut.Load()
	}
	return n
}

// SocketReads returns bytes read by the group.
func (g *Group) SocketReads() (n int64) {
	for _, l := range g.loops {
		n += l.load.publishedIn.Load()
	}
	return n
}

// Pool for tests of roots.
type Pool struct{ pool }

// Get returns a root with one reference.
func (p *Pool) Get(n int) *Root {
	r := p.get(n)
	r.Retain()
	r.unhold()
	return r
}

// Live returns the number of roots given out.
func (p *Pool) Live() int64 { return p.live.Load() }

// Bytes returns the whole buffer.
func (r *Root) Bytes() []byte { return r.buf }

// ClassOf returns the size class of n.
func ClassOf(n int) (class, size int) { return classOf(n) }

// CountWakes counts the wake-ups of all loops.
func (o *Options) CountWakes(n *atomic.Int64) {
	o.EnsureDefaults()
	backend := o.Backend
	o.newPoller = func() (poller, error) {
		p, err := newPoller(backend)
		return &countingPoller{p, n}, err
	}
}

type countingPoller struct {
	poller
	wakes *atomic.Int64
}

func (p *countingPoller) wake() {
	p.wakes.Add(1)
	p.poller.wake()
}

// Asleep reports whether the loop is marked as sleeping.
func (l *Loop) Asleep() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.asleep
}
