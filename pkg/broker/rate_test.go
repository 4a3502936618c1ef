package broker

import (
	"testing"
	"time"
)

// A limit of 500 messages a second takes 500 ± 5 % in every second after the first burst, of clients that send everything
// at once; and nobody starves.
func TestPublishRateIsPrecise(t *testing.T) {
	const rate, seconds = 500, 4
	size := int64(len(sectionOf(t, "x")))
	messages, bytes := Rate{Messages: rate}, Rate{Bytes: rate * size}
	for what, limit := range map[string]struct{ broker, topic, namespace Rate }{
		"namespace-messages": {namespace: messages},
		"namespace-bytes":    {namespace: bytes},
		"topic-messages":     {topic: messages},
		"topic-bytes":        {topic: bytes},
		"broker-messages":    {broker: messages},
		"broker-bytes":       {broker: bytes},
		"lower-broker":       {broker: Rate{Messages: rate, Bytes: 10 * rate * size}, topic: Rate{Messages: 2 * rate}},
		"lower-topic":        {broker: Rate{Messages: 2 * rate}, topic: messages},
		"lower-namespace":    {broker: Rate{Messages: 2 * rate}, topic: Rate{Messages: 1}, namespace: messages},
		"equal":              {broker: messages, topic: messages},
		"equal-bytes":        {broker: bytes, topic: messages},
	} {
		for _, clients := range []int{1, 5} {
			t.Run(what, func(t *testing.T) {
				configure := func(o *Options) { o.Admission.BrokerRate, o.Admission.TopicRate = limit.broker, limit.topic }
				bubble(t, configure, func(g *stage) {
					if limit.namespace != (Rate{}) {
						g.limitNamespace(limit.namespace)
					}
					start := time.Now()
					stages := []*stage{g}
					for len(stages) < clients {
						stages = append(stages, &stage{peer: g.join(), s: g.s})
					}
					for _, other := range stages {
						go other.read(other.conn)
						var b []byte
						for i := range uint64(rate * (seconds + 2) * 2 / (clients + 1)) {
							b = append(b, sendFrame(t, 1, i, "x")...)
						}
						go func() { _, _ = other.conn.Write(b) }()
					}
					elapse(seconds*time.Second - time.Since(start))
					var windows [seconds]int
					for i, other := range stages {
						_ = other.conn.Close()
						n := len(other.stored())
						for _, at := range other.mu.at {
							windows[min(int(at/time.Second), seconds-1)]++
						}
						if fair := rate * seconds / clients; n < fair/2 {
							t.Errorf("client %d got %d through, its part is %d", i, n, fair)
						}
					}
					if windows[0] < rate*19/20 || windows[0] > 2*rate*21/20 {
						t.Errorf("the first second brought %d", windows[0])
					}
					for i, n := range windows[1 : seconds-1] {
						if n < rate*95/100 || n > rate*105/100 {
							t.Errorf("second %d brought %d: %v", i+1, n, windows)
						}
					}
					t.Logf("%s, %d clients: %v", what, clients, windows)
				})
			})
		}
	}
}

func sectionOf(t *testing.T, body string) []byte {
	f := sendFrame(t, 1, 1000, body) // as long as most of a few thousand
	// total size, command size, command; the rest is the payload as it is counted
	command := int(f[4])<<24 | int(f[5])<<16 | int(f[6])<<8 | int(f[7])
	return f[8+command:]
}

// Rates can be changed while clients wait, and taken away.
func TestPublishRateChanges(t *testing.T) {
	bubble(t, nil, func(g *stage) {
		go g.read(g.conn)
		send := func(first, n uint64) {
			var b []byte
			for i := range n {
				b = append(b, sendFrame(t, 1, first+i, "x")...)
			}
			g.push(b)
		}
		count := func(d time.Duration, want int) {
			t.Helper()
			elapse(d)
			if n := len(g.stored()); n < want-1 || n > want+1 {
				t.Errorf("%d messages, want %d", n, want)
			}
		}
		g.limitNamespace(Rate{Messages: 10})
		send(0, 3000)
		count(10*time.Millisecond, 10)
		count(10*time.Second, 110)
		g.limitNamespace(Rate{Messages: 100})
		count(10*time.Second, 1110)
		g.s.SetBrokerPublishRate(Rate{Messages: 1}) // first: between the two nothing is unlimited
		g.limitNamespace(Rate{})
		count(10*time.Second, 1121)
		g.s.SetBrokerPublishRate(Rate{})
		count(time.Second, 3000)
		g.idle()
	})
}

// Who comes when others wait stands behind them, even if there is a token by then.
func TestPublishRateLine(t *testing.T) {
	var l publishLimit
	now := time.Now()
	l.set(Rate{Messages: 2}, now)
	a, b, c := &conn{}, &conn{}, &conn{}
	if !l.pass(a, now) {
		t.Fatal("the burst does not pass")
	}
	l.spend(2, 10, now)
	if l.pass(a, now) || l.pass(b, now) {
		t.Fatal("passed without a token")
	}
	l.mu.timer.Stop()
	later := now.Add(1500 * time.Millisecond)
	if l.pass(c, later) {
		t.Error("overtook")
	}
	called := l.call(later) // two tokens
	if len(called) != 2 || called[0] != a || called[1] != b {
		t.Fatalf("%d were called", len(called))
	}
	a.called = &l
	if !l.pass(a, later) {
		t.Error("was called and does not pass")
	}
	l.forget(c)
	if !l.pass(b, later) {
		t.Error("nobody waits, and there is a token")
	}
	l.mu.timer.Stop()
}

// A count that a client makes up costs at most a minute.
func TestPublishRateDebt(t *testing.T) {
	bubble(t, func(o *Options) { o.Admission.TopicRate.Messages = 10 }, func(g *stage) {
		go g.read(g.conn)
		g.push(batchFrame(t, 1, 0, 1<<20))
		g.push(sendFrame(t, 1, 1<<32, "x"))
		if n := len(g.stored()); n != 1 {
			t.Fatalf("%d receipts", n)
		}
		elapse(59 * time.Second)
		if n := len(g.stored()); n != 1 {
			t.Errorf("%d receipts within a minute", n)
		}
		elapse(2 * time.Second)
		if n := len(g.stored()); n != 2 {
			t.Errorf("%d receipts after it", n)
		}
	})
}

// Who waits for a debt to be paid is called by the rate that counts now, not by the one before; and a debt is never more than
// a minute, also when the rate becomes lower.
func TestPublishRateDebtAfterChange(t *testing.T) {
	for rate, wait := range map[int64]time.Duration{1000: time.Second, 1: 61 * time.Second} {
		bubble(t, func(o *Options) { o.Admission.TopicRate.Messages = 10 }, func(g *stage) {
			go g.read(g.conn)
			g.push(batchFrame(t, 1, 0, 1<<20))
			g.push(sendFrame(t, 1, 1<<32, "x"))
			g.s.SetTopicPublishRate(Rate{Messages: rate})
			elapse(wait / 2)
			if n := len(g.stored()); n != 1 {
				t.Errorf("%d a second: %d receipts before the debt is paid", rate, n)
			}
			elapse(wait - wait/2)
			if n := len(g.stored()); n != 2 {
				t.Errorf("%d a second: %d receipts after %v", rate, n, wait)
			}
		})
	}
}

// A topic that closes lets go of who waits for its rate.
func TestPublishRateUnload(t *testing.T) {
	bubble(t, func(o *Options) { o.Admission.TopicRate.Messages = 1 }, func(g *stage) {
		b := append(sendFrame(t, 1, 0, "a"), sendFrame(t, 1, 1, "b")...)
		g.push(append(b, lookupFrame(t)...))
		if why, _ := g.throttles(); why != throttleTopicRate {
			t.Fatalf("throttled for %b", why)
		}
		start := time.Now()
		if err := g.s.Unload(g.t.Context(), name(1)); err != nil {
			t.Fatal(err)
		}
		g.onLoop(func() {})
		if why, _ := g.throttles(); why != 0 || time.Since(start) > 100*time.Millisecond {
			t.Errorf("throttled for %b after %v", why, time.Since(start))
		}
		go g.read(g.conn)
	})
}
