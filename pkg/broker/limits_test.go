package broker

import (
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/bookietest"
	"geminga/pkg/eventloop"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// refused dials and returns how CONNECT is refused.
func refused(t *testing.T, s *Server) *pulsarpb.CommandError {
	t.Helper()
	p := dial(t, s)
	e := p.fails(&pulsarpb.BaseCommand{
		Type:    pulsarpb.BaseCommand_CONNECT.Enum(),
		Connect: &pulsarpb.CommandConnect{ClientVersion: proto.String("test"), ProtocolVersion: proto.Int32(protocol.Version)},
	})
	p.closed()
	return e
}

// Beyond the limit a client is told NotAllowedError, for no request, as Pulsar says it, and is closed; those that are there
// stay, and one that leaves makes room.
func TestConnectionLimits(t *testing.T) {
	for text, limits := range map[string]Limits{
		"Reached the maximum number of connections":                      {Connections: 2},
		"Reached the maximum number of connections on address 127.0.0.1": {ConnectionsPerIP: 2, Connections: 1000},
	} {
		s, _ := start(t, func(o *Options) { o.Limits = limits })
		one, two := connect(t, s), connect(t, s)
		for range 3 {
			e := refused(t, s)
			if e.GetError() != pulsarpb.ServerError_NotAllowedError || e.GetRequestId() != math.MaxUint64 || e.GetMessage() != text {
				t.Errorf("%+v, want %q", e, text)
			}
		}
		one.lookup(name(1))
		_ = two.conn.Close()
		eventually(t, "room for another", func() bool {
			s.conns.mu.Lock()
			defer s.conns.mu.Unlock()
			return s.conns.mu.all == 1
		})
		connect(t, s).lookup(name(1))
	}
}

// A client that is refused and says nothing is closed like any other that does not shake hands.
func TestRefusedAndSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := bookietest.New(bookietest.Options{})
		t.Cleanup(cluster.Close)
		s := startOn(t, cluster, func(o *Options) {
			inBubble(o)
			o.Limits.Connections = 1
		})
		pipe(t, s).handshake()
		silent := pipe(t, s)
		elapse(time.Minute)
		if _, err := silent.conn.Read(make([]byte, 1)); err == nil {
			t.Error("it is still there")
		}
	})
}

func TestConnectionsByAddress(t *testing.T) {
	l := connections{most: 3, mostPerIP: 2}
	at := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	a1, a2, b1, b2 := at("10.0.0.1", 1), at("10.0.0.1", 2), at("::1", 1), at("::1", 2)
	for _, a := range []net.Addr{a1, a2, b1} {
		if err := l.enter(a); err != nil {
			t.Error(err)
		}
	}
	if err := l.enter(b2); !errors.Is(err, errTooManyConns) || strings.Contains(err.Error(), "::1") {
		t.Errorf("a fourth: %v", err)
	}
	l.leave(b1)
	if err := l.enter(at("10.0.0.1", 3)); !errors.Is(err, errTooManyConns) || !strings.Contains(err.Error(), "10.0.0.1") {
		t.Errorf("a third of one address: %v", err)
	}
	for _, a := range []net.Addr{a1, a2} {
		l.leave(a)
	}
	if len(l.mu.byIP) != 0 || l.mu.all != 0 {
		t.Errorf("%+v", l.mu.byIP)
	}
}

func tooMany(t *testing.T, what string, code *pulsarpb.ServerError) {
	t.Helper()
	if code == nil || *code != pulsarpb.ServerError_TooManyRequests {
		t.Errorf("%s: %v", what, code)
	}
}

// While the metadata is silent, lookups pile up to the limit of the connection or of the broker; then clients are told
// TooManyRequests, on which they try again. Every answer makes room.
func TestLookupLimits(t *testing.T) {
	for what, limits := range map[string]Limits{"connection": {Requests: 3}, "broker": {Lookups: 3}} {
		synctest.Test(t, func(t *testing.T) {
			s, store := startHeld(t, func(o *Options) { o.Limits = limits })
			p := pipe(t, s)
			p.handshake()
			store.hold()
			for range 3 {
				p.send(lookupCommand(name(1), p.id()))
			}
			tooMany(t, what, p.lookup(name(2)).Error)
			p.send(partitionsCommand(name(1), p.id()))
			tooMany(t, what, p.expect(pulsarpb.BaseCommand_PARTITIONED_METADATA_RESPONSE).PartitionMetadataResponse.Error)
			if what == "connection" {
				tooMany(t, what, p.fails(producerCommand(name(1), 1, *p.id(), "")).Error)
				tooMany(t, what, p.fails(subscribing{topic: name(1), name: "s"}.command(p.id())).Error)
				other := pipe(t, s)
				other.handshake()
				other.send(lookupCommand(name(1), other.id()))
				defer other.expect(pulsarpb.BaseCommand_LOOKUP_RESPONSE)
			}
			store.release()
			for range 3 {
				if r := p.expect(pulsarpb.BaseCommand_LOOKUP_RESPONSE).LookupTopicResponse; r.Error != nil {
					t.Errorf("%s: %v", what, r)
				}
			}
			p.producer(name(1), 1, "")
			p.subscribe(subscribing{topic: name(1), name: "s"})
			if n := s.lookups.inside.Load(); what == "broker" && n != 0 {
				t.Errorf("%d lookups are counted for ever", n)
			}
		})
	}
}

// Clients that leave while their lookups wait for the metadata take no place with them.
func TestLookupsOfTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := startHeld(t, func(o *Options) { o.Limits = Limits{Lookups: 9, TopicLoads: 1} })
		for round := range 3 {
			store.hold()
			for i := range 3 {
				p := pipe(t, s)
				p.handshake()
				topic := name(10*round + i)
				p.send(lookupCommand(topic, p.id()))
				p.send(partitionsCommand(topic, p.id()))
				p.send(&pulsarpb.BaseCommand{
					Type:                 pulsarpb.BaseCommand_GET_TOPICS_OF_NAMESPACE.Enum(),
					GetTopicsOfNamespace: &pulsarpb.CommandGetTopicsOfNamespace{RequestId: p.id(), Namespace: proto.String("public/default")},
				})
				p.send(producerCommand(topic, 1, *p.id(), ""))
				synctest.Wait()
				_ = p.conn.Close()
			}
			synctest.Wait()
			store.release()
			synctest.Wait()
			s.topics.mu.Lock()
			loading, queued := s.topics.mu.loading, len(s.topics.mu.queue)
			s.topics.mu.Unlock()
			if n := s.lookups.inside.Load(); n != 0 || loading != 0 || queued != 0 {
				t.Errorf("round %d: %d lookups are under way, %d topics load, %d wait", round, n, loading, queued)
			}
		}
	})
}

// However a request ends, it is not counted for ever.
func TestRequestsAreCountedDown(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.Limits.Requests = 1 })
	p := connect(t, s)
	for range 3 {
		p.producer(name(1), 1, "a")
		p.lookup(name(1))
		p.fails(producerCommand(name(1), 2, *p.id(), "a"))                     // busy
		p.fails(producerCommand("persistent://a b/c/d", 3, *p.id(), ""))       // no name
		p.fails(subscribing{topic: name(1), name: "", id: 9}.command(p.id()))  // no name
		p.fails(producerCommand(name(1)+"-unowned", 4, *p.id(), ""))           // not looked up
		p.subscribe(subscribing{topic: name(1), name: "s", id: 1})             // is there from the second time on
		p.fails(subscribing{topic: name(1), name: "s", id: 2}.command(p.id())) // busy
	}
}

// A connection may have so many producers and consumers; one that closes makes room.
func TestHandleLimits(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.Limits.Producers, o.Limits.Consumers = 2, 2 })
	p := connect(t, s)
	for i := range uint64(2) {
		p.producer(name(1), i, "")
		p.subscribe(subscribing{topic: name(1), name: "s", kind: pulsarpb.CommandSubscribe_Shared, id: i})
	}
	tooMany(t, "producers", p.fails(producerCommand(name(1), 7, *p.id(), "")).Error)
	shared := subscribing{topic: name(1), name: "s", kind: pulsarpb.CommandSubscribe_Shared, id: 7}
	tooMany(t, "consumers", p.fails(shared.command(p.id())).Error)
	connect(t, s).producer(name(1), 1, "")
	p.send(&pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_PRODUCER.Enum(),
		CloseProducer: &pulsarpb.CommandCloseProducer{ProducerId: proto.Uint64(0), RequestId: p.id()},
	})
	p.expect(pulsarpb.BaseCommand_SUCCESS)
	p.producer(name(1), 7, "")
}

// One consumer may subscribe twice in ten seconds; others are not touched, and the next period is new.
func TestSubscribeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := bookietest.New(bookietest.Options{})
		t.Cleanup(cluster.Close)
		s := startOn(t, cluster, func(o *Options) {
			inBubble(o)
			o.Limits.SubscribeRate = SubscribeRate{Times: 2, Period: 10 * time.Second}
		})
		p := pipe(t, s)
		p.handshake()
		again := func(id uint64) *pulsarpb.BaseCommand {
			return subscribing{topic: name(1), name: "s", kind: pulsarpb.CommandSubscribe_Shared, id: id}.command(p.id())
		}
		p.lookup(name(1))
		twice := func(id uint64) {
			t.Helper()
			for range 2 {
				p.send(again(id))
				p.expect(pulsarpb.BaseCommand_SUCCESS)
				p.send(closeConsumer(id, p.id()))
				p.expect(pulsarpb.BaseCommand_SUCCESS)
			}
		}
		twice(1)
		tooMany(t, "third", p.fails(again(1)).Error)
		twice(2)
		elapse(9 * time.Second)
		tooMany(t, "within the period", p.fails(again(1)).Error)
		elapse(2 * time.Second)
		twice(1)
		s.setLimits(&Limits{})
		twice(1)
	})
}

// Only so many topics are opened at a time; the others wait, and what is not wanted any more is not opened.
func TestTopicLoadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := startHeld(t, func(o *Options) { o.Limits.TopicLoads = 2 })
		p := pipe(t, s)
		p.handshake()
		for i := range 5 {
			p.lookup(name(i))
		}
		store.hold()
		for i := range 5 {
			p.send(producerCommand(name(i), uint64(i), *p.id(), ""))
		}
		synctest.Wait()
		loading := func() (loading, queued int) {
			s.topics.mu.Lock()
			defer s.topics.mu.Unlock()
			return s.topics.mu.loading, len(s.topics.mu.queue)
		}
		if n, queued := loading(); n != 2 || queued != 3 {
			t.Errorf("%d load, %d wait", n, queued)
		}
		s.topics.setLoads(3)
		synctest.Wait()
		if n, queued := loading(); n != 3 || queued != 2 {
			t.Errorf("with room for another: %d load, %d wait", n, queued)
		}
		unloaded := make(chan error, 1)
		s.topics.mu.Lock()
		last := s.topics.mu.queue[1]
		s.topics.mu.Unlock()
		s.topics.unload(last, func(err error) { unloaded <- err })
		synctest.Wait()
		store.release()
		kinds := map[pulsarpb.BaseCommand_Type]int{}
		for range 5 {
			cmd, _, err := p.frame()
			if err != nil {
				t.Fatal(err)
			}
			kinds[cmd.GetType()]++
		}
		if kinds[pulsarpb.BaseCommand_PRODUCER_SUCCESS] != 4 || kinds[pulsarpb.BaseCommand_ERROR] != 1 {
			t.Errorf("answers %v", kinds)
		}
		if err := <-unloaded; err != nil || last.t != nil {
			t.Errorf("what nobody wanted any more was opened: %v", err)
		}
		if n, queued := loading(); n != 0 || queued != 0 {
			t.Errorf("at the end %d load, %d wait", n, queued)
		}
	})
}

// A client that reads again after it was left alone for its output sends five requests a second for five seconds, and then
// what it likes.
func TestCooldown(t *testing.T) {
	bubble(t, func(o *Options) {
		a := &o.Admission
		a.HighWater, a.LowWater, a.PauseIfUnwritable, a.Cooldown, a.CooldownRate = 300, 100, true, 5*time.Second, 5
	}, func(g *stage) {
		var b []byte
		for range 40 {
			b = protocol.AppendPing(b)
		}
		for i := range uint64(100) {
			b = append(b, sendFrame(t, 1, i, "x")...)
		}
		g.push(b)
		if why, _ := g.throttles(); why != throttleOutbound {
			t.Fatalf("throttled for %b", why)
		}
		start := time.Now()
		go g.read(g.conn)
		for second, want := range []int{5, 10, 15, 20, 25, 100} {
			elapse(time.Duration(second)*time.Second + 500*time.Millisecond - time.Since(start))
			if n := len(g.stored()); n != want {
				t.Errorf("%d messages in second %d, want %d", n, second, want)
			}
		}
		g.idle()
	})
}

func lookupCommand(topic string, request *uint64) *pulsarpb.BaseCommand {
	return &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_LOOKUP.Enum(), LookupTopic: &pulsarpb.CommandLookupTopic{Topic: &topic, RequestId: request},
	}
}

func partitionsCommand(topic string, request *uint64) *pulsarpb.BaseCommand {
	return &pulsarpb.BaseCommand{
		Type:              pulsarpb.BaseCommand_PARTITIONED_METADATA.Enum(),
		PartitionMetadata: &pulsarpb.CommandPartitionedTopicMetadata{Topic: &topic, RequestId: request},
	}
}

func closeConsumer(id uint64, request *uint64) *pulsarpb.BaseCommand {
	return &pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_CONSUMER.Enum(),
		CloseConsumer: &pulsarpb.CommandCloseConsumer{ConsumerId: &id, RequestId: request},
	}
}

// startHeld starts a server in a bubble, whose store can be held back.
func startHeld(t *testing.T, change func(*Options)) (*Server, *heldStore) {
	t.Helper()
	store := &heldStore{}
	cluster := bookietest.New(bookietest.Options{})
	t.Cleanup(cluster.Close)
	s := startOn(t, cluster, func(o *Options) {
		inBubble(o)
		change(o)
		store.Store, o.Store = o.Store, store
	})
	return s, store
}

// heldStore is a Store whose reads can be held back.
type heldStore struct {
	managedledger.Store
	mu struct {
		sync.Mutex
		held    bool
		waiting []func()
	}
}

func (h *heldStore) Get(key string, done func(metadata.Item, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.held {
		h.mu.waiting = append(h.mu.waiting, func() { h.Store.Get(key, done) })
		return
	}
	h.Store.Get(key, done)
}

func (h *heldStore) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.held = true
}

func (h *heldStore) release() {
	h.mu.Lock()
	waiting := h.mu.waiting
	h.mu.held, h.mu.waiting = false, nil
	h.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

// inBubble makes a broker that lives in virtual time and is reached through pipes.
func inBubble(o *Options) {
	o.quiet, o.Backend, o.Loops, o.ExecutorThreads, o.KeepAliveInterval = true, eventloop.Portable, 1, 1, time.Hour
}
