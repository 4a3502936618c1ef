package eventloop_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"geminga/pkg/eventloop"
)

var errRefused = errors.New("refused")

// refuser answers the first frame with itself and an error.
func refuser() *echo {
	return &echo{onFrame: func(c *eventloop.Conn, root *eventloop.Root, f []byte) (bool, error) {
		c.WriteRef(f, root)
		return true, errRefused
	}}
}

// TestLastAnswerArrives has a client that goes on sending while it is refused. It reads only when everything is sent:
// by then a connection that had been closed at once would have been reset.
func TestLastAnswerArrives(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		if k.pipe {
			return // whose ends share no kernel
		}
		h := refuser()
		r := start(t, k, h, eventloop.Options{Loops: 1, Linger: time.Hour})
		for range 20 {
			c := r.dial()
			if _, err := c.Write(frame(1000, 1)); err != nil {
				t.Fatal(err)
			}
			more := make([]byte, 64<<10)
			for range 64 {
				if _, err := c.Write(more); err != nil {
					t.Fatalf("what comes after the end is not taken: %v", err)
				}
			}
			expect(t, c, frame(1000, 1))
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("want the end, got %v", err)
			}
			// The end reaches the client a moment before the loop says so.
			within(t, "closed, as the answer is written", func() bool { return h.closed.Load() == h.opened.Load() })
			_ = c.Close()
		}
		within(t, "nothing left", func() bool { return r.group.Conns() == 0 })
	})
}

// TestLingeringEnds has clients that never close: some that read nothing, so that the last answer cannot be written, and
// some that send for ever.
func TestLingeringEnds(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		h := &echo{onFrame: func(c *eventloop.Conn, _ *eventloop.Root, f []byte) (bool, error) {
			if len(f) > 5 {
				c.WriteRef(frame(40<<20, 1), nil)
			}
			return true, errRefused
		}}
		r := start(t, k, h, eventloop.Options{Loops: 1, Linger: 50 * time.Millisecond, TickInterval: 10 * time.Millisecond})
		for i := range 4 {
			c := r.dial()
			<-send(c, frame(i, 1))
			if i < 2 {
				go func() {
					for b := make([]byte, 1<<10); ; {
						if _, err := c.Write(b); err != nil {
							return
						}
					}
				}()
			}
		}
		within(t, "all closed", func() bool { return h.closed.Load() == 4 && r.group.Conns() == 0 })
	})
}

// TestCloseWhileLingering closes the group with connections that linger.
func TestCloseWhileLingering(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		h := refuser()
		r := start(t, k, h, eventloop.Options{Loops: 2, Linger: time.Hour})
		for range 10 {
			c := r.dial()
			<-send(c, frame(10, 1))
			expect(t, c, frame(10, 1))
		}
		within(t, "all closed", func() bool { return h.closed.Load() == 10 })
		r.stop()
	})
}

// TestPeerGoesWhilePaused has peers that close, or half close, while nothing of theirs is read and more of it waits than
// will ever be.
func TestPeerGoesWhilePaused(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		if k.pipe {
			return
		}
		for what, set := range map[string]func(h *echo){
			"paused": func(h *echo) {
				h.onFrame = func(c *eventloop.Conn, _ *eventloop.Root, _ []byte) (bool, error) { c.PauseRead(); return true, nil }
			},
			"held": func(h *echo) {
				h.onFrame = func(c *eventloop.Conn, _ *eventloop.Root, _ []byte) (bool, error) {
					c.Loop().HoldReads()
					return false, nil
				}
			},
		} {
			t.Run(what, func(t *testing.T) {
				h := &echo{}
				set(h)
				r := start(t, k, h, eventloop.Options{Loops: 1, TickInterval: 10 * time.Millisecond})
				peers := []net.Conn{r.dial(), r.dial(), r.dial(), r.dial()} // first: a TLS handshake would be held too
				for i, c := range peers {
					<-send(c, frame(10, 1))
					within(t, "read", func() bool { return h.frames.Load() > 0 })
					<-send(c, frame(20, 1))
					if half, ok := c.(*net.TCPConn); ok && i%2 == 0 {
						_ = half.CloseWrite()
					} else {
						_ = c.Close()
					}
				}
				within(t, "all closed", func() bool { return h.closed.Load() == 4 && r.group.Conns() == 0 })
			})
		}
	})
}
