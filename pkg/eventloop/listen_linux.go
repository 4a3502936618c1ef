package eventloop

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

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

// hungUp reports whether the peer of a TCP or TLS connection has closed at least its sending half, whatever is left to
// read.
func hungUp(conn net.Conn) bool {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = over.NetConn()
	}
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = raw.Control(func(fd uintptr) {
		ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(ask, 0)
		gone = err == nil && n > 0
	})
	return gone
}

// acceptSockets accepts until the listener is closed. It waits as goroutines do but calls accept itself, which gives
// descriptors that the runtime does not poll.
func (g *Group) acceptSockets(ln net.Listener) error {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return g.acceptPortable(ln)
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
