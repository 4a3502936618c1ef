package eventloop

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// reading is what is asked for while a connection is read; also while it is not, EPOLLRDHUP tells of a peer that has gone.
const reading = unix.EPOLLIN | unix.EPOLLRDHUP

func (s *socket) start() error { return s.want(reading, unix.EPOLL_CTL_ADD) }

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
	case events&(reading|unix.EPOLLHUP|unix.EPOLLERR) == 0:
	case c.lingers:
		s.discardInput()
	case c.readable():
		s.read()
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		c.Close(s.failure())
	case c.draining: // its peer may read to the end, whatever it sends
		s.modify(s.interest &^ reading)
	case events&unix.EPOLLRDHUP != 0:
		c.failed(io.EOF)
		s.modify(s.interest &^ reading)
	default:
		s.modify(s.interest &^ unix.EPOLLIN)
	}
	if events&unix.EPOLLOUT != 0 && !c.gone {
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
	if !s.c.gone && s.c.readable() {
		s.modify(s.interest | reading)
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
	for !c.gone && c.readable() {
		buf := c.room()
		buf = buf[:c.allowed(min(len(buf), budget))]
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

func (s *socket) deserted() bool { return false } // EPOLLRDHUP tells

func (s *socket) shut() bool {
	if unix.Shutdown(s.fd, unix.SHUT_WR) != nil {
		return false
	}
	return s.want(reading, unix.EPOLL_CTL_MOD) == nil
}

// discardInput throws away what a lingering connection receives, a share a turn, without copying it.
func (s *socket) discardInput() {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), 0, uintptr(s.c.loop.group.options.ReadShare),
		unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
	if n == 0 || errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		s.c.loop.release(s.c)
	}
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
		c.written(n)
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

// longWrite is the length from which on copying into the kernel takes so long that the scheduler is told.
const longWrite = 256 << 10

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
	call := unix.RawSyscall
	if offered > longWrite {
		call = unix.Syscall
	}
	for {
		r, _, e := call(unix.SYS_WRITEV, uintptr(s.fd), uintptr(unsafe.Pointer(&p.iovecs[0])), uintptr(len(segments)))
		if e == unix.EINTR {
			continue
		}
		for i := range segments {
			p.iovecs[i].Base = nil
		}
		return int(r), offered, e
	}
}
