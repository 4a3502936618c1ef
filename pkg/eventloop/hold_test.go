package eventloop_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"geminga/pkg/eventloop"
)

// on runs f on the loop and waits for it.
func on(l *eventloop.Loop, f func()) {
	done := make(chan struct{})
	l.Post(eventloop.TaskFunc(func() { f(); close(done) }))
	<-done
}

// settled lets the loop go round a few times, so that it has read what it is going to read.
func settled(l *eventloop.Loop) {
	for range 5 {
		on(l, func() {})
	}
}

// onLoop reports whether sockets are read by the loop itself. A goroutine that reads may be at it when reads are held;
// then what this one read brings is delivered.
func (k kind) onLoop() bool {
	return !k.pipe && !k.tls && k.backend != eventloop.Portable && defaultIsEpoll()
}

func TestHeldLoopReadsNothing(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		h := &echo{}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		l := r.group.Loops()[0]
		c := r.dial()
		<-send(c, frame(100, 1))
		expect(t, c, frame(100, 1))
		on(l, l.HoldReads)
		if !k.onLoop() {
			<-send(c, frame(10, 1)) // brought by the read that is under way
			expect(t, c, frame(10, 1))
		}
		late := r.dialQuietly
		if k.tls {
			late = nil // its handshake would wait
		}
		settled(l) // the figures are published at the end of a turn
		before, read := h.frames.Load(), r.group.SocketReads()
		b := frame(1<<20, 2)
		done := send(c, append(b, b...))
		settled(l)
		if h.frames.Load() != before || r.group.SocketReads() != read {
			t.Errorf("%d frames, %d bytes while held", h.frames.Load()-before, r.group.SocketReads()-read)
		}
		if late != nil {
			d := late(t)
			defer func() { _ = d.Close() }()
			within(t, "opened", func() bool { return h.opened.Load() == 2 })
			sent := send(d, frame(5, 3))
			settled(l)
			if h.frames.Load() != before {
				t.Error("a new connection is read while held")
			}
			on(l, l.FreeReads)
			expect(t, d, frame(5, 3))
			<-sent
		}
		on(l, l.FreeReads)
		expect(t, c, append(b, b...))
		<-done
	})
}

// TestHeldLoopEndsFrames checks that the rest of a frame is read while reads are held, and no byte beyond it.
func TestHeldLoopEndsFrames(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		if k.tls {
			return // records are read as a whole
		}
		for _, first := range []int{1, 3, 4, 5, 90, 100_000} {
			h := &echo{onFrame: func(*eventloop.Conn, *eventloop.Root, []byte) (bool, error) { return false, nil }}
			r := start(t, k, h, eventloop.Options{Loops: 1})
			l := r.group.Loops()[0]
			c := r.dial()
			a, b := frame(200_000, 1), frame(50, 2)
			<-send(c, a[:first])
			within(t, "the beginning", func() bool { return r.group.SocketReads() == int64(first) })
			on(l, l.HoldReads)
			var rest []byte
			rest = append(append(append(rest, a[first:]...), b...), frame(1<<20, 3)...)
			done := send(c, rest)
			within(t, "the rest", func() bool { return h.frames.Load() >= 1 })
			settled(l)
			n := r.group.SocketReads()
			if k.onLoop() && n != int64(len(a)) || n > int64(len(a)+16<<10) {
				t.Errorf("after %d bytes: %d read, want %d", first, n, len(a))
			}
			on(l, l.FreeReads)
			within(t, "the others", func() bool { return h.frames.Load() == 3 })
			<-done
			_ = c.Close()
			r.stop()
		}
	})
}

// TestQueueDrainsWhileHeld: what a paused connection has read is delivered when it is resumed, one frame after another,
// and draining reads nothing.
func TestQueueDrainsWhileHeld(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var conn atomic.Pointer[eventloop.Conn]
		h := &echo{onOpened: func(c *eventloop.Conn) { conn.Store(c) }}
		var account eventloop.Account
		var kept atomic.Int64
		account.Changed = func(d int64) { kept.Add(d) }
		h.onFrame = func(c *eventloop.Conn, root *eventloop.Root, f []byte) (bool, error) {
			c.WriteRef(f, root)
			c.PauseRead()
			return true, nil
		}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		r.group.SetAccount(&account)
		l := r.group.Loops()[0]
		c := r.dial()
		var all []byte
		for i := range 4 {
			all = append(all, frame(100, byte(i))...)
		}
		<-send(c, all)
		expect(t, c, frame(100, 0))
		on(l, func() {
			if kept.Load() == 0 {
				t.Error("frames that wait keep nothing")
			}
			l.HoldReads()
		})
		more := send(c, frame(100, 9))
		for i := 1; i < 4; i++ {
			before := h.frames.Load()
			on(l, conn.Load().ResumeRead)
			expect(t, c, frame(100, byte(i)))
			if n := h.frames.Load() - before; n != 1 {
				t.Fatalf("%d frames at a time", n)
			}
		}
		on(l, conn.Load().ResumeRead) // nothing left
		settled(l)
		if n := h.frames.Load(); n != 4 {
			t.Errorf("draining has read: %d frames", n)
		}
		within(t, "nothing kept", func() bool { return kept.Load() == 0 })
		on(l, l.FreeReads)
		expect(t, c, frame(100, 9))
		<-more
		if kept.Load() < 0 {
			t.Errorf("%d bytes kept", kept.Load())
		}
	})
}

// TestAccountCountsRoots keeps one small frame of each of many connections, and counts what that pins.
func TestAccountCountsRoots(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		const conns = 50
		var kept, highest atomic.Int64
		account := &eventloop.Account{Changed: func(d int64) {
			n := kept.Add(d)
			for m := highest.Load(); n > m && !highest.CompareAndSwap(m, n); m = highest.Load() {
			}
		}}
		var mu sync.Mutex
		held := map[*eventloop.Root]int{}
		h := &echo{onFrame: func(_ *eventloop.Conn, root *eventloop.Root, _ []byte) (bool, error) {
			root.Retain()
			mu.Lock()
			held[root]++
			mu.Unlock()
			return false, nil
		}}
		r := start(t, k, h, eventloop.Options{Loops: 2})
		r.group.SetAccount(account)
		var cs []net.Conn
		for range conns {
			c := r.dial()
			cs = append(cs, c)
			<-send(c, frame(100, 1))
		}
		within(t, "all frames", func() bool { return h.frames.Load() == conns })
		settled(r.group.Loops()[0])
		settled(r.group.Loops()[1])
		mu.Lock()
		defer mu.Unlock()
		var want int64
		for root := range held {
			want += int64(root.Cap())
		}
		if got := kept.Load(); got != want {
			t.Errorf("%d bytes charged for %d roots of %d", got, len(held), want)
		}
		for _, c := range cs[:conns/2] { // a close changes nothing
			_ = c.Close()
		}
		within(t, "closed", func() bool { return h.closed.Load() == conns/2 })
		if got := kept.Load(); got != want {
			t.Errorf("%d bytes charged after closes, want %d", got, want)
		}
		// Off: the others stay charged until their last release, which comes on several goroutines.
		r.group.SetAccount(nil)
		var wg sync.WaitGroup
		for root, n := range held {
			for range n {
				wg.Go(root.Release)
			}
		}
		wg.Wait()
		if got := kept.Load(); got != 0 {
			t.Errorf("%d bytes charged in the end", got)
		}
	})
}

// TestAccountAppears sets an account while frames are kept on none: those stay uncounted, what is read from then on is
// counted.
func TestAccountAppears(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var kept atomic.Int64
		var roots []*eventloop.Root // loop-owned
		h := &echo{onFrame: func(_ *eventloop.Conn, root *eventloop.Root, _ []byte) (bool, error) {
			root.Retain()
			roots = append(roots, root)
			return false, nil
		}}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		l := r.group.Loops()[0]
		c := r.dial()
		<-send(c, frame(100, 1))
		within(t, "frame", func() bool { return h.frames.Load() == 1 })
		r.group.SetAccount(&eventloop.Account{Changed: func(d int64) { kept.Add(d) }})
		for i := range 3 {
			<-send(c, frame(100, 1))
			within(t, "frame", func() bool { return h.frames.Load() == int64(i+2) })
		}
		on(l, func() {
			var want int64
			seen := map[*eventloop.Root]bool{roots[0]: k.onLoop()}
			for _, root := range roots[1:] {
				if !seen[root] {
					want += int64(root.Cap())
					seen[root] = true
				}
			}
			if got := kept.Load(); got != want || want == 0 {
				t.Errorf("%d bytes charged, want %d", got, want)
			}
			for _, root := range roots {
				root.Release()
			}
		})
		if got := kept.Load(); got != 0 {
			t.Errorf("%d bytes charged in the end", got)
		}
	})
}
