package bookie

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// simNet is a network in memory, for virtual time: everything in it waits on conditions and channels. Hosts have names,
// and addresses of the form name:1. What is sent from a host to another may be held back, in one direction or in both,
// as by a cable that is cut: nobody is told, and everything goes on when it is mended.
type simNet struct {
	mu     sync.Mutex
	hosts  map[string]*simListener
	cut    map[[2]string]bool
	mended chan struct{} // closed at each change of cut
}

func newSimNet() *simNet {
	return &simNet{hosts: map[string]*simListener{}, cut: map[[2]string]bool{}, mended: make(chan struct{})}
}

// setCut holds back what from sends to to, or lets it go.
func (n *simNet) setCut(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]string{from, to}] = cut
	close(n.mended)
	n.mended = make(chan struct{})
}

// pass returns when something may travel, or done is closed.
func (n *simNet) pass(from, to string, done <-chan struct{}) bool {
	for {
		n.mu.Lock()
		cut, mended := n.cut[[2]string{from, to}], n.mended
		n.mu.Unlock()
		if !cut {
			return true
		}
		select {
		case <-mended:
		case <-done:
			return false
		}
	}
}

func (n *simNet) listen(host string) *simListener {
	l := &simListener{net: n, host: host, accept: make(chan net.Conn), closed: make(chan struct{}), conns: map[*simConn]bool{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = l
	return l
}

// dialer is what a host dials with.
func (n *simNet) dialer(from string) Dial {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		if !n.pass(from, to, ctx.Done()) || !n.pass(to, from, ctx.Done()) {
			return nil, ctx.Err()
		}
		n.mu.Lock()
		l := n.hosts[to]
		n.mu.Unlock()
		if l == nil {
			return nil, &net.OpError{Op: "dial", Net: "sim", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		there, back := newSimPipe(), newSimPipe()
		here := &simConn{net: n, from: from, to: to, in: back, out: there, gone: make(chan struct{})}
		remote := &simConn{net: n, from: to, to: from, in: there, out: back, gone: make(chan struct{})}
		l.keep(remote)
		select {
		case l.accept <- remote:
			return here, nil
		case <-l.closed:
			return nil, &net.OpError{Op: "dial", Net: "sim", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// simListener is a host's only port.
type simListener struct {
	net    *simNet
	host   string
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}

	mu    sync.Mutex
	conns map[*simConn]bool
}

func (l *simListener) keep(c *simConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = true
}

// kill closes the port and resets all connections, as the kernel does when a process is gone.
func (l *simListener) kill() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *simListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		if l.net.hosts[l.host] == l {
			delete(l.net.hosts, l.host)
		}
	})
	return nil
}

func (l *simListener) Addr() net.Addr { return simAddr(l.host) }

type simAddr string

func (a simAddr) Network() string { return "sim" }
func (a simAddr) String() string  { return string(a) + ":1" }

// simConn is one end of a connection.
type simConn struct {
	net      *simNet
	from, to string
	in, out  *simPipe
	once     sync.Once
	gone     chan struct{}
}

func (c *simConn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *simConn) Write(p []byte) (int, error) {
	if !c.net.pass(c.from, c.to, c.gone) {
		return 0, net.ErrClosed
	}
	return c.out.write(p)
}

func (c *simConn) Close() error {
	c.once.Do(func() {
		close(c.gone)
		c.in.close()
		c.out.close()
	})
	return nil
}

func (c *simConn) LocalAddr() net.Addr               { return simAddr(c.from) }
func (c *simConn) RemoteAddr() net.Addr              { return simAddr(c.to) }
func (c *simConn) SetWriteDeadline(time.Time) error  { return nil } // a write waits for room only, and readers always read
func (c *simConn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
func (c *simConn) SetReadDeadline(t time.Time) error { c.in.setDeadline(t); return nil }

// simPipe is one direction.
type simPipe struct {
	mu       sync.Mutex
	change   *sync.Cond
	buf      []byte
	closed   bool
	deadline time.Time
	timer    *time.Timer
}

const simWindow = 64 << 10

func newSimPipe() *simPipe {
	p := &simPipe{}
	p.change = sync.NewCond(&p.mu)
	return p
}

func (p *simPipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 {
		switch {
		case p.closed:
			return 0, io.EOF
		case !p.deadline.IsZero() && !time.Now().Before(p.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		p.change.Wait()
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	p.change.Broadcast()
	return n, nil
}

func (p *simPipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) > simWindow && !p.closed {
		p.change.Wait()
	}
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	p.buf = append(p.buf, b...)
	p.change.Broadcast()
	return len(b), nil
}

func (p *simPipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.change.Broadcast()
}

func (p *simPipe) setDeadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if !t.IsZero() && !p.closed {
		p.timer = time.AfterFunc(time.Until(t), p.change.Broadcast)
	}
	p.change.Broadcast()
}
