package eventloop_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"geminga/pkg/eventloop"
)

// loadVariable makes the test binary a load generator: "address connections batch size".
const loadVariable = "EVENTLOOP_LOAD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(loadVariable); spec != "" {
		if err := generate(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// generate sends batches on each connection, one when the answers to the last have come, until standard input ends.
func generate(spec string) error {
	var addr string
	var conns, batch, size int
	if _, err := fmt.Sscan(spec, &addr, &conns, &batch, &size); err != nil {
		return err
	}
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop.Store(true)
	}()
	var wg sync.WaitGroup
	for range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer func() { _ = c.Close() }()
			var out []byte
			for range batch {
				out = append(out, frame(size, 1)...)
			}
			in := make([]byte, 12*batch)
			for !stop.Load() {
				if _, err := c.Write(out); err != nil {
					return
				}
				if _, err := io.ReadFull(c, in); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// answering parses frames and answers each with 12 bytes, as a broker does with receipts.
type answering struct {
	echo
	messages atomic.Int64
}

func (h *answering) Data(c *eventloop.Conn, _ *eventloop.Root, data []byte) (consumed, need int, err error) {
	var answer [12]byte
	count := int64(0)
	for {
		rest := data[consumed:]
		if len(rest) < 4 {
			break
		}
		n := int(binary.BigEndian.Uint32(rest))
		if len(rest) < 4+n {
			need = 4 + n
			break
		}
		consumed += 4 + n
		count++
		c.Write(answer[:])
	}
	h.messages.Add(count)
	return consumed, need, nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAnswer measures the server's CPU seconds per million messages; the load comes from another process.
// Messages per wake-up: 1, 4, 20. The two backends run in turn, so that both meet the same machine.
func BenchmarkAnswer(b *testing.B) {
	conns := 500
	if s := os.Getenv("EVENTLOOP_CONNS"); s != "" {
		conns, _ = strconv.Atoi(s)
	}
	for _, batch := range []int{1, 4, 20} {
		for _, k := range append(kinds()[:2], blockingKinds()...) {
			b.Run(fmt.Sprintf("conns=%d/batch=%d/backend=%s", conns, batch, k.name), func(b *testing.B) {
				benchmarkAnswer(b, k, conns, batch)
			})
		}
	}
}

func benchmarkAnswer(b *testing.B, k kind, conns, batch int) {
	h := &answering{}
	r := start(b, k, h, eventloop.Options{})
	load := exec.Command(os.Args[0])
	load.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d 128", loadVariable, r.addr, conns, batch))
	load.Stderr = os.Stderr
	stdin, err := load.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := load.Start(); err != nil {
		b.Fatal(err)
	}
	within(b, "warm", func() bool { return h.messages.Load() > int64(200*conns) })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from, cpu0, t0 := h.messages.Load(), cpu(), time.Now()
	b.ResetTimer()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for h.messages.Load()-from < int64(b.N) {
		<-tick.C
	}
	b.StopTimer()
	n := float64(h.messages.Load() - from)
	used := (cpu() - cpu0).Seconds()
	elapsed := time.Since(t0).Seconds()
	runtime.ReadMemStats(&after)
	_ = stdin.Close()
	_ = load.Wait()
	b.ReportMetric(used/n*1e6, "cpu-s/M")
	b.ReportMetric(n/elapsed, "msg/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/msg")
}

// BenchmarkBystander measures how late a timer of another goroutine fires while loops serve a light load or none: what
// a loop that sleeps costs the rest of the process.
func BenchmarkBystander(b *testing.B) {
	for _, k := range append(kinds()[:2], blockingKinds()...) {
		b.Run("backend="+k.name, func(b *testing.B) {
			h := &answering{}
			r := start(b, k, h, eventloop.Options{})
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 20 {
				c := r.dial()
				wg.Go(func() {
					out, in := frame(128, 1), make([]byte, 12)
					tick := time.NewTicker(2 * time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-stop:
							return
						case <-tick.C:
						}
						_, _ = c.Write(out)
						_, _ = io.ReadFull(c, in)
					}
				})
			}
			var late, worst time.Duration
			for range b.N {
				t := time.Now()
				timer := time.NewTimer(time.Millisecond)
				<-timer.C
				d := time.Since(t) - time.Millisecond
				late += d
				worst = max(worst, d)
			}
			close(stop)
			wg.Wait()
			b.ReportMetric(float64(late.Microseconds())/float64(b.N), "late-us")
			b.ReportMetric(float64(worst.Microseconds()), "worst-us")
		})
	}
}

// BenchmarkPostToLoop is a task that goes to and fro between two loops: the cost of a wake-up.
func BenchmarkPostToLoop(b *testing.B) {
	for _, k := range append(kinds()[:2], blockingKinds()...) {
		b.Run("backend="+k.name, func(b *testing.B) {
			r := start(b, k, &echo{}, eventloop.Options{Loops: 2})
			b.ReportAllocs()
			x, y := r.group.Loops()[0], r.group.Loops()[1]
			done := make(chan struct{})
			n := 0
			var ping, pong eventloop.TaskFunc
			ping = func() { y.Post(pong) }
			pong = func() {
				if n++; n == b.N {
					close(done)
					return
				}
				x.Post(ping)
			}
			x.Post(ping)
			<-done
		})
	}
}
