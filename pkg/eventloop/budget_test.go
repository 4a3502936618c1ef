package eventloop_test

import (
	"net"
	"sync/atomic"
	"testing"

	"geminga/pkg/eventloop"
)

// TestOutboundBudget has many peers that read nothing and one that does: together they are given no more than the
// budget and a piece each, the one that reads gets everything, and when the others read they get the rest.
func TestOutboundBudget(t *testing.T) {
	const (
		deaf  = 100
		piece = 4 << 10
		limit = 1 << 20
		each  = 32 // pieces for every peer
	)
	gives := map[*eventloop.Conn]int{} // loop-owned
	var given atomic.Int64
	give := func(c *eventloop.Conn) {
		for gives[c] < each && c.Writable() {
			gives[c]++
			given.Add(1)
			c.Write(frame(piece-4, byte(gives[c])))
		}
	}
	h := &echo{onOpened: give, onWritable: give}
	h.onClosed = func(c *eventloop.Conn, _ error) { delete(gives, c) }
	r := start(t, kinds()[2], h, eventloop.Options{Loops: 1, MaxOutbound: limit})
	loop := r.group.Loops()[0]
	used := func() (n int) {
		on(loop, func() {
			loop.Conns(func(c *eventloop.Conn) bool { n += c.Outbound(); return true })
		})
		return n
	}
	var peers []net.Conn
	for range deaf {
		peers = append(peers, r.dial())
	}
	settled(loop)
	if n := used(); n <= limit || n > limit+(deaf+1)*piece {
		t.Errorf("%d bytes are unread, of a budget of %d", n, limit)
	}
	if loop.OutboundRoom() != 0 {
		t.Errorf("room for %d", loop.OutboundRoom())
	}
	all := func(c net.Conn) {
		for i := range each {
			expect(t, c, frame(piece-4, byte(i+1)))
		}
	}
	all(r.dial()) // one piece after the other
	if n := used(); n > limit+(deaf+1)*piece {
		t.Errorf("%d bytes are unread", n)
	}
	for _, c := range peers {
		all(c)
	}
	if n := given.Load(); n != each*(deaf+1) {
		t.Errorf("%d pieces", n)
	}
	within(t, "room again", func() bool { return loop.OutboundRoom() == limit })
}

// TestOutboundBudgetOfTheGone checks that the output of peers that go is not counted any more, whether it is in the
// hands of a writer or not.
func TestOutboundBudgetOfTheGone(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		const limit = 1 << 20
		h := &echo{onOpened: func(c *eventloop.Conn) {
			c.Write(frame(64<<10, 1))
			c.WriteRef(frame(20<<20, 1), nil)
		}}
		r := start(t, k, h, eventloop.Options{Loops: 1, MaxOutbound: limit})
		loop := r.group.Loops()[0]
		peers := []net.Conn{r.dial(), r.dial(), r.dial()}
		within(t, "no room", func() bool { return h.opened.Load() == 3 && loop.OutboundRoom() == 0 })
		for _, c := range peers {
			_ = c.Close()
		}
		within(t, "room again", func() bool { return loop.OutboundRoom() == limit })
	})
}
