package bookieclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	"geminga/rpc/bookiepb"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
)

// lane keeps the bulk of reads from delaying appends and their answers: each has a connection of its own.
type lane uint8

const (
	appendLane lane = iota
	callLane
	lanes
)

// conns are the connections, made at first use and kept.
type conns struct {
	opts *Options

	mu     sync.Mutex
	byAddr map[string]*[lanes]*grpc.ClientConn
	closed bool
}

func newConns(opts *Options) *conns {
	return &conns{opts: opts, byAddr: map[string]*[lanes]*grpc.ClientConn{}}
}

func (c *conns) get(address string, l lane) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("%w: client closed", errNotSent)
	}
	pair := c.byAddr[address]
	if pair == nil {
		pair = &[lanes]*grpc.ClientConn{}
		c.byAddr[address] = pair
	}
	if pair[l] != nil {
		return pair[l], nil
	}
	conn, err := grpc.NewClient("passthrough:///"+address, c.dialOptions()...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errNotSent, address, err)
	}
	pair[l] = conn
	return conn, nil
}

func (c *conns) dialOptions() []grpc.DialOption {
	options := append(bookiepb.ClientOptions(),
		grpc.WithTransportCredentials(c.opts.Credentials),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: c.opts.ConnectTimeout,
		}))
	if c.opts.Dial != nil {
		options = append(options, grpc.WithContextDialer(c.opts.Dial))
	}
	return options
}

// reviveTimeout is how long a call waits for a connection that had failed before. gRPC keeps calling it failed until it
// is up, so there is no quicker "refused"; when it takes longer, the next attempt finds it up.
const reviveTimeout = 100 * time.Millisecond

// ready returns a connection that is up. What fails here was certainly not sent: errNotSent. A connection that has
// failed before is tried again at once, because callers have pauses of their own.
func (c *conns) ready(ctx context.Context, address string, l lane) (*grpc.ClientConn, error) {
	conn, err := c.get(address, l)
	if err != nil {
		return nil, err
	}
	wait := c.opts.ConnectTimeout
	if conn.GetState() == connectivity.TransientFailure {
		conn.ResetConnectBackoff()
		wait = min(wait, reviveTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for state := conn.GetState(); ; state = conn.GetState() {
		switch state {
		case connectivity.Ready:
			return conn, nil
		case connectivity.Idle:
			conn.Connect()
		case connectivity.Shutdown:
			return nil, fmt.Errorf("%w: connection to %s closed", errNotSent, address)
		case connectivity.TransientFailure:
			if wait == c.opts.ConnectTimeout { // it failed just now, while we waited
				return nil, fmt.Errorf("%w: cannot connect to %s", errNotSent, address)
			}
		}
		if !conn.WaitForStateChange(ctx, state) {
			return nil, fmt.Errorf("%w: no connection to %s: %w", errNotSent, address, ctx.Err())
		}
	}
}

func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, pair := range c.byAddr {
		for _, conn := range pair {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
}
