package broker

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"geminga/rpc/pulsarpb"
)

// limiter is a frameMemory without a broker. use is what all roots take.
type limiter struct {
	frameMemory
	use     atomic.Int64
	changes atomic.Int64
}

func newLimiter(mode FrameMemoryMode, limit, budget int64) *limiter {
	l := &limiter{}
	l.init(&Admission{FrameMemory: mode, MaxPublishBuffer: limit, MaxDirectMemory: budget}, l.use.Load, func() { l.changes.Add(1) })
	return l
}

// The thresholds of every mode, one step after the other: what is kept, what all roots take, whether reads are held.
func TestFrameMemoryThresholds(t *testing.T) {
	const mb = 1 << 20
	type step struct {
		kept, use int64
		held      bool
	}
	for what, test := range map[string]struct {
		mode  FrameMemoryMode
		limit int64
		steps []step
	}{
		"enabled": {FrameMemoryEnabled, 256 * mb, []step{
			{256 * mb, 0, false}, {256*mb + 1, 0, true}, {256 * mb, 0, true}, {128*mb + 1, 0, true}, {128 * mb, 0, false},
			{256 * mb, 0, false}, {300 * mb, 0, true}, {0, 0, false},
		}},
		"tracking": {FrameMemoryTracking, 256 * mb, []step{{1000 * mb, 1000 * mb, false}}},
		"disabled": {FrameMemoryDisabled, 256 * mb, []step{{1000 * mb, 1000 * mb, false}}},
		"no limit": {FrameMemoryEnabled, 0, []step{{1000 * mb, 1000 * mb, false}}},
		"negative": {FrameMemoryAuto, -1, []step{{1000 * mb, 1000 * mb, false}}},
		"auto": {FrameMemoryAuto, 256 * mb, []step{
			{384 * mb, 900 * mb, false},                // not beyond 1.5 L
			{385 * mb, 849 * mb, false},                // use below 85 %
			{386 * mb, 850 * mb, true},                 // active
			{129 * mb, 650 * mb, true},                 // use not below 65 %, more than L/2
			{128 * mb, 650 * mb, false},                // free, still active
			{256 * mb, 650 * mb, false},                //
			{257 * mb, 650 * mb, true},                 // active: L counts
			{256 * mb, 649 * mb, false},                // inactive
			{384 * mb, 900 * mb, false},                //
			{385 * mb, 1000 * mb, true}, {0, 0, false}, // all at once
			{300 * mb, 900 * mb, false},
		}},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLimiter(test.mode, test.limit, 1000*mb)
			changes := int64(0)
			for i, s := range test.steps {
				was := l.throttled.Load()
				l.use.Store(s.use)
				l.changed(s.kept - l.used.Load())
				if l.throttled.Load() != s.held {
					t.Fatalf("step %d: held %t", i, !s.held)
				}
				if s.held != was {
					changes++
				}
			}
			if n := l.changes.Load(); n != changes {
				t.Errorf("%d notifications of %d changes", n, changes)
			}
		})
	}
}

// Mode and limit change at run time, and what they say holds at once.
func TestFrameMemoryReconfigured(t *testing.T) {
	l := newLimiter(FrameMemoryTracking, 100, 1000)
	l.use.Store(900)
	l.changed(120)
	held := func(what string, want bool) {
		t.Helper()
		if l.throttled.Load() != want {
			t.Errorf("%s: held %t", what, !want)
		}
	}
	mode := func(m FrameMemoryMode) { l.configure(func(p *FrameMemoryMode, _ *int64) { *p = m }) }
	limit := func(n int64) { l.configure(func(_ *FrameMemoryMode, p *int64) { *p = n }) }
	held("tracking", false)
	mode(FrameMemoryEnabled)
	held("enabled", true)
	mode(FrameMemoryAuto)
	held("auto, 1.2 L", false)
	limit(79)
	held("auto, more than 1.5 L", true)
	limit(100)
	held("auto stays active, between L/2 and L", true)
	limit(130)
	held("auto, below L after it was held", true)
	limit(240)
	held("auto, L/2", false)
	limit(119)
	held("auto is still active", true)
	mode(FrameMemoryDisabled)
	held("disabled", false)
	mode(FrameMemoryEnabled)
	held("enabled", true)
	limit(0)
	held("no limit", false)
	limit(1)
	held("limit", true)
	l.changed(-120)
	held("nothing kept", false)
}

// The last release comes between the decision to hold reads and the new thresholds: whoever decides sees it.
func TestFrameMemoryReleaseMeetsDecision(t *testing.T) {
	l := &limiter{}
	calls := 0
	use := func() int64 {
		if calls++; calls == 2 { // 1: is a look at the state worth it; 2: in the decision
			l.changed(-200)
		}
		return 900
	}
	l.init(&Admission{MaxPublishBuffer: 100, MaxDirectMemory: 1000}, use, func() { l.changes.Add(1) })
	l.changed(200)
	if calls < 2 || l.throttled.Load() || l.used.Load() != 0 {
		t.Errorf("held %t with %d kept after %d calls", l.throttled.Load(), l.used.Load(), calls)
	}
}

// Charges and releases on many goroutines: in the end the state fits what is counted, however they met the changes.
func TestFrameMemoryRaces(t *testing.T) {
	for seed := range uint64(30) {
		l := newLimiter(FrameMemoryEnabled, 1000, 10_000)
		var wg sync.WaitGroup
		for g := range uint64(4) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, g))
				var mine []int64
				for range 500 {
					if len(mine) > 0 && r.IntN(2) == 0 {
						l.use.Add(-mine[0])
						l.changed(-mine[0])
						mine = mine[1:]
						continue
					}
					n := 1 + r.Int64N(200)
					l.use.Add(n)
					l.changed(n)
					mine = append(mine, n)
				}
				for _, n := range mine {
					l.use.Add(-n)
					l.changed(-n)
				}
			})
		}
		wg.Go(func() {
			for i := range 100 {
				l.configure(func(m *FrameMemoryMode, limit *int64) {
					*m, *limit = []FrameMemoryMode{FrameMemoryEnabled, FrameMemoryAuto, FrameMemoryTracking}[i%3], int64(500+i)
				})
			}
			l.configure(func(m *FrameMemoryMode, _ *int64) { *m = FrameMemoryEnabled })
		})
		wg.Wait()
		if l.throttled.Load() || l.used.Load() != 0 {
			t.Fatalf("seed %d: held %t by %d bytes", seed, l.throttled.Load(), l.used.Load())
		}
	}
}

// Many connections each keep one small message that storage does not answer. What that pins is counted to the
// byte, in the modes that count, and shown; ENABLED stops reading at the limit and goes on when storage answers.
func TestSmallFramesPinRoots(t *testing.T) {
	const conns = 200
	for _, mode := range []FrameMemoryMode{FrameMemoryDisabled, FrameMemoryTracking, FrameMemoryAuto, FrameMemoryEnabled} {
		t.Run(mode.String(), func(t *testing.T) {
			reader := sdk.NewManualReader()
			bubble(t, func(o *Options) {
				o.Admission.FrameMemory, o.Admission.MaxPublishBuffer = mode, 64<<20
				o.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(reader))
			}, func(g *stage) {
				g.s.SetFrameMemoryLimit(conns / 2 << 10) // half of what they are going to keep: a root of 1 KiB each
				peers := []*peer{g.peer}
				for len(peers) < conns {
					peers = append(peers, g.join())
				}
				g.cluster.Hold(1)
				for _, p := range peers {
					go func() { _, _ = p.conn.Write(sendFrame(t, 1, 0, string(make([]byte, 100)))) }()
					synctest.Wait()
				}
				_, held := g.throttles()
				used := g.s.memory.used.Load()
				switch mode {
				case FrameMemoryDisabled:
					if used != 0 || held {
						t.Errorf("%d bytes counted, held %t", used, held)
					}
				case FrameMemoryEnabled:
					// Above the limit by one root when it stops; every reader had asked for its bytes before, though.
					if used <= conns/2<<10 || used > conns<<10 || !held {
						t.Errorf("%d bytes counted, held %t", used, held)
					}
				default:
					if used != conns<<10 || held {
						t.Errorf("%d bytes counted, want %d; held %t", used, conns<<10, held)
					}
				}
				usage, throttled := g.gauges(reader)
				if usage != used || throttled != (mode == FrameMemoryEnabled) {
					t.Errorf("metrics say %d, %t", usage, throttled)
				}
				g.cluster.Release(1)
				for _, p := range peers {
					p.expect(pulsarpb.BaseCommand_SEND_RECEIPT)
				}
				time.Sleep(time.Minute) // the cache copies; what is left is written
				g.idle()
				if usage, throttled := g.gauges(reader); usage != 0 || throttled {
					t.Errorf("in the end metrics say %d, %t", usage, throttled)
				}
			})
		})
	}
}

func (g *stage) gauges(r *sdk.ManualReader) (usage int64, throttled bool) {
	var data metricdata.ResourceMetrics
	if err := r.Collect(g.t.Context(), &data); err != nil {
		g.t.Fatal(err)
	}
	found := 0
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			gauge, ok := m.Data.(metricdata.Gauge[int64])
			if !ok {
				continue
			}
			switch m.Name {
			case "pulsar.broker.publish.in.progress.buffer.memory.usage":
				usage = gauge.DataPoints[0].Value
				found++
			case "pulsar.broker.publish.in.progress.buffer.memory.throttled":
				throttled = gauge.DataPoints[0].Value == 1
				found++
			}
		}
	}
	if found != 2 {
		g.t.Error("metrics are missing")
	}
	return usage, throttled
}

// Modes change while connections keep frames.
func TestFrameMemoryModesOnLiveConnections(t *testing.T) {
	bubble(t, func(o *Options) {
		o.Admission.FrameMemory, o.Admission.MaxPublishBuffer = FrameMemoryDisabled, 1
	}, func(g *stage) {
		go g.read(g.conn)
		g.onLoop(func() { g.s.states[0].inFlight.share = 0 })
		next := uint64(0)
		send := func() {
			g.push(sendFrame(t, 1, next, "x"))
			next++
		}
		kept := func(what string, bytes int64, held bool) {
			t.Helper()
			synctest.Wait()
			if n, h := g.s.memory.used.Load(), g.c.ec.Loop().Held; n != bytes {
				t.Errorf("%s: %d bytes kept, want %d", what, n, bytes)
			} else {
				g.onLoop(func() {
					if h() != held {
						t.Errorf("%s: held %t", what, !held)
					}
				})
			}
		}
		g.cluster.Hold(1)
		send()
		kept("disabled", 0, false)
		g.s.SetFrameMemoryMode(FrameMemoryTracking)
		send()
		kept("tracking", 1<<10, false)
		g.s.SetFrameMemoryMode(FrameMemoryEnabled)
		kept("enabled", 1<<10, true)
		g.s.SetFrameMemoryLimit(3 << 10)
		kept("enabled, higher limit", 1<<10, false)
		send()
		kept("enabled, another", 2<<10, false)
		g.s.SetFrameMemoryLimit(1)
		kept("enabled, lower limit", 2<<10, true)
		g.s.SetFrameMemoryMode(FrameMemoryDisabled)
		kept("disabled, still counting down", 2<<10, false)
		send()
		kept("disabled", 2<<10, false)
		g.s.SetFrameMemoryMode(FrameMemoryAuto)
		kept("auto", 2<<10, false)
		g.cluster.Release(1)
		time.Sleep(time.Second)
		kept("all stored", 0, false)
		if n := len(g.stored()); n != int(next) {
			t.Errorf("%d of %d receipts", n, next)
		}
	})
}

// AUTO takes effect when use of all roots passes 85 % of the budget, and ends below 65 %.
func TestFrameMemoryAutoOnLiveConnections(t *testing.T) {
	bubble(t, func(o *Options) {
		o.Admission.FrameMemory, o.Admission.MaxPublishBuffer, o.Admission.MaxDirectMemory = FrameMemoryAuto, 4<<10, 40<<10
	}, func(g *stage) {
		g.onLoop(func() { g.s.states[0].inFlight.share = 0 })
		g.cluster.Hold(1)
		peers := []*peer{g.peer}
		for {
			if _, held := g.throttles(); held {
				break
			}
			if len(peers) > 100 {
				t.Fatal("never held")
			}
			if used, use := g.s.memory.used.Load(), g.s.group.RootBytes(); used > 6<<10 && use >= 34<<10 {
				t.Fatalf("not held with %d kept, %d used", used, use)
			}
			p := peers[len(peers)-1]
			peers = append(peers, g.join())
			go func() { _, _ = p.conn.Write(sendFrame(t, 1, 0, "x")) }()
			synctest.Wait()
		}
		// What was in use at the decision is gone by now: buffers that are being written count for a moment. The exact
		// thresholds are TestFrameMemoryThresholds'; here what is kept cannot shrink while the bookies stand still.
		if used := g.s.memory.used.Load(); used <= 6<<10 {
			t.Errorf("held with %d kept", used)
		}
		g.cluster.Release(1)
		time.Sleep(time.Second)
		if _, held := g.throttles(); held || g.s.memory.used.Load() != 0 {
			t.Errorf("held with %d kept", g.s.memory.used.Load())
		}
	})
}

// Entries in the cache keep receive buffers, unless they are copied. The change counts for what comes after it.
func TestCopyEntriesAtRunTime(t *testing.T) {
	bubble(t, func(o *Options) {
		o.Admission.FrameMemory, o.Cache.CopyEntries = FrameMemoryTracking, false
	}, func(g *stage) {
		g.subscribe(subscribing{topic: name(1), name: "s", id: 1})
		g.publish(1, 0, "a")
		synctest.Wait()
		if n := g.s.memory.used.Load(); n == 0 {
			t.Error("the cache keeps no receive buffer")
		}
		g.s.SetCopyEntries(true)
		before := g.s.memory.used.Load()
		g.publish(1, 1, "b")
		synctest.Wait()
		if n := g.s.memory.used.Load(); n != before {
			t.Errorf("%d bytes kept with what was there before, %d now", before, n)
		}
		time.Sleep(5 * time.Second) // the cache lets go of the first
		if n := g.s.memory.used.Load(); n != 0 {
			t.Errorf("%d bytes kept", n)
		}
		g.s.SetCopyEntries(false)
		g.publish(1, 2, "c")
		synctest.Wait()
		if n := g.s.memory.used.Load(); n == 0 {
			t.Error("the cache copies still")
		}
	})
}
