package broker

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/eventloop"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// stage is a broker with one loop and one group of bookies in a bubble of virtual time, and a client of it over a pipe.
type stage struct {
	*peer
	s       *Server
	cluster *bookietest.Cluster
	c       *conn
	reading sync.Once
	mu      struct {
		sync.Mutex
		receipts []uint64
		at       []time.Duration
	}
}

// bubble runs f with a stage whose client has producer 1 on a topic.
func bubble(t *testing.T, set func(*Options), f func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := bookietest.New(bookietest.Options{Groups: 1})
		t.Cleanup(cluster.Close)
		g := &stage{cluster: cluster, peer: &peer{t: t}}
		g.s = startOn(t, cluster, func(o *Options) {
			o.quiet, o.Backend, o.Loops, o.ExecutorThreads = true, eventloop.Portable, 1, 1
			o.Ledger.LedgerStallTimeout = time.Hour
			o.Cache.CopyEntries = true
			o.KeepAliveInterval = time.Hour
			if set != nil {
				set(o)
			}
		})
		g.peer = g.join()
		g.onLoop(func() { g.s.states[0].eachConn(func(c *conn) { g.c = c }) })
		f(g)
		_ = g.conn.Close()
		synctest.Wait()
	})
}

// join connects another client with a producer.
func (g *stage) join() *peer {
	p := pipe(g.t, g.s)
	p.handshake()
	p.producer(name(1), 1, "")
	_ = p.conn.SetDeadline(time.Time{})
	return p
}

func (g *stage) onLoop(f func()) {
	done := make(chan struct{})
	g.s.group.Loops()[0].Post(eventloop.TaskFunc(func() { f(); close(done) }))
	<-done
}

// read notes the receipts that come, until the connection ends.
func (g *stage) read(conn net.Conn) {
	start := time.Now()
	var b []byte
	for {
		b = append(b[:0], 0, 0, 0, 0)
		if _, err := io.ReadFull(conn, b); err != nil {
			return
		}
		b = append(b, make([]byte, binary.BigEndian.Uint32(b))...)
		if _, err := io.ReadFull(conn, b[4:]); err != nil {
			return
		}
		var f protocol.Frame
		var cmd pulsarpb.BaseCommand
		if f.Parse(b) != nil || f.Unmarshal(&cmd) != nil {
			return
		}
		if r := cmd.GetSendReceipt(); r != nil {
			g.mu.Lock()
			g.mu.receipts = append(g.mu.receipts, r.GetSequenceId())
			g.mu.at = append(g.mu.at, time.Since(start))
			g.mu.Unlock()
		}
	}
}

// stored returns the sequence ids of the receipts so far.
func (g *stage) stored() []uint64 {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.mu.receipts)
}

// elapse lets virtual time go by.
func elapse(d time.Duration) { time.Sleep(d) }

// push writes in the background: a pipe has no buffer.
func (g *stage) push(b []byte) {
	go func() { _, _ = g.conn.Write(b) }()
	synctest.Wait()
}

func (g *stage) wants(what string, ids ...uint64) {
	g.t.Helper()
	if got := g.stored(); !slices.Equal(got, ids) {
		g.t.Fatalf("%s: receipts %v, want %v", what, got, ids)
	}
}

// throttles returns why the connection is stopped, and whether its loop holds reads.
func (g *stage) throttles() (why throttle, held bool) {
	g.onLoop(func() { why, held = g.c.throttles, g.c.ec.Loop().Held() })
	return why, held
}

// pressure adds memory that others keep, so that the memory limit stays exceeded.
const pressure = 1 << 20

// reason is a way to stop a connection behind the frame A (sequence 0), in the same read as what follows.
type reason struct {
	name  string
	why   throttle
	set   func(*Options)
	first func(g *stage) []byte // A
	ids   []uint64              // receipts of A at once
	mute  bool                  // the client does not read before clear
	// clear takes the reason away until it comes again; what A left unanswered is answered.
	clear func(g *stage)
}

func reasons() []reason {
	send := func(n int) func(g *stage) []byte {
		return func(g *stage) (b []byte) {
			for i := range n {
				b = append(b, sendFrame(g.t, 1, uint64(i), "x")...)
			}
			return b
		}
	}
	second := func(*stage) { time.Sleep(1100 * time.Millisecond) }
	seconds := func(*stage) { time.Sleep(4 * time.Second) } // in which a frame of 33 bytes is earned
	slowly := func(n int) func(g *stage) []byte {
		return func(g *stage) []byte { g.cluster.Delay(1, time.Second); return send(n)(g) }
	}
	return []reason{
		{name: "topic rate", why: throttleTopicRate, first: send(1), ids: []uint64{0}, clear: second,
			set: func(o *Options) { o.Admission.TopicRate.Messages = 1 }},
		{name: "topic bytes", why: throttleTopicRate, first: send(1), ids: []uint64{0}, clear: seconds,
			set: func(o *Options) { o.Admission.TopicRate.Bytes = 10 }},
		{name: "broker rate", why: throttleBrokerRate, first: send(1), ids: []uint64{0}, clear: second,
			set: func(o *Options) { o.Admission.BrokerRate.Messages = 1 }},
		{name: "broker bytes", why: throttleBrokerRate, first: send(1), ids: []uint64{0}, clear: seconds,
			set: func(o *Options) { o.Admission.BrokerRate.Bytes = 10 }},
		{name: "pending sends", why: throttlePending, first: slowly(1), clear: second,
			set: func(o *Options) { o.MaxPendingPublishRequestsPerConnection = 1 }},
		{name: "bytes in flight", why: throttleBytes, first: slowly(1), clear: second,
			set: func(o *Options) { o.Admission.MaxPublishBuffer = 1 }},
		{name: "outbound", why: throttleOutbound, mute: true,
			first: func(*stage) (b []byte) {
				for range 40 {
					b = protocol.AppendPing(b)
				}
				return b
			},
			clear: func(g *stage) { g.reading.Do(func() { go g.read(g.conn) }); synctest.Wait() },
			set: func(o *Options) {
				o.Admission.HighWater, o.Admission.LowWater, o.Admission.PauseIfUnwritable = 300, 100, true
			}},
		{name: "namespace rate", why: throttleTopicRate, ids: []uint64{0}, clear: second,
			first: func(g *stage) []byte { g.limitNamespace(Rate{Messages: 1}); return send(1)(g) }},
		{name: "namespace bytes", why: throttleTopicRate, ids: []uint64{0}, clear: seconds,
			first: func(g *stage) []byte { g.limitNamespace(Rate{Bytes: 10}); return send(1)(g) }},
		{name: "cooldown", why: throttleCooldown, ids: []uint64{0}, clear: second,
			first: func(g *stage) []byte {
				g.onLoop(func() { g.c.cool.until = time.Now().Add(time.Hour) })
				return send(1)(g)
			},
			set: func(o *Options) { o.Admission.Cooldown, o.Admission.CooldownRate = time.Hour, 1 }},
	}
}

// limitNamespace gives the topics of public/default a rate, as an administrator does.
func (g *stage) limitNamespace(r Rate) {
	g.t.Helper()
	ns, err := protocol.ParseNamespaceName("public/default")
	if err == nil {
		err = g.s.Directory().SetPublishRate(g.t.Context(), ns, &r)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	synctest.Wait()
}

// begun writes A and rest at once and checks that the connection stops behind A.
func (r *reason) begun(g *stage, rest ...[]byte) {
	g.t.Helper()
	if !r.mute {
		go g.read(g.conn)
	}
	b := r.first(g)
	for _, x := range rest {
		b = append(b, x...)
	}
	if len(b) > 1024 {
		g.t.Fatal("more than one read")
	}
	g.push(b)
	g.wants("A", r.ids...)
	if why, _ := g.throttles(); why != r.why {
		g.t.Fatalf("throttled for %b, want %b", why, r.why)
	}
}

// next is the sequence id of the first SEND behind A.
func (r *reason) next() uint64 {
	if r.why == throttleOutbound {
		return 0
	}
	return 1
}

// all are the receipts up to the last SEND.
func all(last uint64) (ids []uint64) {
	for i := range last + 1 {
		ids = append(ids, i)
	}
	return ids
}

// eachReason runs f for every reason, with a memory limit that any frame exceeds.
func eachReason(t *testing.T, f func(g *stage, r *reason)) {
	for _, r := range reasons() {
		t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
			bubble(t, func(o *Options) {
				o.Admission.FrameMemory, o.Admission.MaxPublishBuffer = FrameMemoryEnabled, -1
				if r.set != nil {
					r.set(o)
				}
			}, func(g *stage) {
				g.s.SetFrameMemoryLimit(1)
				f(g, &r)
			})
		})
	}
}

// drainHeld clears the reason until the receipts have come, while reads stay held.
func (r *reason) drainHeld(g *stage, last uint64) {
	g.t.Helper()
	for i := 0; len(g.stored()) < int(last+1); i++ {
		if i > 10 {
			g.t.Fatalf("stalled at %v", g.stored())
		}
		r.clear(g)
		if _, held := g.throttles(); !held {
			g.t.Fatal("reads are free")
		}
	}
	g.wants("drained", all(last)...)
}

// Each frame of the queue throttles again; they come one by one.
func TestQueueThrottlesAgain(t *testing.T) {
	eachReason(t, func(g *stage, r *reason) {
		b := r.next()
		var rest [][]byte
		const frames = 5
		for i := range uint64(frames) {
			rest = append(rest, sendFrame(g.t, 1, b+i, "b"))
		}
		r.begun(g, rest...)
		g.s.memory.changed(pressure)
		before := len(g.stored())
		r.clear(g)
		if n := len(g.stored()) - before; r.why == throttleOutbound {
			g.wants("all at once", all(b+frames-1)...)
		} else if n == 0 || n >= frames {
			t.Fatalf("%d of %d frames in the first step", n, frames)
		}
		r.drainHeld(g, b+frames-1)
		time.Sleep(20 * time.Second)
		g.s.memory.changed(-pressure)
		g.idle()
	})
}

// The connection is closed with frames in its queue, by the client or by us: nothing of it stays.
func TestQueuedFrameClose(t *testing.T) {
	for _, ours := range []bool{false, true} {
		eachReason(t, func(g *stage, r *reason) {
			b := r.next()
			r.begun(g, sendFrame(g.t, 1, b, "b"), sendFrame(g.t, 1, b+1, "b"))
			g.s.memory.changed(pressure)
			_ = g.conn.Close()
			if ours {
				g.onLoop(func() { g.c.ec.Close(errReplaced) })
				g.onLoop(func() {})
				g.nobodyWaits()
			}
			time.Sleep(10 * time.Second)
			g.s.memory.changed(-pressure)
			time.Sleep(10 * time.Second)
			g.onLoop(func() {
				if !g.c.closed {
					t.Error("not closed")
				}
			})
			g.idle()
			p := g.join() // the loop serves others
			p.publish(1, 0, "x")
		})
	}
}

// idle checks that nothing is in flight, nothing kept and nobody waits.
func (g *stage) idle() {
	g.t.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	st := g.s.states[0]
	g.onLoop(func() {
		if st.inFlight.bytes != 0 || st.inFlight.full || len(st.inFlight.stopped) != 0 {
			g.t.Errorf("in flight: %+v", st.inFlight)
		}
		if g.c.ec.Loop().Held() {
			g.t.Error("reads are held")
		}
	})
	if n := g.s.memory.used.Load(); n != 0 {
		g.t.Errorf("%d bytes kept", n)
	}
	g.nobodyWaits()
}

// nobodyWaits checks that the lines of all rates are empty.
func (g *stage) nobodyWaits() {
	g.t.Helper()
	for _, h := range g.s.topics.all(nil) {
		for _, l := range []*publishLimit{&h.limit, &g.s.publishLimit} {
			l.mu.Lock()
			if len(l.mu.line) != 0 {
				g.t.Errorf("%d wait", len(l.mu.line))
			}
			l.mu.Unlock()
		}
	}
}

// A connection that is not read because of others' memory is neither pinged nor found dead, and its handshake has time.
func TestHeldReadsAreNoSilence(t *testing.T) {
	bubble(t, func(o *Options) { o.Admission.FrameMemory, o.KeepAliveInterval = FrameMemoryEnabled, 30*time.Second }, func(g *stage) {
		go g.read(g.conn)
		var answers []bool
		answer := func(alive bool) { answers = append(answers, alive) }
		g.onLoop(func() { g.c.probe(answer) })
		g.s.memory.changed(1 << 40)
		late := pipe(g.t, g.s) // no room to read CONNECT
		g.onLoop(func() { g.c.probe(answer) })
		time.Sleep(10 * time.Minute)
		g.onLoop(func() {
			if len(answers) != 2 || !answers[0] || !answers[1] || g.c.closed {
				t.Errorf("answers %v, closed %t", answers, g.c.closed)
			}
		})
		g.s.memory.changed(-1 << 40)
		late.handshake()
		g.push(sendFrame(t, 1, 0, "x"))
		g.wants("alive", 0)
	})
}
