package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/eventloop"
	"geminga/pkg/executor"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/topic"
)

// Server is a broker: its listeners, connections, topics and bundles. Its methods may be called from any goroutine.
type Server struct {
	opts     Options
	opened   time.Time
	log      *slog.Logger
	metrics  *metrics
	complain complaints
	commands []command
	faults   []fault
	fatal    []string
	batches  sync.Pool // of *batch

	receipts, deliveries sync.Pool // of pieces of outboxes

	group     *eventloop.Group
	states    []*loopState // by loop
	topicPool *executor.Pool
	subPool   *executor.Pool
	topicEnv  topic.Env // without its Options
	topics    topics
	owners    ownership

	urls    atomic.Pointer[urls] // nil until the listeners are open
	closing atomic.Bool
	stop    context.CancelFunc

	maxSend      int // maxPendingPublishRequestsPerConnection
	maxOutbound  int // bytes that a client may leave unread before its requests wait
	publishLimit publishLimit
	topicRate    atomic.Pointer[Rate]          // of topics to be opened
	topicOptions atomic.Pointer[topic.Options] // in force
	memory       frameMemory
	rules        atomic.Pointer[TopicRules] // in force
	sweeping     sync.WaitGroup
	conns        connections
	lookups      gate
	subscribes   atomic.Pointer[SubscribeRate]
	rates        namespaceRates
	stored       storedSettings
	dynamic      dynamicOptions // in force; guarded by stored.mu
}

// urls are the addresses of this broker, as clients are told them.
type urls struct{ plain, tls string }

// Open starts a broker. It listens when Open returns; ctx bounds the opening only.
func Open(ctx context.Context, o Options) (*Server, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	s := &Server{
		opts: o, opened: time.Now(), log: o.Logger, commands: commandTable(), faults: faults(), fatal: fatalWords(),
		maxSend: o.MaxPendingPublishRequestsPerConnection,
	}
	s.complain.log = o.Logger
	s.batches.New = func() any { return new(batch) }
	s.topics.init(s)
	s.owners.init(s)
	s.rates.init(s)
	var err error
	if s.metrics, err = newMetrics(s); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	s.rules.Store(&s.opts.Rules)
	s.topicOptions.Store(&s.opts.Topic)
	s.conns.most, s.conns.mostPerIP = o.Limits.Connections, o.Limits.ConnectionsPerIP
	s.setLimits(&o.Limits)
	s.dynamic = dynamicOf(&s.opts)
	if err := s.stored.open(s); err != nil {
		return nil, err
	}
	if err := s.openTopicEnv(); err != nil {
		return nil, err
	}
	if err := s.openLoops(ctx); err != nil {
		return nil, errors.Join(err, s.closeAll(ctx))
	}
	watching, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.sweeping.Go(func() { s.sweep(watching) })
	if o.Watch != nil {
		o.Watch(watching, metadata.OwnersPrefix, s.owners.changed)
		o.Watch(watching, metadata.NamespacesPrefix, s.rates.changed)
		if o.Settings != nil {
			o.Watch(watching, metadata.SettingsPrefix, s.stored.changed)
		}
	}
	return s, nil
}

// openTopicEnv makes what all topics share.
func (s *Server) openTopicEnv() error {
	o := &s.opts
	ledgers, err := managedledger.NewMetrics(o.MeterProvider)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	topics, err := topic.NewMetrics(o.MeterProvider)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	cache, err := managedledger.NewCache(o.Cache)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	s.topicPool = executor.NewPool(executor.Options{Name: "topic", Threads: o.ExecutorThreads})
	s.subPool = executor.NewPool(executor.Options{Name: "subscription", Threads: o.ExecutorThreads})
	s.topicEnv = topic.Env{
		Ledger: managedledger.Env{
			Bookies: o.Bookies, Store: o.Store, Cache: cache, Logger: o.Logger, Metrics: ledgers,
		},
		LedgerOptions: o.Ledger,
		Subscriptions: s.subPool,
		Names:         topic.NewNameSource(o.ClusterName + "-" + o.ID + "-" + o.Incarnation),
		Unacked:       topic.NewUnackedLimit(o.Topic),
		Logger:        o.Logger,
		Metrics:       topics,
	}
	return nil
}

func (s *Server) openLoops(ctx context.Context) error {
	o := &s.opts
	a := &o.Admission
	for range o.Loops {
		st := &loopState{server: s}
		s.setUpOutbox(&st.out)
		s.states = append(s.states, st)
	}
	var err error
	s.group, err = eventloop.New(&handler{s}, eventloop.Options{
		Loops: o.Loops, Backend: o.Backend, MaxConns: maxConns(o.Limits.Connections), Logger: o.Logger, MeterProvider: o.MeterProvider,
		RootMin: a.RecvMin, RootStart: a.RecvStart, RootMax: a.RecvMax, HighWater: a.HighWater, LowWater: a.LowWater,
		MaxOutbound: max(0, a.MaxOutbound),
	})
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	s.openAdmission()
	return s.listen(ctx)
}

// listen opens the ports.
func (s *Server) listen(ctx context.Context) error {
	o := &s.opts
	if o.quiet {
		s.urls.Store(&urls{plain: "pulsar://" + o.ListenAddress})
		return nil
	}
	u := urls{plain: o.AdvertisedURL, tls: o.AdvertisedURLTLS}
	addr, err := s.group.Listen(ctx, "tcp", o.ListenAddress)
	if err != nil {
		return fmt.Errorf("broker: listen on %s (brokerServicePort): %w", o.ListenAddress, err)
	}
	def(&u.plain, "pulsar://"+addr.String())
	if o.ListenAddressTLS != "" {
		addr, err := s.group.ListenTLS(ctx, "tcp", o.ListenAddressTLS, o.TLSConfig)
		if err != nil {
			return fmt.Errorf("broker: listen on %s (brokerServicePortTls): %w", o.ListenAddressTLS, err)
		}
		def(&u.tls, "pulsar+ssl://"+addr.String())
	}
	s.urls.Store(&u)
	return nil
}

// ServiceURL returns the address that lookups answer.
func (s *Server) ServiceURL() string { return s.urls.Load().plain }

// ServiceURLTLS returns the TLS address that lookups answer; "" if there is none.
func (s *Server) ServiceURLTLS() string { return s.urls.Load().tls }

// ID returns the broker's id.
func (s *Server) ID() string { return s.opts.ID }

// Incarnation returns what tells this run of the broker from others.
func (s *Server) Incarnation() string { return s.opts.Incarnation }

// Serve serves a connection that exists already, for tests in one process.
func (s *Server) Serve(c net.Conn) error { return s.group.Serve(c) }

// Ready reports why the broker cannot serve: it is shutting down, or the metadata cannot be read.
func (s *Server) Ready(ctx context.Context) error {
	if s.closing.Load() {
		return errShuttingDown
	}
	return s.reach(ctx)
}

// reach reports why the metadata cannot be read.
func (s *Server) reach(ctx context.Context) error {
	answer := make(chan error, 1)
	s.opts.Store.Get(metadata.ClusterKey, func(_ metadata.Item, err error) { answer <- err })
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("%w: %w", errMetadata, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errMetadata, ctx.Err())
	}
}
