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
	"geminga/pkg/cluster"
	"geminga/pkg/telemetry"
)

// server is everything that a running brokerd holds, in the order in which it was opened.
type server struct {
	conf    *config
	log     *slog.Logger
	tele    *telemetry.Telemetry
	bookies []*bookie.Bookie // standalone only
	client  *bookieclient.Client
	gossip  *cluster.Cluster // nil in standalone
	broker  *broker.Server
	http    *admin.Server
	members members

	hush       context.CancelFunc // ends announce
	announcing sync.WaitGroup
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
	return &server{conf: conf, log: log}, nil
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

// openBroker opens what every broker has: the client of the bookies, the server, gossip (in a cluster), the HTTP port.
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
	o.Bookies, o.Store, o.Watch, o.Members = s.client, s.client, s.client.Watch, &s.members
	o.Logger, o.MeterProvider = s.log, s.tele.MeterProvider()
	if s.broker, err = broker.Open(ctx, o); err != nil {
		return err
	}
	if len(s.bookies) == 0 {
		if err := s.openGossip(); err != nil {
			return err
		}
	}
	if s.http, err = admin.Open(s.adminOptions()); err != nil {
		return fmt.Errorf("webServicePort: %w", err)
	}
	s.log.Info("brokerd listens", "cluster", s.conf.cluster, "pulsar", s.broker.ServiceURL(), "http", s.http.Addr().String())
	ctx, s.hush = context.WithCancel(ctx)
	s.announcing.Go(func() { s.announce(ctx, bookies) })
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

func (s *server) openGossip() (err error) {
	s.gossip, err = cluster.Open(cluster.Options{
		Name: s.broker.ID(), Role: cluster.Broker,
		Services: map[string]string{
			servicePulsar: s.broker.ServiceURL(), serviceIncarnation: s.broker.Incarnation(),
			serviceWeb: "http://" + s.conf.advertise(s.conf.webPort),
		},
		Bind:      s.conf.address(s.conf.gossip),
		Advertise: s.conf.gossipAdvertise(),
		Join:      s.conf.join, SecretKey: []byte(s.conf.gossipKey), Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("gossipPort: %w", err)
	}
	s.members.cluster.Store(s.gossip)
	return nil
}

// announce writes the ready line once the metadata answers. Bookies that are slower only delay what a topic does first.
func (s *server) announce(ctx context.Context, bookies []string) {
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := s.broker.Ready(try)
		cancel()
		if err == nil {
			s.log.Info("brokerd is ready", "pulsar", s.broker.ServiceURL(), "http", s.http.Addr().String())
			return
		}
		s.log.Warn("brokerd is not ready, trying again", "reason", err, "bookies", bookies)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (s *server) adminOptions() admin.Options {
	return admin.Options{
		Address: s.conf.address(s.conf.webPort),
		Ready:   []admin.Check{{Name: "broker", Func: s.broker.Ready}},
		Health:  s.broker.Ready,
		Metrics: s.tele.Handler(),
		Broker:  s.broker.Directory(),
		Clusters: []string{
			s.conf.cluster,
		},
		Pprof:  s.conf.pprof,
		Logger: s.log,
	}
}

// wait returns nil after a signal, and the reason when an embedded bookie has failed.
func (s *server) wait(ctx context.Context) error {
	failed := make(chan error, len(s.bookies))
	for _, b := range s.bookies {
		go func() {
			select {
			case err := <-b.Failed():
				failed <- err
			case <-ctx.Done():
			}
		}()
	}
	select {
	case <-ctx.Done():
		s.log.Info("signal received, shutting down")
		return nil
	case err := <-failed:
		return fmt.Errorf("an embedded bookie has failed: %w", err)
	}
}

// close is safe after a partial open. The broker goes first: it answers what is under way and hands its topics over.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.shutdown)
	defer cancel()
	if s.hush != nil {
		s.hush()
		s.announcing.Wait()
	}
	var errs []error
	if s.broker != nil {
		errs = append(errs, s.broker.Close(ctx))
	}
	if s.gossip != nil {
		errs = append(errs, s.gossip.Close())
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

const (
	servicePulsar      = "pulsar"
	serviceIncarnation = "inc"
	serviceWeb         = "web"
)
