package eventloop

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const defaultBackend = Epoll

func newPoller(b Backend) (poller, error) {
	if b == Epoll {
		return newEpoll()
	}
	return newPark(), nil
}

// epoll is the poller of a loop with sockets. A loop that has nothing to do sleeps as any goroutine does: the epoll
// descriptor is itself registered with the runtime's poller, and the loop waits for it to become readable. A post wakes
// it by letting the read deadline of that descriptor pass, which makes the goroutine ready without a system call.
//
// The obvious alternative blocks the thread in epoll_wait and is woken by an eventfd (blockingEpoll, in the tests). The
// runtime takes the processor away from a thread that blocks like that only after its monitor has noticed, up to 10 ms
// later when little else happens, and with as many loops as processors or more every processor can be held so. Measured
// side by side on 2 busy cores with 4 loops (BenchmarkAnswer, 500 connections, two runs; BenchmarkBystander;
// BenchmarkPostToLoop):
//
//	                                          this                        blocking
//	CPU s per million messages, 1 a wake-up   14.1, 15.7                  16.7, 17.8
//	                            4             4.2, 3.7                    4.4, 4.3
//	                            20            0.89, 0.89                  0.91, 1.02
//	how late a 1 ms timer fires, mean         0.8 ms                      1.5 ms
//	a post that wakes, there and back         9.0 µs                      12.2 µs
//
// (Nine tenths of the first three are inside read and writev.)
//
// The calls that do not block (epoll_wait without timeout, epoll_ctl, read, short writev) bypass the scheduler: it need
// not know of a thread that is back within microseconds.
//
// Why no wake-up is lost between the look and the sleep: RawConn.Read first resets the readiness of the descriptor, then
// calls wait, which asks epoll once more. What becomes ready after that is an edge that the runtime's poller reports.
type epoll struct {
	file   *os.File // of fd, known to the runtime's poller
	raw    syscall.RawConn
	fd     int
	ready  int
	wait   func(uintptr) bool
	events [256]unix.EpollEvent
	iovecs [maxBuffers]unix.Iovec
}

func newEpoll() (*epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &epoll{file: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("epoll: not pollable: %w", err)
	}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p.wait = func(uintptr) bool {
		p.ready = p.take()
		return p.ready != 0
	}
	return p, nil
}

func (p *epoll) close()          { _ = p.file.Close() }
func (p *epoll) sockets() *epoll { return p }

// wake makes the wait of the loop end by letting its deadline pass.
func (p *epoll) wake() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) }

func (p *epoll) poll(l *Loop, block bool) {
	if block {
		p.ready = 0
		if p.raw.Read(p.wait) != nil {
			_ = p.file.SetReadDeadline(time.Time{})
		}
		l.now = time.Now()
	} else {
		p.ready = p.take()
	}
	for i := range p.ready {
		p.dispatch(l, &p.events[i])
	}
	l.load.events += int64(p.ready)
}

// take returns the number of ready sockets without waiting.
func (p *epoll) take() int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// dispatch finds the connection of an event by slot and generation: an earlier event of the same turn may have closed it.
func (p *epoll) dispatch(l *Loop, e *unix.EpollEvent) {
	if int(e.Fd) >= len(l.conns) {
		return
	}
	c := l.conns[e.Fd]
	if c == nil || c.gone && !c.lingers || int32(c.id) != e.Pad {
		return
	}
	if s, ok := c.link.(*socket); ok {
		s.handleEvents(e.Events)
	}
}
