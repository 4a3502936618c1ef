package bookieclient

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"

	"google.golang.org/grpc/metadata"
)

// maxEntryBytes keeps the largest command within a message.
const maxEntryBytes = bookiepb.MaxMessageSize / 2

// Client talks to the bookies of one cluster. Make it with Open.
type Client struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	life   lifetime

	conns    *conns
	topology *topology
	streams  streams
	commands sync.Pool // of *command
}

// Open starts a client. It does not wait for the bookies: calls do, within their deadlines.
func Open(opts Options) (*Client, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("bookieclient: %w", err)
	}
	c := &Client{opts: opts, log: opts.Logger, metrics: m}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if opts.ClusterID != "" {
		c.ctx = metadata.AppendToOutgoingContext(c.ctx, bookiepb.ClusterHeader, opts.ClusterID)
	}
	c.commands.New = func() any { return &command{} }
	c.conns = newConns(&c.opts)
	c.topology = newTopology(opts.Bookies, opts.StatusInterval)
	c.life.start(c.pollStatus)
	c.life.start(c.watchTopology)
	c.life.start(c.watchStreams)
	return c, nil
}

// Shutdown ends the client: calls under way and unanswered appends end with ledger.ErrShutdown. It returns when all
// goroutines have ended, so it must not be called from a callback.
func (c *Client) Shutdown() {
	if !c.life.end() {
		return
	}
	c.cancel()
	c.life.wait()
	c.conns.close()
}

// async runs f, which ends with a callback, on a goroutine of the client. After Shutdown it still runs, on one that
// nobody waits for, because the callback must come and must not come inline.
func (c *Client) async(f func()) {
	if !c.life.start(f) {
		go f()
	}
}

// lifetime is the one door for goroutines: none starts after the end, and the end can be waited for.
type lifetime struct {
	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup
}

func (l *lifetime) start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.wg.Go(f)
	return true
}

func (l *lifetime) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.ended
	l.ended = true
	return first
}

func (l *lifetime) wait() { l.wg.Wait() }

// streams maps groups to their append streams. Appends look up without a lock; adding copies.
type streams struct {
	mu  sync.Mutex
	all atomic.Pointer[map[ledger.GroupID]*stream]
}

// stream returns the append stream of a group, started when it is the first use. nil after Shutdown.
func (c *Client) stream(group ledger.GroupID) *stream {
	if s := c.streams.get(group); s != nil {
		return s
	}
	c.streams.mu.Lock()
	defer c.streams.mu.Unlock()
	if s := c.streams.get(group); s != nil {
		return s
	}
	s := newStream(c, group)
	if !c.life.start(s.run) {
		return nil
	}
	next := map[ledger.GroupID]*stream{group: s}
	for id, other := range c.streams.list() {
		next[id] = other
	}
	c.streams.all.Store(&next)
	return s
}

func (s *streams) get(group ledger.GroupID) *stream { return s.list()[group] }

// list is read-only.
func (s *streams) list() map[ledger.GroupID]*stream {
	if m := s.all.Load(); m != nil {
		return *m
	}
	return nil
}

// pause waits before attempt n (from 0): nothing before the first two, since a hint may just have been learned, then
// a jittered, doubling time. It reports whether to go on.
func (c *Client) pause(ctx context.Context, attempt int) bool {
	if attempt < 2 {
		return ctx.Err() == nil
	}
	c.metrics.retried()
	d := c.opts.RetryMin << min(attempt-2, 16)
	if d <= 0 || d > c.opts.RetryMax {
		d = c.opts.RetryMax
	}
	d = d/2 + rand.N(d/2+1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
