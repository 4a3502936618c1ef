package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"geminga/cmd/internal/daemon"
	"geminga/cmd/internal/settings"
	"geminga/pkg/admin"
	"geminga/pkg/bookie"
	"geminga/pkg/bookieclient"
	"geminga/pkg/broker"
	"geminga/pkg/telemetry"
)

// server is everything that a running brokerd holds, in the order in which it was opened.
type server struct {
	conf    *config
	log     *slog.Logger
	tele    *telemetry.Telemetry
	bookies []*bookie.Bookie // standalone only
	client  *bookieclient.Client
	broker  *broker.Server
	http    *admin.Server
	members members // gossip; unused in standalone

	hush   context.CancelFunc // ends join and announce
	joined sync.WaitGroup
	failed chan error // why the daemon cannot go on
}

// runCommand serves until a signal comes.
func runCommand(ctx context.Context, args []string) error {
	conf, _, _, report, err := parseConfig("brokerd run", args)
	if err != nil {
		return err
	}
	if conf.metadataURL == "" {
		return errNoBookies
	}
	bookies, err := conf.bookies()
	if err != nil {
		return err
	}
	// Not localhost: that would send clients to themselves, and brokers on two machines would have one name.
	if conf.everywhere, err = os.Hostname(); err != nil {
		return fmt.Errorf("set advertisedAddress: %w", err)
	}
	s, err := newServer(conf, report)
	if err != nil {
		return err
	}
	if err := s.openCluster(ctx, bookies); err != nil {
		return errors.Join(err, s.close())
	}
	return daemon.Finish(s.log, "brokerd", s.wait(ctx), s.close)
}

func newServer(conf *config, report settings.Report) (*server, error) {
	log, err := daemon.NewLogger(conf.log)
	if err != nil {
		return nil, err
	}
	report.Log(log, "brokerd")
	return &server{conf: conf, log: log, failed: make(chan error)}, nil
}

func (s *server) openTelemetry() (err error) {
	s.tele, err = telemetry.New(telemetry.Options{ServiceName: "brokerd", Instance: s.conf.advertise(s.conf.port), Cluster: s.conf.cluster, Logger: s.log})
	return err
}

func (s *server) openCluster(ctx context.Context, bookies []string) error {
	if err := s.openTelemetry(); err != nil {
		return err
	}
	return s.openBroker(ctx, bookies)
}

// openBroker opens what every broker has: the client of the bookies, the server, the HTTP port, and in the background, in
// a cluster, gossip.
func (s *server) openBroker(ctx context.Context, bookies []string) (err error) {
	s.client, err = bookieclient.Open(bookieclient.Options{
		Bookies: bookies, ClusterID: s.conf.bookieCluster, Logger: s.log, MeterProvider: s.tele.MeterProvider(),
	})
	if err != nil {
		return err
	}
	if err := s.checkCluster(ctx); err != nil {
		return err
	}
	o := s.conf.brokerOptions()
	o.AdvertisedURL = "pulsar://" + s.conf.advertise(s.conf.port)
	o.AdvertisedWebURL = "http://" + s.conf.advertise(s.conf.webPort)
	o.ID = s.conf.advertise(s.conf.port)
	o.Bookies, o.Store, o.Watch = s.client, s.client, s.client.Watch
	if !s.alone() {
		o.Members = &s.members
	}
	o.Logger, o.MeterProvider = s.log, s.tele.MeterProvider()
	if files, asked := openFiles(), o.Limits.Connections; forClients(files, asked) != asked {
		o.Limits.Connections = forClients(files, asked)
		s.log.Info("clients may have as many connections as leave descriptors for others",
			"connections", o.Limits.Connections, "brokerMaxConnections", asked, "openFiles", files)
	}
	if s.broker, err = broker.Open(ctx, o); err != nil {
		return err
	}
	if s.http, err = admin.Open(s.adminOptions()); err != nil {
		return fmt.Errorf("webServicePort: %w", err)
	}
	s.log.Info("brokerd listens", "cluster", s.conf.cluster, "pulsar", s.broker.ServiceURL(), "http", s.http.Addr().String())
	ctx, s.hush = context.WithCancel(ctx)
	s.joined.Go(func() { s.join(ctx, bookies) })
	return nil
}

// checkCluster asks the bookies that answer for their cluster id. None answering is no error: they may come later.
func (s *server) checkCluster(ctx context.Context) error {
	if s.conf.bookieCluster == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.client.CheckCluster(ctx); err != nil {
		return fmt.Errorf("bookieClusterId is %q: %w: check metadataStoreUrl", s.conf.bookieCluster, err)
	}
	return nil
}

func (s *server) adminOptions() admin.Options {
	return admin.Options{
		Address: s.conf.address(s.conf.webPort),
		Ready:   []admin.Check{{Name: "broker", Func: s.ready}},
		Health:  s.ready,
		Metrics: s.tele.Handler(),
		Broker:  s.broker.Directory(),
		Clusters: []string{
			s.conf.cluster,
		},
		Pprof:  s.conf.pprof,
		Logger: s.log,
	}
}

// wait returns nil after a signal, and else why the daemon cannot go on.
func (s *server) wait(ctx context.Context) error {
	for _, b := range s.bookies {
		go func() {
			select {
			case err := <-b.Failed():
				select {
				case s.failed <- fmt.Errorf("an embedded bookie has failed: %w", err):
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}()
	}
	select {
	case <-ctx.Done():
		s.log.Info("signal received, shutting down")
		return nil
	case err := <-s.failed:
		return err
	}
}

// close is safe after a partial open. The broker goes first: it answers what is under way and hands its topics over.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.shutdown)
	defer cancel()
	if s.hush != nil {
		s.hush()
		s.joined.Wait()
	}
	var errs []error
	if s.broker != nil {
		errs = append(errs, s.broker.Close(ctx))
	}
	if c := s.members.cluster.Load(); c != nil {
		errs = append(errs, c.Close())
	}
	if s.http != nil {
		errs = append(errs, s.http.Close(ctx))
	}
	if s.client != nil {
		s.client.Shutdown()
	}
	for _, b := range s.bookies {
		errs = append(errs, b.Close(ctx))
	}
	if s.tele != nil {
		errs = append(errs, s.tele.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
