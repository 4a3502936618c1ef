package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// Bookie is a running bookie. Open makes one, Close ends it. When Failed delivers, only Close is left to do.
type Bookie struct {
	opts    Options
	cluster *clusterJSON
	self    identity
	address string // what others dial
	log     *slog.Logger
	metrics *metrics

	listener net.Listener
	server   *grpc.Server
	lanes    *lanes
	lock     io.Closer
	journal  *journal.Journal
	book     *addressBook
	conns    *conns
	links    *links
	client   *metaClient
	seat     *seat
	groups   *groups

	reserve    *reserve
	intake     intake
	leaving    atomic.Bool // it is being decommissioned
	registered atomic.Bool
	failures   chan error
	health     *health
	scrubber   *scrubber     // nil when off
	placement  chan struct{} // holds one: look whether groups are to be created or moved

	ctx      context.Context // of the background work
	cancel   context.CancelFunc
	work     lifetime // background work
	handlers lifetime // receivers of append streams
	closing  sync.Once
	closeErr error
}

// Open starts a bookie over a directory that Init made. It returns when the bookie listens; Ready tells when it serves.
func Open(ctx context.Context, o Options) (*Bookie, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("bookie: %w", err)
	}
	b := &Bookie{opts: o, failures: make(chan error, 1), placement: make(chan struct{}, 1)}
	b.health = newHealth(b.failed)
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := b.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("bookie: %w", err), b.Close(ctx))
	}
	b.log.Info("listening", "address", b.address, "cluster", b.self.clusterID)
	return b, nil
}

// open acquires things in the order in which close gives them back, reversed.
func (b *Bookie) open() error {
	o := &b.opts
	var err error
	if b.cluster, err = readCluster(o.FS, o.DataDir); err != nil {
		return err
	}
	b.self = b.cluster.identity()
	if o.ClusterID != "" && o.ClusterID != b.self.clusterID {
		return fmt.Errorf("%w: %s belongs to cluster %q, not %q", ErrWrongCluster, o.DataDir, b.self.clusterID, o.ClusterID)
	}
	b.log = o.Logger.With("bookie", b.self.bookieID)
	if b.lock, err = o.FS.Lock(filepath.Join(o.DataDir, lockFile)); err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("data directory %s is in use by another process", o.DataDir)
		}
		return fmt.Errorf("cannot lock %s: %w", o.DataDir, err)
	}
	if err := b.listen(); err != nil {
		return err
	}
	if b.metrics, err = newMetrics(o.MeterProvider); err != nil {
		return err
	}
	b.reserve = openReserve(o, b.log)
	if b.journal, err = beginJournal(o); err != nil {
		return fmt.Errorf("journal in %s: %w", o.Journal.Dir, err)
	}
	b.book = openAddressBook(o.FS, o.DataDir, b.cluster.Metadata, b.log)
	b.conns = newConns(o.Dial)
	b.links = newLinks(b.self, b.book, b.conns, b.log)
	b.links.full = b.intake.full.Load
	b.links.lost = (&deaths{
		ctx: b.ctx, after: o.Raft.RefusedAfter, find: b.book.address, dial: o.Dial, died: b.succeed, start: b.work.start,
		suspect: map[string]bool{},
	}).lost
	b.client = newMetaClient(b.self, b.cluster, b.book, b.conns)
	b.groups = newGroups(groupDeps{
		opts: o, journal: b.journal, links: b.links, metrics: b.metrics, log: b.log, intake: &b.intake,
	}, b.self.bookieID, b.fail)
	if err := b.observeLost(o.MeterProvider); err != nil {
		return err
	}
	b.groups.confirm = b.confirmLeft
	b.groups.ask, b.groups.ctx = b.statusOf, b.ctx
	b.groups.opened = func(g *group) {
		b.work.start(func() { b.tend(g) })
		b.work.start(func() { g.tendEntries(b.ctx) })
	}
	if b.seat, err = openSeat(b); err != nil {
		return err
	}
	b.serve()
	b.work.start(b.enroll)
	b.work.start(b.watchdog)
	b.work.start(b.takeSnapshots)
	b.work.start(b.reclaim)
	b.work.start(b.halt)
	b.scrubber = startScrub(b)
	if b.scrubber != nil { // who looks for no damage on the disk looks for none in memory
		b.work.start(b.compareStates)
	}
	b.seat.keep()
	b.work.start(b.supervise)
	return nil
}

func (b *Bookie) listen() error {
	b.listener = b.opts.Listener
	if b.listener == nil {
		l, err := net.Listen("tcp", b.opts.ListenAddress)
		if err != nil {
			return fmt.Errorf("cannot listen on %s: %w", b.opts.ListenAddress, err)
		}
		b.listener = l
	}
	b.address = b.opts.AdvertisedAddress
	if b.address != "" {
		return nil
	}
	b.address = b.listener.Addr().String()
	addr, ok := b.listener.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsUnspecified() {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("listening on all addresses needs an advertised address: %w", err)
	}
	b.address = net.JoinHostPort(name, strconv.Itoa(addr.Port))
	return nil
}

func (b *Bookie) serve() {
	service := &raftService{links: b.links, find: b.transport, group: b.groups.get, opts: b.opts.Raft}
	b.lanes = newLanes(service.exchange, b.log)
	b.server = grpc.NewServer(append(bookiepb.ServerOptions(), grpc.Creds(b.lanes),
		grpc.ChainUnaryInterceptor(b.checkUnary), grpc.ChainStreamInterceptor(b.checkStream))...)
	bookiepb.RegisterBookieServer(b.server, &bookieService{b: b})
	bookiepb.RegisterMetadataServer(b.server, &metadataService{b: b})
	bookiepb.RegisterRaftServer(b.server, service)
	b.work.start(func() {
		if err := b.server.Serve(b.listener); err != nil && b.ctx.Err() == nil {
			b.fail(fmt.Errorf("listener failed: %w", err))
		}
	})
}

func (b *Bookie) transport(id ledger.GroupID) *transport {
	if id == ledger.MetadataGroup {
		if m := b.meta(); m != nil {
			return m.transport
		}
		return nil
	}
	if g := b.groups.get(id); g != nil {
		return g.transport
	}
	return nil
}

// fail reports a reason why the process must not go on. The first counts.
func (b *Bookie) fail(err error) { b.health.fail(err) }

// failed stops serving: a bookie that cannot write must not look alive. It may come while open still runs, and has then
// nothing but the links to stop: see halt.
func (b *Bookie) failed(err error) {
	b.log.Error("bookie failed", "error", err)
	b.failures <- err
	b.links.stop()
}

// halt stops the server once the bookie has failed.
func (b *Bookie) halt() {
	select {
	case <-b.health.failed:
		b.server.Stop()
		b.lanes.stop()
	case <-b.ctx.Done(): // close does it
	}
}

// Failed delivers the reason, once, when the process has to end.
func (b *Bookie) Failed() <-chan error { return b.failures }

// Address is what others dial.
func (b *Bookie) Address() string { return b.address }

// BookieID is the id that Init was given.
func (b *Bookie) BookieID() string { return b.self.bookieID }

// ClusterID is the id of the cluster.
func (b *Bookie) ClusterID() string { return b.self.clusterID }

// Ready returns nil when the bookie is registered, runs at least one replica, and every replica knows a leader.
func (b *Bookie) Ready(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if b.registered.Load() && b.groups.allLed(b.leaving.Load()) {
			return nil
		}
		select {
		case <-tick.C:
		case <-b.health.failed:
			return b.health.err()
		case <-b.ctx.Done():
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("bookie %s is not ready (registered: %t): %w", b.self.bookieID, b.registered.Load(), ctx.Err())
		}
	}
}

// Close stops the bookie in order: no new work, the outcome of what is under way, leadership to others, silence, then
// the disk. ctx bounds the polite part; what hangs after it is left behind.
func (b *Bookie) Close(ctx context.Context) error {
	b.closing.Do(func() { b.closeErr = b.close(ctx) })
	return b.closeErr
}

// politeClose bounds what a shutdown waits for others.
const politeClose = 3 * time.Second

func (b *Bookie) close(ctx context.Context) error {
	polite, cancel := context.WithTimeout(ctx, politeClose)
	defer cancel()
	b.cancel()
	if b.groups != nil && b.server != nil {
		b.groups.refuse(polite)
	}
	if m := b.meta(); m != nil && b.server != nil {
		m.transfer(polite)
	}
	if b.server != nil {
		b.server.Stop() // closes the listener
		b.lanes.stop()
	} else if b.listener != nil {
		_ = b.listener.Close() // nothing was accepted
	}
	var errs []error
	if b.groups != nil {
		b.groups.close(ctx)
	}
	if b.seat != nil {
		errs = append(errs, b.seat.close(ctx))
	}
	if b.links != nil {
		b.links.close()
		b.conns.close()
	}
	b.work.finish()
	b.handlers.finish()
	b.scrubber.wait(ctx)
	if b.journal != nil {
		if err := b.journal.Close(); b.journal.Err() == nil { // a poisoned one was reported by Failed
			errs = append(errs, err)
		}
	}
	if b.lock != nil {
		errs = append(errs, b.lock.Close())
	}
	return errors.Join(errs...)
}
