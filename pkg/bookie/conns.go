package bookie

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"geminga/rpc/bookiepb"
)

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// conns holds one gRPC connection for each address. gRPC connects when it is first used and again when it broke.
type conns struct {
	dial   Dial
	mu     sync.Mutex
	closed bool
	byAddr map[string]*grpc.ClientConn
}

func newConns(dial Dial) *conns { return &conns{dial: dial, byAddr: map[string]*grpc.ClientConn{}} }

func (c *conns) get(addr string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errStopped
	}
	if conn := c.byAddr[addr]; conn != nil {
		return conn, nil
	}
	options := append(bookiepb.ClientOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(c.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}))
	conn, err := grpc.NewClient("passthrough:///"+addr, options...)
	if err != nil {
		return nil, err
	}
	c.byAddr[addr] = conn
	return conn, nil
}

func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.byAddr {
		_ = conn.Close() // it reports only that it was closed before
	}
}
