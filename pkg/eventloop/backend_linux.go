package eventloop

import (
	"errors"
	"fmt"
	"io"
	"net"
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

// listenConfig sets what accepted sockets inherit.
func listenConfig() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1))
		}); e != nil {
			return e
		}
		return err
	}}
}

// acceptSockets accepts until the listener is closed. It waits as goroutines do but calls accept itself, which gives
// descriptors that the runtime does not poll.
func (g *Group) acceptSockets(ln net.Listener) error {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		_ = ln.Close()
		return fmt.Errorf("event loops: %w: epoll serves TCP only", ErrNoBackend)
	}
	file, err := tcp.File()
	_ = ln.Close() // file is a duplicate of its descriptor
	if err != nil {
		return fmt.Errorf("event loops: %w", err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("event loops: %w", err)
	}
	return g.track(file, func() { g.acceptLoop(raw, ln.Addr()) })
}

func (g *Group) acceptLoop(raw syscall.RawConn, local net.Addr) {
	wait := backoff{stop: g.stop}
	for {
		var fd int
		var from unix.Sockaddr
		var err error
		if raw.Read(func(listener uintptr) bool {
			fd, from, err = unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			return !errors.Is(err, unix.EAGAIN)
		}) != nil {
			return // closed
		}
		switch {
		case err == nil:
			wait.reset()
			g.accepted(fd, local, from)
		case errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR):
		default:
			g.complain.say("Cannot accept connections", "error", err, "address", local.String())
			if !wait.pause() {
				return
			}
		}
	}
}

func (g *Group) accepted(fd int, local net.Addr, from unix.Sockaddr) {
	if g.enter() != nil {
		_ = unix.Close(fd)
		return
	}
	if sa, err := unix.Getsockname(fd); err == nil {
		local = tcpAddr(sa)
	}
	c := g.newConn(local, tcpAddr(from))
	c.link = &socket{c: c, fd: fd, poller: c.loop.poller.sockets()}
	g.arrive(c)
}

func tcpAddr(sa unix.Sockaddr) net.Addr {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return &net.TCPAddr{IP: append(net.IP(nil), a.Addr[:]...), Port: a.Port}
	case *unix.SockaddrInet6:
		addr := &net.TCPAddr{IP: append(net.IP(nil), a.Addr[:]...), Port: a.Port}
		if a.ZoneId != 0 {
			if i, err := net.InterfaceByIndex(int(a.ZoneId)); err == nil {
				addr.Zone = i.Name
			}
		}
		return addr
	}
	return &net.TCPAddr{}
}

// epoll is the poller of a loop with sockets.
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
	if c == nil || c.gone || int32(c.id) != e.Pad {
		return
	}
	if s, ok := c.link.(*socket); ok {
		s.handleEvents(e.Events)
	}
}

// socket is a TCP connection on its loop's epoll, level-triggered.
//
// Interest changes lazily: pausing costs a system call only if bytes arrive meanwhile, and EPOLLOUT is asked for only
// while the kernel's buffer is full.
type socket struct {
	c        *Conn
	fd       int
	poller   *epoll
	interest uint32
	blocked  bool // the kernel's buffer is full and EPOLLOUT has not come yet
}

func (s *socket) start() error { return s.want(unix.EPOLLIN, unix.EPOLL_CTL_ADD) }

func (s *socket) want(events uint32, op int) error {
	if op == unix.EPOLL_CTL_MOD && events == s.interest {
		return nil
	}
	p := s.poller
	s.interest = events
	e := unix.EpollEvent{Events: events, Fd: s.c.slot, Pad: int32(s.c.id)}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), uintptr(op), uintptr(s.fd),
		uintptr(unsafe.Pointer(&e)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("epoll_ctl: %w", errno)
	}
	return nil
}

func (s *socket) modify(events uint32) {
	if err := s.want(events, unix.EPOLL_CTL_MOD); err != nil {
		s.c.Close(err)
	}
}

func (s *socket) handleEvents(events uint32) {
	c := s.c
	switch {
	case events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) == 0:
	case !c.paused:
		s.read()
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		c.Close(s.failure())
	default:
		s.modify(s.interest &^ unix.EPOLLIN)
	}
	if events&unix.EPOLLOUT != 0 {
		s.blocked = false
		c.markDirty()
	}
}

// failure returns why the socket is dead.
func (s *socket) failure() error {
	if n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && n != 0 {
		return fmt.Errorf("socket: %w", syscall.Errno(n))
	}
	return io.EOF
}

func (s *socket) rearm() {
	if !s.c.gone && !s.c.paused {
		s.modify(s.interest | unix.EPOLLIN)
	}
}

func (s *socket) close()        { _ = unix.Close(s.fd) }
func (s *socket) discard()      { _ = unix.Close(s.fd) }
func (s *socket) handle(signal) {}
func (s *socket) hurry()        {}

// read reads until the socket is empty or the share of the connection is used up. A read that brings less than there is
// room for has emptied the socket, so a small request costs one system call. A frame that two more shares would complete
// is read to its end, which spares copying it; what is left after that, epoll reports again in the next turn.
func (s *socket) read() {
	c := s.c
	share := c.loop.group.options.ReadShare
	budget, extended := share, false
	for !c.gone && !c.paused {
		buf := c.room()
		buf = buf[:min(len(buf), budget)]
		n, err := s.readSome(buf)
		if err != nil || n == 0 {
			s.readEnded(err)
			break
		}
		c.received(n)
		c.loop.load.bytesIn += int64(n)
		c.deliver()
		budget -= n
		if n < len(buf) {
			break
		}
		if budget == 0 {
			missing := c.in.missing()
			if extended || missing == 0 || missing > 2*share {
				break
			}
			budget, extended = missing, true
		}
	}
	c.settle()
}

func (s *socket) readSome(buf []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(s.fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

func (s *socket) readEnded(err error) {
	switch {
	case err == nil:
		s.c.failed(io.EOF)
	case errors.Is(err, unix.EAGAIN):
	default:
		s.c.failed(fmt.Errorf("read: %w", err))
	}
}

// flushRounds bounds what one connection may write in a turn to that many writev calls.
const flushRounds = 4

// write writes what the kernel takes and asks for EPOLLOUT when that is not all.
func (s *socket) write() {
	c := s.c
	if s.blocked {
		return
	}
	p := s.poller
	for range flushRounds {
		n, offered, errno := s.writeSome(p)
		if errno == unix.EAGAIN {
			n, errno = 0, 0
		}
		if errno != 0 {
			c.Close(fmt.Errorf("write: %w", errno))
			return
		}
		c.loop.load.bytesOut += int64(n)
		c.out.written(n)
		if n < offered {
			s.blocked = true
			s.modify(s.interest | unix.EPOLLOUT)
			return
		}
		if c.out.bytes == 0 {
			s.modify(s.interest &^ unix.EPOLLOUT)
			return
		}
	}
	c.markDirty()
}

// writeSome is one system call for as many segments as fit.
func (s *socket) writeSome(p *epoll) (n, offered int, errno syscall.Errno) {
	segments := s.c.out.segments[s.c.out.head:]
	segments = segments[:min(len(segments), len(p.iovecs))]
	for i := range segments {
		data := segments[i].data
		p.iovecs[i].Base = &data[0]
		p.iovecs[i].SetLen(len(data))
		offered += len(data)
	}
	for {
		r, _, e := unix.RawSyscall(unix.SYS_WRITEV, uintptr(s.fd), uintptr(unsafe.Pointer(&p.iovecs[0])),
			uintptr(len(segments)))
		if e == unix.EINTR {
			continue
		}
		for i := range segments {
			p.iovecs[i].Base = nil
		}
		return int(r), offered, e
	}
}
