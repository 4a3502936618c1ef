package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// gate is the network of one node, which can be cut off in both directions.
type gate struct {
	memberlist.NodeAwareTransport
	closed  atomic.Bool
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
}

func newGate(t *testing.T) *gate {
	t.Helper()
	inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{"127.0.0.1"}, Logger: newMemberlistLogger(discard()),
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{NodeAwareTransport: inner, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), done: make(chan struct{})}
	go g.pump()
	return g
}

func (g *gate) pump() {
	for {
		select {
		case p := <-g.NodeAwareTransport.PacketCh():
			if !g.closed.Load() {
				select {
				case g.packets <- p:
				case <-g.done:
				}
			}
		case conn := <-g.NodeAwareTransport.StreamCh():
			if g.closed.Load() {
				conn.Close()
				continue
			}
			select {
			case g.streams <- conn:
			case <-g.done:
				conn.Close()
			}
		case <-g.done:
			return
		}
	}
}

func (g *gate) PacketCh() <-chan *memberlist.Packet { return g.packets }
func (g *gate) StreamCh() <-chan net.Conn           { return g.streams }

func (g *gate) Shutdown() error {
	defer close(g.done)
	return g.NodeAwareTransport.Shutdown()
}

func (g *gate) WriteTo(b []byte, addr string) (time.Time, error) {
	return g.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (g *gate) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	if g.closed.Load() {
		return time.Now(), nil // lost on the way
	}
	return g.NodeAwareTransport.WriteToAddress(b, addr)
}

func (g *gate) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if g.closed.Load() {
		return nil, errors.New("cut off")
	}
	return g.NodeAwareTransport.DialAddressTimeout(addr, timeout)
}

// crash ends without taking leave.
func (c *Cluster) crash() {
	c.once.Do(func() {
		c.cancel()
		_ = c.list.Shutdown()
		c.wg.Wait()
	})
}

func testOptions(name string, join ...*Cluster) Options {
	opts := Options{
		Name: name, Role: Broker, Cluster: "test", Bind: "127.0.0.1:0", Services: map[string]string{"pulsar": name + ":6650"},
		ProbeInterval: 100 * time.Millisecond, ProbeTimeout: 80 * time.Millisecond, SuspicionMult: 2,
		RejoinInterval: 300 * time.Millisecond, Logger: discard(),
	}
	for _, c := range join {
		opts.Join = append(opts.Join, c.Self().Address)
	}
	return opts
}

func open(t *testing.T, opts Options) *Cluster {
	t.Helper()
	c, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// sees waits until c sees exactly these members.
func sees(t *testing.T, c *Cluster, want ...*Cluster) {
	t.Helper()
	changed, stop := c.Subscribe()
	defer stop()
	var members []string
	for _, w := range want {
		members = append(members, w.Self().Name+" "+w.Self().Incarnation)
	}
	slices.Sort(members)
	deadline := time.After(10 * time.Second)
	for {
		var got []string
		for _, m := range c.Members() {
			got = append(got, m.Name+" "+m.Incarnation)
		}
		if slices.Equal(got, members) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s sees %v, want %v", c.Self().Name, got, members)
		}
	}
}

func TestMembersSeeEachOther(t *testing.T) {
	a := open(t, testOptions("a"))
	b := open(t, testOptions("b", a))
	bookie := testOptions("c", a)
	bookie.Role = Bookie
	c := open(t, bookie)
	for _, m := range []*Cluster{a, b, c} {
		sees(t, m, a, b, c)
		if got := m.Members()[1]; got.Role != Broker || got.Services["pulsar"] != "b:6650" || got.Address != b.Self().Address {
			t.Fatalf("%+v", got)
		}
		if brokers := WithRole(m.Members(), Broker); len(brokers) != 2 {
			t.Fatalf("brokers %v", brokers)
		}
	}
}

func TestLeaveIsSeenAtOnce(t *testing.T) {
	a := open(t, testOptions("a"))
	b := open(t, testOptions("b", a))
	sees(t, a, a, b)
	sees(t, b, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	sees(t, a, a)
}

// TestRestartIsAnotherIncarnation: a process that crashed and came back at the same address is told apart from
// itself, and takes part again without waiting for its old self to be declared dead.
func TestRestartIsAnotherIncarnation(t *testing.T) {
	a := open(t, testOptions("a"))
	b := open(t, testOptions("b", a))
	c := open(t, testOptions("c", a))
	sees(t, a, a, b, c)
	before := b.Self()
	b.crash()
	again := testOptions("b", a)
	again.Bind = before.Address
	b2 := open(t, again)
	if b2.Self().Incarnation <= before.Incarnation {
		t.Fatalf("incarnation %s after %s", b2.Self().Incarnation, before.Incarnation)
	}
	for _, m := range []*Cluster{a, b2, c} {
		sees(t, m, a, b2, c)
	}
}

// TestHealsAfterDeclaredDead: after a partition in which all have given each other up, nobody but the join loop
// brings them together.
func TestHealsAfterDeclaredDead(t *testing.T) {
	g := newGate(t)
	cut := testOptions("a")
	cut.transport = g
	a := open(t, cut)
	b := open(t, testOptions("b", a))
	c := open(t, testOptions("c", a))
	sees(t, a, a, b, c)
	sees(t, b, a, b, c)

	g.closed.Store(true)
	sees(t, a, a)
	sees(t, b, b, c)
	sees(t, c, b, c)

	g.closed.Store(false)
	for _, m := range []*Cluster{a, b, c} {
		sees(t, m, a, b, c)
	}
}

// The members have settled when their time has passed, whoever has answered until then.
func TestSettles(t *testing.T) {
	patient := testOptions("a")
	patient.SettleTime = time.Hour
	a := open(t, patient)
	hasty := testOptions("b", a)
	hasty.SettleTime = time.Nanosecond
	b := open(t, hasty)
	sees(t, a, a, b)
	if a.Settled() || !b.Settled() {
		t.Errorf("settled: %v with an hour to go, %v after a nanosecond", a.Settled(), b.Settled())
	}
}

func TestOtherClusterIsNotSeen(t *testing.T) {
	a := open(t, testOptions("a"))
	stranger := testOptions("x", a)
	stranger.Cluster = "other"
	x := open(t, stranger)
	b := open(t, testOptions("b", a))
	sees(t, a, a, b)
	sees(t, x, x)
}

func TestWrongKeyIsNotSeen(t *testing.T) {
	keyed := testOptions("a")
	keyed.SecretKey = []byte(strings.Repeat("k", 16))
	a := open(t, keyed)
	x := open(t, testOptions("x", a))
	keyed = testOptions("b", a)
	keyed.SecretKey = []byte(strings.Repeat("k", 16))
	b := open(t, keyed)
	sees(t, a, a, b)
	sees(t, x, x)
}

func TestMetaLength(t *testing.T) {
	opts := testOptions("a")
	opts.Services = map[string]string{"pulsar": strings.Repeat("h", memberlist.MetaMaxSize)}
	if _, err := Open(opts); !errors.Is(err, ErrMetaTooLarge) {
		t.Fatalf("err = %v", err)
	}
	opts.Services = map[string]string{"pulsar": strings.Repeat("h", memberlist.MetaMaxSize-40)}
	c := open(t, opts)
	sees(t, c, c)
}

func TestValidate(t *testing.T) {
	bad := Options{Name: "a#b", Role: "cook", SettleTime: -1, Bind: "nowhere", Join: []string{"x"}, SecretKey: []byte("short"), ProbeInterval: 1, ProbeTimeout: 2}
	bad.EnsureDefaults()
	err := bad.Validate()
	for _, want := range []string{"name", "role", "bind", "join", "cluster", "settle time", "secret key", "probe timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported: %v", want, err)
		}
	}
}

func TestPortTaken(t *testing.T) {
	a := open(t, testOptions("a"))
	opts := testOptions("b")
	opts.Bind = a.Self().Address
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), opts.Bind) {
		t.Fatalf("err = %v", err)
	}
}

// TestStrangersAreIgnored: gossip may bring anything.
func TestStrangersAreIgnored(t *testing.T) {
	meta, addr := []byte(`{"r":"broker"}`), net.IPv4(127, 0, 0, 1)
	for _, n := range []memberlist.Node{
		{Name: "noincarnation", Meta: meta, Addr: addr, Port: 1},
		{Name: "#x", Meta: meta, Addr: addr, Port: 1},
		{Name: "x#", Meta: meta, Addr: addr, Port: 1},
		{Name: "a#1", Meta: []byte("{"), Addr: addr, Port: 1},
		{Name: "a#1", Meta: []byte("{}"), Addr: addr, Port: 1},
		{Name: "a#1", Meta: make([]byte, 600), Addr: addr, Port: 1},
		{Name: "a#1", Addr: addr, Port: 1},
		{Name: "a#1", Meta: meta, Port: 1},
		{Name: "a#1", Meta: meta, Addr: addr},
		{},
	} {
		if m, ok := parseNode(&n); ok {
			t.Errorf("%q became %+v", n.Name, m)
		}
		if err := (doorman{}).NotifyAlive(&n); err == nil {
			t.Errorf("%q is let in", n.Name)
		}
	}
	if err := (doorman{}).NotifyAlive(&memberlist.Node{Name: "a#1", Meta: meta, Addr: addr, Port: 1}); err != nil {
		t.Error(err)
	}
}

// TestNoise: bytes that are no gossip change nothing, and fill no log.
func TestNoise(t *testing.T) {
	var lines lineCounter
	opts := testOptions("a")
	opts.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	a := open(t, opts)
	rng := rand.New(rand.NewSource(5))
	udp, err := net.Dial("udp", a.Self().Address)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for i := range 2000 {
		noise := make([]byte, 1+rng.Intn(300))
		rng.Read(noise)
		noise[0] = byte(i % 16) // a type of message that exists
		if _, err := udp.Write(noise); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			tcp, err := net.Dial("tcp", a.Self().Address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = tcp.Write(noise) // it may be closed already
			tcp.Close()
		}
	}
	b := open(t, testOptions("b", a))
	sees(t, a, a, b)
	sees(t, b, a, b)
	if n := lines.n.Load(); n == 0 || n > 3*complaintsMost {
		t.Errorf("%d lines in the log", n)
	}
}

type lineCounter struct{ n atomic.Int64 }

func (c *lineCounter) Write(b []byte) (int, error) {
	c.n.Add(1)
	return len(b), nil
}

func TestLimiter(t *testing.T) {
	var l limiter
	now := time.Unix(1000, 0)
	for i := range complaintsMost + 7 {
		if ok, _ := l.allow(now); ok != (i < complaintsMost) {
			t.Fatalf("line %d: %v", i, ok)
		}
	}
	if ok, held := l.allow(now.Add(complaintsEvery)); !ok || held != 7 {
		t.Errorf("next interval: %v, %d held", ok, held)
	}
}

// TestNewestLaws: the merge of live processes does not depend on order, grouping or repetition.
func TestNewestLaws(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	random := func() []Member {
		out := make([]Member, rng.Intn(6))
		for i := range out {
			out[i] = Member{Name: string(rune('a' + rng.Intn(3))), Role: Broker, Incarnation: fmt.Sprint(rng.Intn(4))}
		}
		return out
	}
	join := func(a, b []Member) []Member { return newest(slices.Concat(a, b)) }
	for range 1000 {
		a, b, c := random(), random(), random()
		if !reflect.DeepEqual(join(a, b), join(b, a)) {
			t.Fatal("not commutative", a, b)
		}
		if !reflect.DeepEqual(join(join(a, b), c), join(a, join(b, c))) {
			t.Fatal("not associative", a, b, c)
		}
		if !reflect.DeepEqual(join(a, a), newest(a)) {
			t.Fatal("not idempotent", a)
		}
	}
}
