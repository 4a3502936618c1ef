package bookie

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"geminga/rpc/bookiepb"
)

// lanes are the connections on which other bookies make their calls of Raft. They come to the same port as gRPC's. gRPC
// shows a new connection to its credentials first, and lets go of it when told that it was for somebody else:
//
//	listener ─▶ gRPC ─▶ ServerHandshake ── first byte ──▶ anything else: back to gRPC
//	                                            └───────▶ that of a lane: serve
type lanes struct {
	credentials.TransportCredentials // for the rest
	serve                            func(context.Context, net.Conn) error
	log                              *slog.Logger
	ctx                              context.Context
	cancel                           context.CancelFunc

	mu      sync.Mutex
	stopped bool
	open    map[net.Conn]struct{}
	wg      sync.WaitGroup
}

func newLanes(serve func(context.Context, net.Conn) error, log *slog.Logger) *lanes {
	ctx, cancel := context.WithCancel(context.Background())
	return &lanes{
		TransportCredentials: insecure.NewCredentials(), serve: serve, log: log, ctx: ctx, cancel: cancel, open: map[net.Conn]struct{}{},
	}
}

// Clone implements credentials.TransportCredentials.
func (ls *lanes) Clone() credentials.TransportCredentials { return ls }

// ServerHandshake implements credentials.TransportCredentials. gRPC calls it on a goroutine for each connection, and bounds
// its time.
func (ls *lanes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, nil, err
	}
	whole := &begun{Conn: conn, first: first}
	if first[0] != bookiepb.LaneMagic[0] {
		return ls.TransportCredentials.ServerHandshake(whole)
	}
	ls.start(whole)
	return nil, nil, credentials.ErrConnDispatched
}

func (ls *lanes) start(conn net.Conn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.stopped {
		_ = conn.Close()
		return
	}
	ls.open[conn] = struct{}{}
	ls.wg.Go(func() {
		err := ls.serve(ls.ctx, conn)
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			ls.log.Debug("a lane ended", "peer", conn.RemoteAddr(), "error", err)
		}
		_ = conn.Close()
		ls.mu.Lock()
		delete(ls.open, conn)
		ls.mu.Unlock()
	})
}

// stop closes all and waits. It may be called again.
func (ls *lanes) stop() {
	ls.mu.Lock()
	ls.stopped = true
	ls.cancel()
	for conn := range ls.open {
		_ = conn.Close()
	}
	ls.mu.Unlock()
	ls.wg.Wait()
}

// begun is a connection whose first byte was read already.
type begun struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (c *begun) Read(p []byte) (int, error) {
	if len(c.first) == 0 || len(p) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}
