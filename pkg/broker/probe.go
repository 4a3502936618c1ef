package broker

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// peers knows which connections hold the names of a topic: when a name is taken, they are asked whether they still live.
type peers struct {
	mu        sync.Mutex
	producers map[string]*producer
	consumers map[string]map[*consumer]struct{} // by subscription
}

func (h *hosted) joinProducer(p *producer) {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	if h.peers.producers == nil {
		h.peers.producers = make(map[string]*producer)
	}
	h.peers.producers[p.name] = p
}

func (h *hosted) leaveProducer(p *producer) {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	if h.peers.producers[p.name] == p {
		delete(h.peers.producers, p.name)
	}
}

func (h *hosted) joinConsumer(k *consumer) {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	if h.peers.consumers == nil {
		h.peers.consumers = make(map[string]map[*consumer]struct{})
	}
	set := h.peers.consumers[k.subscription]
	if set == nil {
		set = make(map[*consumer]struct{})
		h.peers.consumers[k.subscription] = set
	}
	set[k] = struct{}{}
}

func (h *hosted) leaveConsumer(k *consumer) {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	set := h.peers.consumers[k.subscription]
	delete(set, k)
	if len(set) == 0 {
		delete(h.peers.consumers, k.subscription)
	}
}

// publishers returns the connections of the producers of these names.
func (h *hosted) publishers(names ...string) []*conn {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	var out []*conn
	for _, name := range names {
		if p := h.peers.producers[name]; p != nil {
			out = append(out, p.c)
		}
	}
	return out
}

// subscribers returns the connections of the consumers of a subscription, or of all, each once.
func (h *hosted) subscribers(subscription string, all bool) []*conn {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	conns := map[*conn]struct{}{}
	for name, set := range h.peers.consumers {
		if !all && name != subscription {
			continue
		}
		for k := range set {
			conns[k.c] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(conns))
}

// probe is a question to a connection whether its client lives. A PING was sent; anything that arrives answers it.
type probe struct {
	deadline time.Time
	done     func(alive bool)
}

// probe asks the connections that hold what the connection asking wants. done gets true if one of them is gone, or was
// found dead and closed: then it is worth trying again. Its producers and consumers have been removed by then, that is,
// their removal was posted before done is called. Any goroutine.
//
// A client that comes back after its network broke is told "busy" by nobody for this reason: it takes that for final.
func (s *Server) probe(conns []*conn, asking *conn, done func(gone bool)) {
	if len(conns) == 0 {
		done(true) // it has left between the refusal and the question
		return
	}
	var waiting, gone atomic.Int32
	waiting.Store(int32(len(conns)))
	for _, c := range conns {
		answer := func(alive bool) {
			if !alive {
				gone.Add(1)
			}
			if waiting.Add(-1) == 0 {
				done(gone.Load() > 0)
			}
		}
		if c == asking {
			answer(true)
			continue
		}
		c.post(func() { c.probe(answer) })
	}
}

// probe sends a PING and waits for any sign of life. On the loop.
func (c *conn) probe(done func(alive bool)) {
	switch {
	case c.closed || c.ec.Closed():
		done(false)
	case c.unheard():
		done(true)
	default:
		now := time.Now()
		after := c.server.opts.ConnectionLivenessCheckTimeout
		c.probes = append(c.probes, probe{now.Add(after), done})
		c.ping(now)
		time.AfterFunc(after, func() { c.post(func() { c.checkProbes(time.Now()) }) })
	}
}

// alive answers all probes: something has arrived.
func (c *conn) alive() {
	probes := c.probes
	c.probes = nil
	for _, p := range probes {
		p.done(true)
	}
}

// checkProbes closes the connection when a probe has waited long enough; Closed answers it then.
func (c *conn) checkProbes(now time.Time) {
	if len(c.probes) > 0 && c.unheard() {
		c.alive()
		return
	}
	for _, p := range c.probes {
		if !now.Before(p.deadline) && !c.closed {
			c.ec.Close(errReplaced)
			return
		}
	}
}
