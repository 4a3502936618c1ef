package eventloop_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"geminga/pkg/eventloop"
)

func each(t *testing.T, f func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}

func TestEcho(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		h := &echo{}
		r := start(t, k, h, eventloop.Options{Loops: 2})
		var wg sync.WaitGroup
		for i := range 20 {
			c := r.dial()
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for range 20 {
					b := frame(random.IntN(40_000), byte(i))
					for range random.IntN(3) {
						b = append(b, frame(random.IntN(200), byte(i))...)
					}
					done := send(c, b)
					expect(t, c, b)
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				_ = c.Close()
			})
		}
		wg.Wait()
		within(t, "all closed", func() bool { return h.closed.Load() == 20 })
		if n := h.opened.Load(); n != 20 {
			t.Errorf("%d opened", n)
		}
	})
}

func TestByteAtATime(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		r := start(t, k, &echo{}, eventloop.Options{Loops: 1})
		c := r.dial()
		b := append(frame(300, 1), frame(0, 2)...)
		b = append(b, frame(1, 3)...)
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, c, b)
	})
}

func TestLargeFrames(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		r := start(t, k, &echo{}, eventloop.Options{Loops: 1})
		var wg sync.WaitGroup
		for i := range 2 {
			c := r.dial()
			wg.Go(func() {
				b := append(frame(70_000, 9), frame(5<<20, byte(i))...)
				b = append(b, frame(300_000, byte(i+1))...)
				b = append(b, frame(10, 11)...)
				done := send(c, b)
				expect(t, c, b)
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestHandlerErrorCloses(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var got atomic.Value
		h := &echo{onClosed: func(_ *eventloop.Conn, err error) { got.Store(err) }}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		c := r.dial()
		<-send(c, []byte{0x7f, 0, 0, 0, 1})
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("still open")
		}
		within(t, "closed", func() bool { return h.closed.Load() == 1 })
		if err, _ := got.Load().(error); !errors.Is(err, errTooLong) {
			t.Errorf("closed because of %v", err)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var conn atomic.Pointer[eventloop.Conn]
		var paused atomic.Bool
		h := &echo{}
		h.onOpened = func(c *eventloop.Conn) { conn.Store(c) }
		h.onFrame = func(c *eventloop.Conn, root *eventloop.Root, f []byte) (bool, error) {
			c.WriteRef(f, root)
			if h.frames.Load()%3 == 1 { // stops in the middle of what was read
				c.PauseRead()
				c.PauseRead()
				paused.Store(true)
				return true, nil
			}
			return false, nil
		}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		c := r.dial()
		var b []byte
		for i := range 60 {
			b = append(b, frame(1000+i*100, byte(i))...)
		}
		done := send(c, b)
		go func() {
			for range 20 {
				within(t, "paused", paused.Load)
				before := h.frames.Load()
				paused.Store(false)
				conn.Load().Loop().Post(eventloop.TaskFunc(func() {
					if now := h.frames.Load(); now != before {
						t.Errorf("%d frames while paused", now-before)
					}
					conn.Load().ResumeRead()
					conn.Load().ResumeRead()
				}))
			}
		}()
		expect(t, c, b)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPauseStopsThePeer(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var conn atomic.Pointer[eventloop.Conn]
		h := &echo{onOpened: func(c *eventloop.Conn) {
			if !k.tls { // the handshake is part of reading
				c.PauseRead()
			}
			conn.Store(c)
		}}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		c := r.dial()
		within(t, "opened", func() bool { return conn.Load() != nil })
		if k.tls {
			<-send(c, frame(1, 1))
			expect(t, c, frame(1, 1))
			done := make(chan struct{})
			conn.Load().Loop().Post(eventloop.TaskFunc(func() { conn.Load().PauseRead(); close(done) }))
			<-done
		}
		before := h.frames.Load()
		b := frame(5<<20, 3)
		rest := bytes.Repeat(b, 2)
		done := send(c, rest)
		select {
		case err := <-done:
			t.Errorf("10 MiB went into a paused connection (%v)", err)
		case <-time.After(50 * time.Millisecond):
		}
		if h.frames.Load() != before {
			t.Error("frames while paused")
		}
		conn.Load().Loop().Post(eventloop.TaskFunc(func() { conn.Load().ResumeRead() }))
		expect(t, c, rest)
		<-done
	})
}

func TestCloseInEveryCallback(t *testing.T) {
	reason := errors.New("reason")
	places := map[string]func(h *echo){
		"opened": func(h *echo) { h.onOpened = func(c *eventloop.Conn) { c.Close(reason); c.Close(nil) } },
		"data": func(h *echo) {
			h.onFrame = func(c *eventloop.Conn, root *eventloop.Root, f []byte) (bool, error) {
				c.WriteRef(f, root)
				c.Close(reason)
				c.Write(f)
				c.ResumeRead()
				return false, nil
			}
		},
		"turn end": func(h *echo) {
			h.onTurnEnd = func(l *eventloop.Loop) {
				if h.frames.Load() >= 5 {
					l.Conns(func(c *eventloop.Conn) bool { c.Close(reason); return true })
				}
			}
		},
		"tick": func(h *echo) {
			h.onTick = func(l *eventloop.Loop) {
				if h.frames.Load() >= 5 {
					l.Conns(func(c *eventloop.Conn) bool { c.Close(reason); return true })
				}
			}
		},
		"task": func(h *echo) {
			h.onFrame = func(c *eventloop.Conn, _ *eventloop.Root, _ []byte) (bool, error) {
				c.Loop().Post(eventloop.TaskFunc(func() { c.Close(reason) }))
				return false, nil
			}
		},
		"writable": func(h *echo) {
			h.onFrame = func(c *eventloop.Conn, _ *eventloop.Root, _ []byte) (bool, error) {
				c.Write(make([]byte, 1<<20))
				return false, nil
			}
			h.onWritable = func(c *eventloop.Conn) { c.Close(reason) }
		},
		"after flush": func(h *echo) {
			h.onFrame = func(c *eventloop.Conn, root *eventloop.Root, f []byte) (bool, error) {
				c.WriteRef(f, root)
				c.CloseAfterFlush(reason)
				c.Write(f)
				return false, nil
			}
		},
		"closed": func(h *echo) {
			h.onFrame = func(c *eventloop.Conn, _ *eventloop.Root, _ []byte) (bool, error) {
				c.Close(reason)
				return false, nil
			}
			prev := h.onClosed
			h.onClosed = func(c *eventloop.Conn, err error) {
				prev(c, err)
				c.Close(nil)
				c.Write([]byte("x"))
				copy(c.Reserve(4), "late")
				c.Commit(4)
				c.PauseRead()
				c.ResumeRead()
				c.CloseAfterFlush(nil)
			}
		},
	}
	each(t, func(t *testing.T, k kind) {
		for place, set := range places {
			t.Run(place, func(t *testing.T) {
				var wrong atomic.Int64
				h := &echo{}
				h.onClosed = func(_ *eventloop.Conn, err error) {
					if !errors.Is(err, reason) {
						t.Logf("closed because of %v", err)
						wrong.Add(1)
					}
				}
				set(h)
				r := start(t, k, h, eventloop.Options{Loops: 1, TickInterval: 20 * time.Millisecond})
				var conns []net.Conn
				if k.tls && place == "opened" {
					return // the handshake fails, as it should
				}
				for range 5 {
					c := r.dial()
					send(c, frame(2000, 1))
					conns = append(conns, c)
				}
				for _, c := range conns {
					_, _ = io.Copy(io.Discard, c)
				}
				within(t, "all closed", func() bool { return h.closed.Load() == 5 })
				r.stop()
				if h.closed.Load() != 5 || h.opened.Load() != 5 {
					t.Errorf("%d opened, %d closed", h.opened.Load(), h.closed.Load())
				}
				if wrong.Load() != 0 {
					t.Error("wrong reasons")
				}
			})
		}
	})
}

func TestCloseAfterFlushWritesEverything(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		big := frame(3<<20, 5)
		h := &echo{onFrame: func(c *eventloop.Conn, _ *eventloop.Root, _ []byte) (bool, error) {
			c.Write(big)
			c.CloseAfterFlush(nil)
			return true, nil
		}}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		c := r.dial()
		<-send(c, frame(1, 1))
		expect(t, c, big)
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after the last byte: %v", err)
		}
	})
}

type countTask struct{ n *int }

func (c countTask) Run() { *c.n++ }

func TestPostsFromManyGoroutines(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		r := start(t, k, &echo{}, eventloop.Options{Loops: 2})
		const posters, posts = 8, 2000
		n := make([]int, 2) // loop-owned
		var wg sync.WaitGroup
		for range posters {
			wg.Go(func() {
				for i := range posts {
					l := r.group.Loops()[i%2]
					l.Post(countTask{&n[l.Index()]})
				}
			})
		}
		wg.Wait()
		for i, l := range r.group.Loops() {
			done := make(chan int)
			l.Post(eventloop.TaskFunc(func() { done <- n[i] }))
			if got := <-done; got != posters*posts/2 {
				t.Errorf("loop %d ran %d tasks", i, got)
			}
		}
	})
}

func TestCloseWhilePosting(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		h := &echo{}
		r := start(t, k, h, eventloop.Options{Loops: 2})
		for range 10 {
			c := r.dial()
			<-send(c, frame(10, 1))
			expect(t, c, frame(10, 1))
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var pending atomic.Int64 // bounds the flood: the loop runs all that is posted
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					for _, l := range r.group.Loops() {
						if pending.Load() > 100 {
							break
						}
						pending.Add(1)
						l.Post(eventloop.TaskFunc(func() {
							pending.Add(-1)
							l.Conns(func(c *eventloop.Conn) bool { c.Write([]byte("x")); return true })
						}))
					}
					runtime.Gosched()
				}
			})
		}
		wg.Go(func() {
			for range 4 {
				mine, theirs := net.Pipe()
				if r.group.Serve(theirs) != nil {
					_ = mine.Close()
					return
				}
				_ = mine.Close()
			}
		})
		r.stop()
		close(stop)
		wg.Wait()
		if h.opened.Load() != h.closed.Load() {
			t.Errorf("%d opened, %d closed", h.opened.Load(), h.closed.Load())
		}
		if err := r.group.Serve(pipeEnd(t)); !errors.Is(err, eventloop.ErrClosed) {
			t.Errorf("Serve after Close: %v", err)
		}
	})
}

func pipeEnd(t *testing.T) net.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { _ = a.Close() })
	return b
}

func TestSlowReader(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var conn atomic.Pointer[eventloop.Conn]
		var writable, sent atomic.Int64
		chunk := frame(50_000, 7)
		h := &echo{}
		h.onOpened = func(c *eventloop.Conn) { conn.Store(c) }
		fill := func(c *eventloop.Conn) {
			for i := 0; c.Writable(); i++ {
				if i%2 == 0 {
					c.Write(chunk)
				} else {
					c.WriteRef(chunk, nil)
				}
				sent.Add(1)
			}
			if c.Outbound() < 100_000 {
				t.Errorf("not writable at %d bytes", c.Outbound())
			}
		}
		h.onFrame = func(c *eventloop.Conn, _ *eventloop.Root, _ []byte) (bool, error) { fill(c); return false, nil }
		h.onWritable = func(c *eventloop.Conn) {
			writable.Add(1)
			if c.Outbound() > 40_000 {
				t.Errorf("writable at %d bytes", c.Outbound())
			}
			if sent.Load() < 250 {
				fill(c)
			}
		}
		r := start(t, k, h, eventloop.Options{Loops: 1, HighWater: 100_000, LowWater: 40_000})
		c := r.dial()
		<-send(c, frame(1, 1))
		// The peer does not read: the buffers fill, then nothing goes on.
		last := int64(-1)
		within(t, "the buffers to fill", func() bool {
			now := sent.Load()
			still := now == last && now > 0
			last = now
			return still
		})
		got := int64(0)
		for ; got < 250; got++ {
			expect(t, c, chunk)
		}
		for ; got < sent.Load(); got++ {
			expect(t, c, chunk)
		}
		if writable.Load() == 0 {
			t.Error("never told writable")
		}
	})
}

func TestPeerClosesHalf(t *testing.T) {
	for _, k := range kinds()[:2] {
		t.Run(k.name, func(t *testing.T) {
			var got atomic.Value
			h := &echo{onClosed: func(_ *eventloop.Conn, err error) { got.Store(err) }}
			r := start(t, k, h, eventloop.Options{Loops: 1})
			c, _ := r.dial().(*net.TCPConn)
			if _, err := c.Write(frame(1000, 1)); err != nil {
				t.Fatal(err)
			}
			_ = c.CloseWrite()
			expect(t, c, frame(1000, 1))
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("want the end, got %v", err)
			}
			within(t, "closed", func() bool { return h.closed.Load() == 1 })
			if err, _ := got.Load().(error); !errors.Is(err, io.EOF) {
				t.Errorf("closed because of %v", err)
			}
		})
	}
}

func TestPeerResets(t *testing.T) {
	for _, paused := range []bool{false, true} {
		for _, k := range kinds()[:2] {
			if paused && k.backend == eventloop.Portable {
				continue // noticed at the next read or write
			}
			t.Run(k.name, func(t *testing.T) {
				h := &echo{onOpened: func(c *eventloop.Conn) {
					if paused {
						c.PauseRead()
					}
				}}
				r := start(t, k, h, eventloop.Options{Loops: 1})
				for range 5 {
					c, _ := r.dial().(*net.TCPConn)
					if _, err := c.Write(frame(1000, 1)); err != nil {
						t.Fatal(err)
					}
					_ = c.SetLinger(0)
					_ = c.Close()
				}
				within(t, "closed", func() bool { return h.closed.Load() == 5 && h.opened.Load() == 5 })
			})
		}
	}
}

func TestConnectionLimit(t *testing.T) {
	for _, k := range kinds()[:2] {
		t.Run(k.name, func(t *testing.T) {
			h := &echo{}
			r := start(t, k, h, eventloop.Options{Loops: 2, MaxConns: 3})
			var kept []net.Conn
			for range 3 {
				c := r.dial()
				<-send(c, frame(1, 1))
				expect(t, c, frame(1, 1))
				kept = append(kept, c)
			}
			c := r.dial()
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("the fourth was served")
			}
			_ = kept[0].Close()
			within(t, "a free place", func() bool { return r.group.Conns() == 2 })
			c = r.dial()
			<-send(c, frame(1, 1))
			expect(t, c, frame(1, 1))
		})
	}
}

func TestTickAndLastRead(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var conn atomic.Pointer[eventloop.Conn]
		h := &echo{onOpened: func(c *eventloop.Conn) { conn.Store(c); c.SetContext("state") }}
		before := time.Now()
		r := start(t, k, h, eventloop.Options{Loops: 1, TickInterval: 5 * time.Millisecond})
		c := r.dial()
		<-send(c, frame(1, 1))
		expect(t, c, frame(1, 1))
		within(t, "ticks", func() bool { return h.ticks.Load() >= 3 })
		done := make(chan struct{})
		conn.Load().Loop().Post(eventloop.TaskFunc(func() {
			defer close(done)
			if last := conn.Load().LastRead(); last.Before(before) || last.After(time.Now()) {
				t.Errorf("last read %v", last)
			}
			if conn.Load().Context() != "state" || conn.Load().ID() == 0 {
				t.Error("context or id lost")
			}
		}))
		<-done
		if conn.Load().RemoteAddr().String() != c.LocalAddr().String() ||
			conn.Load().LocalAddr().String() != c.RemoteAddr().String() {
			t.Errorf("addresses %v %v", conn.Load().RemoteAddr(), conn.Load().LocalAddr())
		}
	})
}

// TestFairShare checks that a connection that always has more does not keep others waiting for more than a few turns.
func TestFairShare(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var most atomic.Int64
		var turn int64 // loop-owned
		h := &echo{}
		h.onFrame = func(_ *eventloop.Conn, _ *eventloop.Root, f []byte) (bool, error) {
			turn += int64(len(f))
			return false, nil
		}
		h.onTurnEnd = func(*eventloop.Loop) {
			if turn > most.Load() {
				most.Store(turn)
			}
			turn = 0
		}
		r := start(t, k, h, eventloop.Options{Loops: 1})
		c := r.dial()
		b := make([]byte, 0, 2<<20)
		for len(b) < 2<<20 {
			b = append(b, frame(996, 1)...)
		}
		if err := <-send(c, b); err != nil {
			t.Fatal(err)
		}
		within(t, "all frames", func() bool { return h.frames.Load() == int64(len(b)/1000) })
		if most.Load() > 70_000 {
			t.Errorf("%d bytes in one turn", most.Load())
		}
	})
}

func TestNoLeaks(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		before := openFiles(t)
		ignore := goleak.IgnoreCurrent()
		h := &echo{}
		r := start(t, k, h, eventloop.Options{Loops: 3})
		for range 30 {
			c := r.dial()
			b := frame(5000, 1)
			<-send(c, b)
			expect(t, c, b)
			if h.frames.Load()%2 == 0 {
				_ = c.Close()
			}
		}
		r.stop()
		goleak.VerifyNone(t, ignore)
		if k.pipe {
			return
		}
		within(t, "descriptors closed", func() bool { return openFiles(t) <= before+30 }) // the clients' own
	})
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	return len(entries)
}

func TestListenErrors(t *testing.T) {
	r := start(t, kinds()[0], &echo{}, eventloop.Options{Loops: 1})
	if _, err := r.group.Listen(t.Context(), "tcp", r.addr); !errors.Is(err, syscall.EADDRINUSE) ||
		!strings.Contains(err.Error(), r.addr) {
		t.Errorf("port taken: %v", err)
	}
	r.stop()
	if _, err := r.group.Listen(t.Context(), "tcp", "127.0.0.1:0"); !errors.Is(err, eventloop.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
