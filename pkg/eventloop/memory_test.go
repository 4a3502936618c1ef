package eventloop_test

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"geminga/pkg/eventloop"
)

// most is how many connections announce a frame that they do not send, if there are descriptors for both ends.
const most = 10_000

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestAnnouncedFramesCostNothing opens 10,000 connections that announce 5 MiB each and send one byte of it. Memory
// follows the bytes received.
func TestAnnouncedFramesCostNothing(t *testing.T) {
	for _, k := range kinds()[:3] {
		t.Run(k.name, func(t *testing.T) {
			announced := connections(t)
			if k.name != "default" {
				announced = min(announced, 1000) // two goroutines each: slow under the race detector
			}
			var bytes atomic.Int64
			h := &counting{echo: echo{}, got: &bytes}
			r := start(t, k, h, eventloop.Options{Loops: 2})
			conns := make([]net.Conn, announced)
			payload := []byte{0, 0x50, 0, 0, 1}
			before := heap()
			var wg sync.WaitGroup
			for part := range 8 {
				wg.Go(func() {
					for i := part; i < announced; i += 8 {
						conns[i] = r.dialQuietly(t)
						if conns[i] == nil {
							return
						}
						_, _ = conns[i].Write(payload)
					}
				})
			}
			wg.Wait()
			within(t, "all bytes read", func() bool { return bytes.Load() == int64(announced*len(payload)) })
			perConn := int(heap()-before) / announced
			roots := int(r.group.LiveRootBytes()) / announced
			t.Logf("per connection: %d B heap and stacks (both ends), %d B in roots", perConn, roots)
			if roots > 2100 {
				t.Errorf("%d bytes in roots per connection", roots)
			}
			if perConn > 24<<10 {
				t.Errorf("%d bytes per connection", perConn)
			}
			for _, c := range conns {
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				_ = c.Close()
			}
			within(t, "all closed", func() bool { return h.closed.Load() == int64(announced) })
		})
	}
}

// counting counts the bytes that are announced at most once per byte of a short frame.
type counting struct {
	echo
	got *atomic.Int64
}

func (h *counting) Data(c *eventloop.Conn, root *eventloop.Root, data []byte) (int, int, error) {
	seen, _ := c.Context().(int)
	h.got.Add(int64(len(data) - seen))
	c.SetContext(len(data))
	return 0, 0, nil
}

func (r *rig) dialQuietly(t *testing.T) net.Conn {
	if r.kind.pipe {
		mine, theirs := net.Pipe()
		if err := r.group.Serve(theirs); err != nil {
			t.Error(err)
			return nil
		}
		return mine
	}
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	return c
}

// connections returns how many connections the file limit, raised as far as allowed, permits.
func connections(t *testing.T) int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Skip(err)
	}
	l.Cur = max(l.Cur, min(l.Max, 2*most+500))
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	return min(most, int(l.Cur-500)/2)
}
