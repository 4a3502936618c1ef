package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// Broker is what the REST of a broker stands on. Methods of it and of the interfaces below may block until ctx ends, and
// come from any goroutine. Their errors are answered as the table in errors.go says.
//
// The interfaces below are looked for in the same value: what a Broker does not have is answered with 501.
type Broker interface {
	// TopicStats returns the figures of a topic that exists and that this broker serves.
	TopicStats(ctx context.Context, name protocol.TopicName) (topic.Stats, error)
}

// Lister tells the full names of the topics of a namespace, served here or not, partitions one by one.
type Lister interface {
	NamespaceTopics(ctx context.Context, namespace protocol.NamespaceName) ([]string, error)
}

// Counter tells the number of partitions of a topic, 0 for a topic without.
type Counter interface {
	Partitions(ctx context.Context, name protocol.TopicName) (int, error)
}

// Locator tells where a topic is served. Requests about topics of other brokers are redirected there. A topic that nobody
// owns is taken by this broker if it should take it, or if another one thought so (authoritative). Without a Locator all
// topics are here.
type Locator interface {
	Locate(ctx context.Context, name protocol.TopicName, authoritative bool) (broker.Location, error)
}

// Partitioner makes partitioned topics.
type Partitioner interface {
	CreatePartitions(ctx context.Context, name protocol.TopicName, partitions int) error
	UpdatePartitions(ctx context.Context, name protocol.TopicName, partitions int) error
}

// Creator makes topics without partitions.
type Creator interface {
	CreateTopic(ctx context.Context, name protocol.TopicName) error
}

// Check is one condition of readiness.
type Check struct {
	Name string
	Func func(ctx context.Context) error // nil: fulfilled; an error says in plain words what is missing
}

// Options of the HTTP port. Whatever is nil is not served.
type Options struct {
	Address string // host:port, for Open

	Ready    []Check                                // all must hold: /readyz, /status.html, /admin/v2/brokers/ready
	Health   func(ctx context.Context) error        // a message's round trip, or as much of it as can be: /admin/v2/brokers/health
	Status   func(ctx context.Context) (any, error) // for people, as JSON: /status
	Metrics  http.Handler                           // /metrics
	Broker   Broker                                 // /admin/v2/persistent/…, /lookup/v2/…
	Clusters []string                               // /admin/v2/clusters
	Pprof    bool                                   // /debug/pprof: costs CPU and shows internals

	CheckTimeout   time.Duration // of a probe
	RequestTimeout time.Duration // of a request to the Broker

	Client *http.Client // for requests to other brokers; nil: http.DefaultClient

	Logger *slog.Logger
}

// EnsureDefaults fills what is zero.
func (o *Options) EnsureDefaults() {
	if o.Address == "" {
		o.Address = "127.0.0.1:8080"
	}
	if o.CheckTimeout == 0 {
		o.CheckTimeout = 5 * time.Second
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 30 * time.Second
	}
	if o.Client == nil {
		o.Client = http.DefaultClient
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports all faults.
func (o *Options) Validate() error {
	var errs []error
	if o.CheckTimeout <= 0 || o.RequestTimeout <= 0 {
		errs = append(errs, fmt.Errorf("admin: timeouts are %v and %v", o.CheckTimeout, o.RequestTimeout))
	}
	for i, c := range o.Ready {
		if c.Name == "" || c.Func == nil {
			errs = append(errs, fmt.Errorf("admin: readiness check %d (%q) is incomplete", i, c.Name))
		}
	}
	return errors.Join(errs...)
}
