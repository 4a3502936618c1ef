package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
)

var errNoSnapshots = errors.New("no snapshots here")

// logStore is what a Raft group needs of a disk.
type logStore interface {
	raft.LogStore
	raft.StableStore
}

// raftGroups are the same Raft groups without a bookie around them: three nodes in this process whose messages are
// handed over in memory, the same machine, and the same policy of proposals. The library's settings are its defaults,
// a pipeline to followers included.
type raftGroups struct {
	all     [][]*raft.Raft // by group
	closers []func() error
	count   func() written
}

const (
	proposalBytes = 1 << 20
	inFlight      = 4 // proposals of a group
)

// startGroups opens n groups whose logs are in stores.
func startGroups(ctx context.Context, n int, s stores) (*raftGroups, error) {
	g := &raftGroups{count: s.look}
	for i := range n {
		if err := g.add(i, s); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
	g.closers = append(g.closers, s.close)
	if err := g.await(ctx); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *raftGroups) add(i int, s stores) error {
	var config raft.Configuration
	transports := map[raft.ServerID]*raft.InmemTransport{}
	for node := range replicas {
		id := raft.ServerID(fmt.Sprintf("%d-%d", i, node))
		_, transports[id] = raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), 10*time.Second)
		config.Servers = append(config.Servers, raft.Server{ID: id, Address: raft.ServerAddress(id)})
	}
	var nodes []*raft.Raft
	for node, server := range config.Servers {
		t := transports[server.ID]
		for id, other := range transports {
			t.Connect(raft.ServerAddress(id), other)
		}
		store, err := s.open(node, i)
		if err != nil {
			return err
		}
		if c, ok := store.(interface{ Close() error }); ok {
			defer func() { g.closers = append(g.closers, c.Close) }() // behind raft's
		}
		cached, err := raft.NewLogCache(512, store)
		if err != nil {
			return err
		}
		c, snapshots := raftConfig(server.ID, node == i%replicas), raft.NewInmemSnapshotStore()
		if err := raft.BootstrapCluster(c, cached, store, snapshots, t, config); err != nil {
			return err
		}
		r, err := raft.NewRaft(c, &machine{ledgers: ledger.NewMachine()}, cached, store, snapshots, t)
		if err != nil {
			return err
		}
		nodes = append(nodes, r)
		g.closers = append(g.closers, func() error { return r.Shutdown().Error() })
	}
	g.all = append(g.all, nodes)
	return nil
}

func raftConfig(id raft.ServerID, preferred bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = id
	c.HeartbeatTimeout = 3 * time.Second
	if preferred { // leaders spread over the nodes, as with bookies
		c.HeartbeatTimeout = time.Second
	}
	c.ElectionTimeout, c.LeaderLeaseTimeout = c.HeartbeatTimeout, time.Second
	c.SnapshotThreshold, c.SnapshotInterval = math.MaxUint64, 24*time.Hour
	c.Logger = hclog.NewNullLogger()
	c.NoLegacyTelemetry = true
	return c
}

func (g *raftGroups) await(ctx context.Context) error {
	for i := range g.all {
		for g.leader(i) == nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("group %d has no leader: %w", i, ctx.Err())
			}
		}
	}
	return nil
}

func (g *raftGroups) leader(i int) *raft.Raft {
	for _, r := range g.all[i] {
		if r.State() == raft.Leader {
			return r
		}
	}
	return nil
}

func (g *raftGroups) look() written { return g.count() }

func (g *raftGroups) close() error {
	var errs []error
	for _, f := range g.closers {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (g *raftGroups) attach(ctx context.Context, i int, answered func(int, error)) (client, error) {
	r := g.leader(i)
	if r == nil {
		return nil, errors.New("group " + strconv.Itoa(i) + " has lost its leader")
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &proposing{raft: r, wake: make(chan struct{}, 1), ctx: ctx, cancel: cancel, answers: make(chan waiting, inFlight)}
	p.wg.Go(p.propose)
	p.wg.Go(func() { p.answer(answered) })
	return p, nil
}

// proposing turns commands into proposals: what has gathered when one of the places in flight gets free, up to a limit.
type proposing struct {
	raft    *raft.Raft
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	wake    chan struct{}
	answers chan waiting

	mu    sync.Mutex
	queue [][]byte
}

type waiting struct {
	future raft.ApplyFuture
	n      int
}

func (p *proposing) send(command []byte) error {
	p.mu.Lock()
	p.queue = append(p.queue, command)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

func (p *proposing) close() {
	p.cancel()
	p.wg.Wait()
}

func (p *proposing) propose() {
	defer close(p.answers)
	slots := make(chan struct{}, inFlight)
	for {
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return
		}
		for {
			select {
			case slots <- struct{}{}:
			case <-p.ctx.Done():
				return
			}
			data, n := p.take()
			if n == 0 {
				<-slots
				break
			}
			future := p.raft.Apply(data, time.Minute)
			select {
			case p.answers <- waiting{future, n}:
			case <-p.ctx.Done():
				return
			}
			go func() {
				_ = future.Error() // answer says it
				<-slots
			}()
		}
	}
}

func (p *proposing) take() ([]byte, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, size := 0, 0
	for n < len(p.queue) && (n == 0 || size+len(p.queue[n]) <= proposalBytes) {
		size += len(p.queue[n])
		n++
	}
	data := make([]byte, 0, size)
	for _, c := range p.queue[:n] {
		data = append(data, c...)
	}
	p.queue = p.queue[n:]
	return data, n
}

func (p *proposing) answer(answered func(int, error)) {
	for w := range p.answers {
		err := w.future.Error()
		if err == nil {
			err, _ = w.future.Response().(error)
		}
		answered(w.n, err)
	}
}

// machine applies commands to a ledger.Machine, as a bookie does.
type machine struct{ ledgers *ledger.Machine }

// Apply implements raft.FSM. It returns the first refusal, which a load never brings about.
func (m *machine) Apply(log *raft.Log) any {
	for rest := log.Data; len(rest) > 0; {
		c, tail, err := ledger.NextCommand(rest)
		if err != nil {
			return err
		}
		if res, _ := m.ledgers.Apply(&c); res.Err != nil {
			return res.Err
		}
		rest = tail
	}
	return nil
}

// Snapshot implements raft.FSM. None is ever taken.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }

// Restore implements raft.FSM.
func (m *machine) Restore(io.ReadCloser) error { return errNoSnapshots }
