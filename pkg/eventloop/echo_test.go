package eventloop_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"geminga/pkg/eventloop"
)

// echo answers length-prefixed frames with themselves. Hooks change that.
type echo struct {
	opened, closed atomic.Int64
	frames         atomic.Int64
	ticks          atomic.Int64
	maxFrame       int

	onOpened   func(c *eventloop.Conn)
	onFrame    func(c *eventloop.Conn, root *eventloop.Root, frame []byte) (stop bool, err error)
	onTurnEnd  func(l *eventloop.Loop)
	onWritable func(c *eventloop.Conn)
	onClosed   func(c *eventloop.Conn, err error)
	onTick     func(l *eventloop.Loop)
}

var errTooLong = errors.New("frame too long")

func (h *echo) Opened(c *eventloop.Conn) {
	h.opened.Add(1)
	if h.onOpened != nil {
		h.onOpened(c)
	}
}

func (h *echo) Data(c *eventloop.Conn, root *eventloop.Root, data []byte) (consumed, need int, err error) {
	limit := h.maxFrame
	if limit == 0 {
		limit = 6 << 20
	}
	for {
		rest := data[consumed:]
		if len(rest) < 4 {
			return consumed, 4, nil
		}
		n := int(binary.BigEndian.Uint32(rest))
		if n > limit {
			return consumed, 0, errTooLong
		}
		if len(rest) < 4+n {
			return consumed, 4 + n, nil
		}
		consumed += 4 + n
		h.frames.Add(1)
		if h.onFrame == nil {
			c.WriteRef(rest[:4+n], root)
			continue
		}
		stop, err := h.onFrame(c, root, rest[:4+n])
		if err != nil || stop {
			return consumed, 0, err
		}
	}
}

func (h *echo) TurnEnd(l *eventloop.Loop) {
	if h.onTurnEnd != nil {
		h.onTurnEnd(l)
	}
}

func (h *echo) Writable(c *eventloop.Conn) {
	if h.onWritable != nil {
		h.onWritable(c)
	}
}

func (h *echo) Closed(c *eventloop.Conn, err error) {
	h.closed.Add(1)
	if h.onClosed != nil {
		h.onClosed(c, err)
	}
}

func (h *echo) Tick(l *eventloop.Loop, _ time.Time) {
	h.ticks.Add(1)
	if h.onTick != nil {
		h.onTick(l)
	}
}

// kinds are the ways to reach a group; every test of the suite runs over each.
type kind struct {
	name    string
	backend eventloop.Backend
	pipe    bool
	tls     bool
	prepare func(*eventloop.Options)
}

func kinds() []kind {
	return []kind{
		{name: "default", backend: eventloop.DefaultBackend},
		{name: "portable", backend: eventloop.Portable},
		{name: "pipe", backend: eventloop.DefaultBackend, pipe: true},
		{name: "tls", backend: eventloop.DefaultBackend, tls: true},
	}
}

// rig is a group under test.
type rig struct {
	t     testing.TB
	kind  kind
	group *eventloop.Group
	addr  string
	close sync.Once
}

func start(t testing.TB, k kind, h eventloop.Handler, o eventloop.Options) *rig {
	t.Helper()
	o.Backend = k.backend
	if k.prepare != nil {
		k.prepare(&o)
	}
	g, err := eventloop.New(h, o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, kind: k, group: g}
	t.Cleanup(r.stop)
	var addr net.Addr
	switch {
	case k.pipe:
		return r
	case k.tls:
		addr, err = g.ListenTLS(t.Context(), "tcp", "127.0.0.1:0", serverTLS(t))
	default:
		addr, err = g.Listen(t.Context(), "tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	r.addr = addr.String()
	return r
}

func (r *rig) stop() {
	r.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.group.Close(ctx); err != nil {
			r.t.Error(err)
		}
		if n := r.group.LiveRoots(); n != 0 {
			r.t.Errorf("%d roots leaked", n)
		}
		if n := r.group.Conns(); n != 0 {
			r.t.Errorf("%d connections left", n)
		}
	})
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	var c net.Conn
	var err error
	switch {
	case r.kind.pipe:
		mine, theirs := net.Pipe()
		c, err = mine, r.group.Serve(theirs)
	case r.kind.tls:
		c, err = dialTLS(r.addr)
	default:
		c, err = net.Dial("tcp", r.addr)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func frame(n int, seed byte) []byte {
	b := make([]byte, 4+n)
	binary.BigEndian.PutUint32(b, uint32(n))
	const period = 256
	for i := range min(n, period) {
		b[4+i] = seed + byte(i*7)
	}
	for at := period; at < n; at *= 2 {
		copy(b[4+at:], b[4:4+at])
	}
	return b
}

// send writes in the background, because a pipe has no buffer.
func send(c net.Conn, b []byte) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(b)
		done <- err
	}()
	return done
}

func expect(t testing.TB, c io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil {
		t.Fatalf("after %d of %d bytes: %v", n, len(want), err)
	}
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("byte %d of %d is %#x, want %#x", i, len(want), got[i], want[i])
		}
	}
}

func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		<-tick.C
	}
}
