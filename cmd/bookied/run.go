package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"

	"geminga/cmd/internal/daemon"
	"geminga/pkg/admin"
	"geminga/pkg/bookie"
	"geminga/pkg/cluster"
	"geminga/pkg/telemetry"
	"geminga/pkg/vfs"
)

// server is everything that a running bookied holds, in the order in which it was opened.
type server struct {
	conf   *config
	log    *slog.Logger
	tele   *telemetry.Telemetry
	bookie *bookie.Bookie
	gossip *cluster.Cluster
	http   *admin.Server

	hush       context.CancelFunc // ends announce
	announcing sync.WaitGroup
}

// runCommand serves until a signal comes or the bookie fails.
func runCommand(ctx context.Context, args []string) error {
	conf, _, data, report, err := parseConfig("bookied run", args)
	if err != nil {
		return err
	}
	if data == "" {
		return errors.New("run needs --data, a directory prepared by bookied init")
	}
	log, err := daemon.NewLogger(conf.log)
	if err != nil {
		return err
	}
	report.Log(log, "bookied")
	s := &server{conf: conf, log: log}
	if err := s.open(ctx, data); err != nil {
		return errors.Join(err, s.close())
	}
	return daemon.Finish(s.log, "bookied", s.wait(ctx), s.close)
}

func (s *server) open(ctx context.Context, data string) (err error) {
	id, clusterID, err := bookie.Identity(vfs.Disk{}, data)
	if err != nil {
		return err
	}
	if s.tele, err = telemetry.New(telemetry.Options{ServiceName: "bookied", Instance: id, Cluster: clusterID, Logger: s.log}); err != nil {
		return err
	}
	options := s.conf.bookieOptions(data)
	options.Logger, options.MeterProvider = s.log, s.tele.MeterProvider()
	if s.bookie, err = bookie.Open(ctx, options); err != nil {
		return err
	}
	if s.gossip, err = cluster.Open(s.gossipOptions()); err != nil {
		return fmt.Errorf("gossipPort: %w", err)
	}
	if s.http, err = admin.Open(s.adminOptions()); err != nil {
		return fmt.Errorf("httpServerPort: %w", err)
	}
	s.log.Info("bookied listens", "bookie", s.bookie.BookieID(), "cluster", s.bookie.ClusterID(),
		"grpc", s.bookie.Address(), "http", s.http.Addr().String(), "data", data)
	ctx, s.hush = context.WithCancel(ctx)
	s.announcing.Go(func() { s.announce(ctx) })
	return nil
}

func (s *server) gossipOptions() cluster.Options {
	return cluster.Options{
		Name: s.bookie.BookieID(), Role: cluster.Bookie, Cluster: s.bookie.ClusterID(), Services: map[string]string{"grpc": s.bookie.Address()},
		Bind: s.conf.address(s.conf.gossip), Advertise: s.conf.gossipAdvertise(),
		Join: s.conf.join, SecretKey: []byte(s.conf.gossipKey), Logger: s.log,
	}
}

func (s *server) adminOptions() admin.Options {
	return admin.Options{
		Address: s.conf.address(s.conf.httpPort),
		Ready:   []admin.Check{{Name: "bookie", Func: s.ready}, {Name: "entries", Func: s.entries}},
		Status: func(context.Context) (any, error) {
			b, err := protojson.Marshal(s.bookie.Status())
			return json.RawMessage(b), err
		},
		Metrics: s.tele.Handler(),
		Pprof:   s.conf.pprof,
		Logger:  s.log,
	}
}

// wait returns nil after a signal, and the reason when the bookie has failed.
func (s *server) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		s.log.Info("signal received, shutting down")
		return nil
	case err := <-s.bookie.Failed():
		return fmt.Errorf("the bookie has failed and must be started again: %w", err)
	}
}

// close is safe after a partial open. Gossip goes first, so that others stop asking.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.shutdown)
	defer cancel()
	if s.hush != nil {
		s.hush()
		s.announcing.Wait()
	}
	var errs []error
	if s.gossip != nil {
		errs = append(errs, s.gossip.Close())
	}
	if s.http != nil {
		errs = append(errs, s.http.Close(ctx))
	}
	if s.bookie != nil {
		errs = append(errs, s.bookie.Close(ctx))
	}
	if s.tele != nil {
		errs = append(errs, s.tele.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
