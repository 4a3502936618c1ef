package eventloop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Group is a set of loops and the listeners that feed them. Its methods may be called from any goroutine.
type Group struct {
	options  Options
	handler  Handler
	writable WritableHandler // handler, if it is one
	pool     pool
	account  atomic.Pointer[Account]
	loops    []*Loop
	open     atomic.Int64 // connections
	nextLoop atomic.Uint32
	nextID   atomic.Uint64
	complain complaint
	metrics  *metrics

	stop    chan struct{} // closed by Close: acceptors end
	done    chan struct{} // closed when every goroutine has ended
	closing sync.Once
	loopsWG sync.WaitGroup
	wg      sync.WaitGroup // acceptors and helpers

	mu struct {
		sync.Mutex
		listeners map[acceptor]struct{}
		closed    bool
	}
}

// acceptor is a listener that Close closes.
type acceptor interface{ Close() error }

// New starts the loops. Nothing is served before Listen or Serve.
func New(h Handler, o Options) (*Group, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("event loops: %w", err)
	}
	g := &Group{options: o, handler: h, stop: make(chan struct{}), done: make(chan struct{})}
	g.writable, _ = h.(WritableHandler)
	g.mu.listeners = map[acceptor]struct{}{}
	g.complain.log = o.Logger
	for i := range o.Loops {
		p, err := o.newPoller()
		if err != nil {
			for _, l := range g.loops {
				l.poller.close()
			}
			return nil, fmt.Errorf("event loop %d: %w", i, err)
		}
		l := &Loop{group: g, index: i, poller: p}
		l.budget.share = o.share()
		g.loops = append(g.loops, l)
	}
	var err error
	if g.metrics, err = newMetrics(g); err != nil {
		for _, l := range g.loops {
			l.poller.close()
		}
		return nil, fmt.Errorf("event loops: %w", err)
	}
	for _, l := range g.loops {
		g.loopsWG.Go(l.run)
	}
	return g, nil
}

// Loops returns the loops. The slice must not be changed.
func (g *Group) Loops() []*Loop { return g.loops }

// Conns returns the number of connections.
func (g *Group) Conns() int { return int(g.open.Load()) }

// SetAccount charges roots to a from the next read on, or to nobody (nil). Roots that frames are kept in stay on the
// account that they were charged to.
func (g *Group) SetAccount(a *Account) { g.account.Store(a) }

// RootBytes returns the memory in roots that are in use, of both directions.
func (g *Group) RootBytes() int64 { return g.pool.bytes.Load() }

// Listen serves TCP connections to addr with the backend of the Options. It returns the address that is listened on,
// which tells the port when addr names port 0.
func (g *Group) Listen(ctx context.Context, network, addr string) (net.Addr, error) {
	ln, err := listenConfig().Listen(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("event loops: %w", err)
	}
	at := ln.Addr()
	if g.options.Backend == Epoll {
		return at, g.acceptSockets(ln)
	}
	return at, g.acceptPortable(ln)
}

// ListenTLS serves TLS connections to addr, each with goroutines of its own, on the same loops.
func (g *Group) ListenTLS(ctx context.Context, network, addr string, config *tls.Config) (net.Addr, error) {
	ln, err := listenConfig().Listen(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("event loops: %w", err)
	}
	at := ln.Addr()
	return at, g.acceptPortable(tls.NewListener(ln, config))
}

// Serve serves a connection that exists already, of whatever kind, with goroutines of its own. The Group closes it in
// the end, also when it returns an error.
func (g *Group) Serve(conn net.Conn) error {
	if err := g.enter(); err != nil {
		_ = conn.Close()
		return err
	}
	c := g.newConn(conn.LocalAddr(), conn.RemoteAddr())
	c.link = newNetLink(c, conn)
	g.arrive(c)
	return nil
}

// Close stops listening, closes every connection with ErrClosed after one attempt to write what it has, runs what is
// posted and ends all goroutines. It waits for them until ctx ends, and may be called again to go on waiting.
func (g *Group) Close(ctx context.Context) error {
	g.closing.Do(func() {
		g.mu.Lock()
		g.mu.closed = true
		listeners := g.mu.listeners
		g.mu.listeners = nil
		g.mu.Unlock()
		close(g.stop)
		for ln := range listeners {
			_ = ln.Close()
		}
		for _, l := range g.loops {
			l.mu.Lock()
			l.mu.stop = true
			l.unlockAndWake()
		}
		go g.await()
	})
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("event loops: closing: %w", ctx.Err())
	}
}

// await tells when all goroutines have ended.
func (g *Group) await() {
	g.loopsWG.Wait()
	g.wg.Wait()
	g.metrics.close()
	close(g.done)
}

// track registers a listener for Close. It fails when the group is closed.
func (g *Group) track(a acceptor, accept func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		_ = a.Close()
		return ErrClosed
	}
	g.mu.listeners[a] = struct{}{}
	g.wg.Go(accept)
	return nil
}

// enter counts a new connection, unless there are too many.
func (g *Group) enter() error {
	select {
	case <-g.stop:
		return ErrClosed
	default:
	}
	if n := g.open.Add(1); g.options.MaxConns > 0 && n > int64(g.options.MaxConns) {
		g.open.Add(-1)
		g.metrics.rejected.Add(1)
		g.complain.say("Connection refused: limit reached", "limit", g.options.MaxConns)
		return ErrTooManyConnections
	}
	g.metrics.accepted.Add(1)
	return nil
}

// newConn makes a connection on the loop that has the fewest.
func (g *Group) newConn(local, remote net.Addr) *Conn {
	first := int(g.nextLoop.Add(1))
	best := g.loops[first%len(g.loops)]
	for i := 1; i < len(g.loops); i++ {
		if l := g.loops[(first+i)%len(g.loops)]; l.load.conns.Load() < best.load.conns.Load() {
			best = l
		}
	}
	best.load.conns.Add(1)
	return &Conn{loop: best, id: g.nextID.Add(1), local: local, remote: remote}
}

// arrive hands a connection to its loop.
func (g *Group) arrive(c *Conn) {
	l := c.loop
	l.mu.Lock()
	if l.mu.ended {
		l.mu.Unlock()
		c.link.discard()
		g.left(l)
		return
	}
	l.mu.arrivals = append(l.mu.arrivals, c)
	l.unlockAndWake()
}

// left counts a connection that is gone.
func (g *Group) left(l *Loop) {
	g.open.Add(-1)
	l.load.conns.Add(-1)
}
