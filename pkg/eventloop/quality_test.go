package eventloop_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/eventloop"
	"geminga/pkg/invariant"
)

// TestNoAllocationOnceWarm counts all allocations of the process while one connection sends and gets answers.
func TestNoAllocationOnceWarm(t *testing.T) {
	if invariant.Enabled || raceEnabled {
		t.Skip("pools are off or lossy in this build")
	}
	if k := kinds()[0]; defaultIsEpoll() {
		r := start(t, k, &echo{}, eventloop.Options{Loops: 1})
		c := r.dial()
		var out []byte
		for range 20 {
			out = append(out, frame(128, 1)...)
		}
		in := make([]byte, len(out))
		round := func() {
			if _, err := c.Write(out); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, in); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			round()
		}
		if n := testing.AllocsPerRun(500, round); n > 0.5 {
			t.Errorf("%v allocations per 20 messages", n)
		}
	}
}

func defaultIsEpoll() bool {
	var o eventloop.Options
	o.EnsureDefaults()
	return o.Backend == eventloop.Epoll
}

// TestOneWakeForManyPosts checks that a loop is woken only when it sleeps.
func TestOneWakeForManyPosts(t *testing.T) {
	for _, k := range kinds()[:2] {
		t.Run(k.name, func(t *testing.T) {
			var wakes atomic.Int64
			k.prepare = func(o *eventloop.Options) { o.CountWakes(&wakes) }
			r := start(t, k, &echo{}, eventloop.Options{Loops: 1, TickInterval: time.Hour})
			l := r.group.Loops()[0]
			running, hold := make(chan struct{}), make(chan struct{})
			l.Post(eventloop.TaskFunc(func() { close(running); <-hold }))
			<-running
			before := wakes.Load()
			var ran int // loop-owned
			for range 1000 {
				l.Post(countTask{&ran})
			}
			if n := wakes.Load() - before; n != 0 {
				t.Errorf("%d wake-ups of a loop that runs", n)
			}
			close(hold)
			done := make(chan struct{})
			l.Post(eventloop.TaskFunc(func() { close(done) }))
			<-done
			within(t, "asleep", l.Asleep)
			before = wakes.Load()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() { l.Post(countTask{&ran}) })
			}
			wg.Wait()
			within(t, "all run", func() bool {
				got := make(chan int)
				l.Post(eventloop.TaskFunc(func() { got <- ran }))
				return <-got == 1100
			})
			if n := wakes.Load() - before; n < 1 || n > 102 {
				t.Errorf("%d wake-ups", n)
			}
		})
	}
}

// TestVirtualTime runs loops, ticks and in-memory connections in a bubble.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &echo{}
		var idle atomic.Int64
		h.onTick = func(l *eventloop.Loop) {
			l.Conns(func(c *eventloop.Conn) bool {
				if l.Now().Sub(c.LastRead()) > 30*time.Second {
					idle.Add(1)
					c.Close(nil)
				}
				return true
			})
		}
		g, err := eventloop.New(h, eventloop.Options{Loops: 2, Backend: eventloop.Portable})
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := net.Pipe()
		if err := g.Serve(theirs); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		go func() { _, _ = mine.Write(frame(100, 1)) }()
		expect(t, mine, frame(100, 1))
		if _, err := mine.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("want the end, got %v", err)
		}
		if d := time.Since(start); d < 30*time.Second || d > 33*time.Second {
			t.Errorf("closed after %v", d)
		}
		_ = mine.Close()
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if idle.Load() != 1 || h.closed.Load() != 1 {
			t.Errorf("%d idle, %d closed", idle.Load(), h.closed.Load())
		}
	})
}

// lines collects log output.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// TestAcceptWithoutDescriptors takes all file descriptors away, so that accept fails, and gives them back.
func TestAcceptWithoutDescriptors(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("sets the limit as Linux does")
	}
	for _, k := range kinds()[:2] {
		t.Run(k.name, func(t *testing.T) {
			log := &lines{}
			h := &echo{}
			r := start(t, k, h, eventloop.Options{Loops: 1, Logger: slog.New(slog.NewTextHandler(log, nil))})
			var old syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
				t.Skip(err)
			}
			low := old
			low.Cur = uint64(openFiles(t) + 20)
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
				t.Skip(err)
			}
			defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old) }()
			var taken []*os.File
			for {
				f, err := os.Open(os.DevNull)
				if err != nil {
					break
				}
				taken = append(taken, f)
			}
			_ = taken[0].Close() // one for the client's end, none for ours
			c := r.dial()
			within(t, "a complaint", func() bool { return log.count("Cannot accept") == 1 })
			<-send(c, frame(10, 1))
			for _, f := range taken[1:] {
				_ = f.Close()
			}
			expect(t, c, frame(10, 1))
			if n := log.count("Cannot accept"); n != 1 {
				t.Errorf("%d log lines", n)
			}
		})
	}
}
