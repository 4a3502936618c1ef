package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a listening HTTP port.
type Server struct {
	http     *http.Server
	listener net.Listener
	serving  sync.WaitGroup
}

// Open listens on Options.Address and serves until Close.
func Open(o Options) (*Server, error) {
	o.EnsureDefaults()
	h, err := New(o)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	s := &Server{listener: listener, http: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      o.writeTimeout(),
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}}
	s.serving.Go(func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("HTTP port failed", "address", listener.Addr().String(), "error", err)
		}
	})
	return s, nil
}

// writeTimeout bounds the longest answer: a request to the broker, and with pprof a profile of some minutes.
func (o *Options) writeTimeout() time.Duration {
	d := max(o.RequestTimeout, o.CheckTimeout) + 15*time.Second
	if o.Pprof {
		d = max(d, 5*time.Minute)
	}
	return d
}

// Addr is the address listened on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops listening and waits for requests under way until ctx ends; then it cuts them off.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	return err
}
