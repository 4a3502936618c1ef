package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Cluster is this process's membership. Make it with Open.
type Cluster struct {
	opts Options
	log  *slog.Logger
	self Member
	list *memberlist.Memberlist

	events   chan event
	snapshot atomic.Pointer[[]Member]
	lost     atomic.Pointer[map[string]time.Time] // gossip addresses of members that are gone, and since when
	opened   time.Time

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once

	subscribers subscribers
}

// Open starts gossiping. It joins the others in the background, again and again, and so succeeds when it is alone.
func Open(opts Options) (*Cluster, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	description, err := encodeMeta(opts.Role, opts.Services)
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, log: opts.Logger, events: make(chan event, 1024)}
	c.self = Member{Name: opts.Name, Incarnation: newIncarnation(time.Now()), Role: opts.Role, Services: opts.Services}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.publish(nil)
	c.lost.Store(&map[string]time.Time{})
	c.wg.Go(c.follow)

	c.opened = time.Now()
	config, err := c.config(description)
	if err == nil {
		c.list, err = memberlist.Create(config)
	}
	if err != nil {
		c.cancel()
		c.wg.Wait()
		return nil, fmt.Errorf("cluster: bind %s: %w", opts.Bind, err)
	}
	c.self, _ = parseNode(c.list.LocalNode())
	c.wg.Go(c.keepJoining)
	return c, nil
}

func (c *Cluster) config(description []byte) (*memberlist.Config, error) {
	host, port, err := splitAddress(c.opts.Bind)
	if err != nil {
		return nil, err
	}
	config := memberlist.DefaultLANConfig()
	config.Name = nodeName(c.self.Name, c.self.Incarnation)
	config.Label = c.opts.Cluster
	config.BindAddr, config.BindPort, config.AdvertisePort = host, port, port
	if host == "" {
		config.BindAddr = "0.0.0.0"
	}
	if c.opts.Advertise != "" {
		if config.AdvertiseAddr, config.AdvertisePort, err = resolve(c.opts.Advertise); err != nil {
			return nil, err
		}
	}
	config.SecretKey = c.opts.SecretKey
	config.ProbeInterval, config.ProbeTimeout = c.opts.ProbeInterval, c.opts.ProbeTimeout
	config.SuspicionMult = c.opts.SuspicionMult
	config.GossipInterval = min(config.GossipInterval, c.opts.ProbeInterval/2)
	config.PushPullInterval = min(config.PushPullInterval, c.opts.RejoinInterval)
	config.TCPTimeout = max(4*c.opts.ProbeTimeout, time.Second)
	config.DeadNodeReclaimTime = c.opts.RejoinInterval
	config.Logger = newMemberlistLogger(c.log)
	config.Delegate = delegate{description}
	config.Alive = doorman{}
	config.Events = eventSink{c.events, c.ctx.Done()}
	config.Transport = c.opts.transport
	return config, nil
}

// resolve turns a name into the IP that gossip needs.
func resolve(address string) (ip string, port int, err error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return "", 0, err
	}
	if net.ParseIP(host) != nil {
		return host, port, nil
	}
	ips, err := net.LookupHost(host)
	if err != nil {
		return "", 0, fmt.Errorf("advertise %q: %w", address, err)
	}
	return ips[0], port, nil
}

// Self is this process.
func (c *Cluster) Self() Member { return c.self }

// Members are the processes that look alive, this one included, sorted by name. The slice is immutable.
func (c *Cluster) Members() []Member { return *c.snapshot.Load() }

// Settled reports whether those who are alive have had the time to be heard of: SettleTime has passed since Open. Before, who
// is not among Members may well be alive. That everybody of Join has answered would not do: who starts at the same time is
// heard of later. Once true it stays so.
func (c *Cluster) Settled() bool { return time.Since(c.opened) >= c.opts.SettleTime }

// Subscribe returns a channel that gets a token after every change of Members; changes in quick
// succession share one. stop ends it.
func (c *Cluster) Subscribe() (changed <-chan struct{}, stop func()) { return c.subscribers.add() }

// Close takes leave, so that the others do not have to find out, and ends all goroutines.
func (c *Cluster) Close() error {
	var err error
	c.once.Do(func() {
		c.cancel()
		if leaveErr := c.list.Leave(c.opts.LeaveTimeout); leaveErr != nil {
			c.log.Warn("could not tell everybody about leaving", "error", leaveErr)
		}
		err = c.list.Shutdown()
		c.wg.Wait()
	})
	if err != nil {
		return fmt.Errorf("cluster: close: %w", err)
	}
	return nil
}

// subscribers hands out tokens.
type subscribers struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

func (s *subscribers) add() (<-chan struct{}, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[chan struct{}]struct{}{}
	}
	ch := make(chan struct{}, 1)
	s.all[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, ch)
	}
}

func (s *subscribers) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.all {
		select {
		case ch <- struct{}{}:
		default: // a token is waiting already
		}
	}
}
