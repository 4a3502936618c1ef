package eventloop_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"geminga/pkg/eventloop"
)

// TestAcceptSpreads has clients that connect all at once, through two listeners: the loops get as many of them each.
func TestAcceptSpreads(t *testing.T) {
	for _, k := range kinds()[:2] {
		t.Run(k.name, func(t *testing.T) {
			const loops, clients = 8, 400
			h := &echo{}
			r := start(t, k, h, eventloop.Options{Loops: loops})
			second, err := r.group.Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			conns := make([]net.Conn, clients)
			for i := range conns {
				wg.Go(func() {
					addr := r.addr
					if i%2 == 0 {
						addr = second.String()
					}
					c, err := net.Dial("tcp", addr)
					if err != nil {
						t.Error(err)
						return
					}
					conns[i] = c
				})
			}
			wg.Wait()
			within(t, "all accepted", func() bool { return h.opened.Load() == clients })
			least, most := clients, 0
			for _, l := range r.group.Loops() {
				n := 0
				on(l, func() { l.Conns(func(*eventloop.Conn) bool { n++; return true }) })
				least, most = min(least, n), max(most, n)
			}
			if most-least > 2 { // two accept at the same time
				t.Errorf("loops have between %d and %d of %d connections", least, most, clients)
			}
			for _, c := range conns {
				if c != nil {
					_ = c.Close()
				}
			}
		})
	}
}

// TestFirehose has one connection that always has more and a thousand that have one small frame each: these are served
// within as many turns as it takes to look at a thousand sockets, whatever the one sends.
func TestFirehose(t *testing.T) {
	if !kinds()[0].onLoop() {
		t.Skip("sockets are read by goroutines")
	}
	const slow = 1000
	var counting atomic.Bool
	var hose, turn, most, turns, served int // loop-owned
	h := &echo{}
	h.onFrame = func(_ *eventloop.Conn, _ *eventloop.Root, f []byte) (bool, error) {
		if len(f) > 100 {
			hose += len(f)
			turn += len(f)
		} else if counting.Load() {
			served++
		}
		return false, nil
	}
	h.onTurnEnd = func(*eventloop.Loop) {
		if counting.Load() && served < slow {
			turns++
			most = max(most, turn)
		}
		turn = 0
	}
	r := start(t, kinds()[0], h, eventloop.Options{Loops: 1})
	loop := r.group.Loops()[0]
	firehose := r.dial()
	more := make([]byte, 0, 1<<20)
	for len(more) < 1<<20 {
		more = append(more, frame(996, 1)...)
	}
	go func() {
		for {
			if _, err := firehose.Write(more); err != nil {
				return
			}
		}
	}()
	var conns []net.Conn
	for range slow {
		conns = append(conns, r.dial())
	}
	within(t, "all accepted and the hose running", func() bool {
		n := 0
		on(loop, func() { n = hose })
		return h.opened.Load() == slow+1 && n > 10<<20
	})
	// While the loop stands still all of them send; then their turns are counted.
	stand, begin := make(chan struct{}), make(chan struct{})
	loop.Post(eventloop.TaskFunc(func() { close(stand); <-begin; counting.Store(true) }))
	<-stand
	for _, c := range conns {
		if _, err := c.Write(frame(10, 1)); err != nil {
			t.Fatal(err)
		}
	}
	close(begin)
	within(t, "all served", func() bool {
		n := 0
		on(loop, func() { n = served })
		return n == slow
	})
	on(loop, func() {
		if turns > 10 || most > 70_000 {
			t.Errorf("%d turns, of which the hose had up to %d bytes each", turns, most)
		}
	})
	_ = firehose.Close()
}
