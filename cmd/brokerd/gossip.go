package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"geminga/pkg/cluster"
)

// What a broker's gossip says of it.
const (
	servicePulsar      = "pulsar"
	serviceIncarnation = "inc"
	serviceWeb         = "web"
)

var errNoGossip = errors.New("gossip has not begun: no bookie has told the id of the cluster yet")

// join makes the broker known and says when it is ready. What gossip cannot do without ends the daemon.
func (s *server) join(ctx context.Context, bookies []string) {
	if !s.alone() {
		if err := s.openGossip(ctx, bookies); err != nil {
			select {
			case s.failed <- err:
			case <-ctx.Done():
			}
			return
		}
	}
	s.announce(ctx, bookies)
}

// alone reports whether this is a standalone: no other broker can come, and there is no gossip.
func (s *server) alone() bool { return len(s.bookies) > 0 }

// openGossip opens gossip under the id of the bookies' cluster, as soon as that is known. So brokers of another cluster
// are not taken for members, whatever gossipJoin names.
func (s *server) openGossip(ctx context.Context, bookies []string) error {
	id, err := s.clusterID(ctx, bookies)
	if err != nil {
		return err
	}
	c, err := cluster.Open(cluster.Options{
		Name: s.broker.ID(), Role: cluster.Broker, Cluster: id,
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
	s.members.cluster.Store(c)
	return nil
}

// clusterID returns bookieClusterId, or else what the bookies say; it asks them until one answers.
func (s *server) clusterID(ctx context.Context, bookies []string) (string, error) {
	if id := s.conf.bookieCluster; id != "" {
		return id, nil
	}
	for {
		id := ""
		for address, status := range s.client.Status(ctx) {
			switch told := status.GetClusterId(); {
			case told == "" || told == id:
			case id != "":
				return "", fmt.Errorf("metadataStoreUrl names bookies of the clusters %q and %q: %s is of %q", id, told, address, told)
			default:
				id = told
			}
		}
		if id != "" {
			return id, nil
		}
		s.log.Warn("brokerd is not ready, trying again", "reason", errNoGossip, "bookies", bookies)
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Second):
		}
	}
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

// ready is nil when the broker serves and the others can know of it.
func (s *server) ready(ctx context.Context) error {
	if !s.alone() && s.members.cluster.Load() == nil {
		return errNoGossip
	}
	return s.broker.Ready(ctx)
}
