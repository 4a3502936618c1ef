package broker

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"geminga/pkg/eventloop"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// Member is a broker of the cluster as gossip sees it.
type Member struct {
	ID          string
	Incarnation string // "": not known, any is taken for the same
	ServiceURL  string
	TLSURL      string
	WebURL      string // http:// of its admin API
}

// Members tells which brokers are alive. It suggests and never decides: two brokers that disagree are kept apart by the
// owner records. Any goroutine; it must not block.
type Members interface {
	// Brokers returns the brokers that are alive, with or without this one.
	Brokers() []Member
	// Settled says that whoever is not among Brokers is gone, as far as can be told. Before, it may not have been heard of
	// yet, and its bundles are not taken over.
	Settled() bool
}

// Watch calls items with what is below prefix: first all of it, then every change (Version 0: deleted), until ctx ends.
// synced is true once the first are complete. It returns at once and reconnects by itself.
type Watch func(ctx context.Context, prefix string, items func(items []metadata.Item, synced bool))

// Options of a Server. The names follow the settings of broker.conf where there is one.
type Options struct {
	ID          string // of the broker; stable over restarts, unique in the cluster
	Incarnation string // drawn at each start if empty
	Version     string // what CONNECTED says
	ClusterName string // prefix of generated producer names

	ListenAddress    string // brokerServicePort: host:port
	ListenAddressTLS string // brokerServicePortTls; "": off
	TLSConfig        *tls.Config
	AdvertisedURL    string // what lookups answer; by default pulsar:// and the address listened on
	AdvertisedURLTLS string
	AdvertisedWebURL string // http:// of the admin API, for requests about topics that are served here

	Bookies managedledger.Bookies
	Store   managedledger.Store
	Watch   Watch   // nil: owner records are not watched; a lost topic is noticed by its next write
	Members Members // nil: this broker is alone

	Loops                                  int               // numIOThreads
	Backend                                eventloop.Backend // of the plain port
	ExecutorThreads                        int               // numOrderedExecutorThreads
	MaxMessageSize                         int               // maxMessageSize
	MaxPendingPublishRequestsPerConnection int
	DefaultNumberOfNamespaceBundles        int
	KeepAliveInterval                      time.Duration // keepAliveIntervalSeconds
	HandshakeTimeout                       time.Duration
	ConnectionLivenessCheckTimeout         time.Duration // connectionLivenessCheckTimeoutMillis
	Rules                                  TopicRules
	ExposeBrokerEntryMetadata              bool // exposingBrokerEntryMetadataToClientEnabled

	Admission Admission
	Limits    Limits
	Settings  Settings // nil: the options are never changed

	Topic  topic.Options
	Ledger managedledger.Options
	Cache  managedledger.CacheOptions

	Logger        *slog.Logger
	MeterProvider metric.MeterProvider

	quiet bool // for tests: nothing is listened on, connections come by Serve
}

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	def(&o.ListenAddress, "127.0.0.1:6650")
	def(&o.ID, o.ListenAddress)
	def(&o.Incarnation, draw())
	def(&o.Version, "dev")
	def(&o.ClusterName, "standalone")
	def(&o.Loops, eventloop.DefaultLoops(runtime.GOMAXPROCS(0)))
	def(&o.ExecutorThreads, max(2, runtime.GOMAXPROCS(0)))
	def(&o.MaxMessageSize, protocol.DefaultMaxMessageSize)
	def(&o.MaxPendingPublishRequestsPerConnection, 1000)
	def(&o.DefaultNumberOfNamespaceBundles, 32)
	def(&o.KeepAliveInterval, 30*time.Second)
	def(&o.HandshakeTimeout, 10*time.Second)
	def(&o.ConnectionLivenessCheckTimeout, 5*time.Second)
	o.Admission.EnsureDefaults()
	o.Rules.EnsureDefaults()
	o.Topic.EnsureDefaults()
	o.Ledger.EnsureDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = noop.NewMeterProvider()
	}
	if o.Cache.MeterProvider == nil {
		o.Cache.MeterProvider = o.MeterProvider
	}
}

// Validate reports all faults.
func (o *Options) Validate() error {
	if o.Bookies == nil || o.Store == nil {
		return errors.Join(errors.New("bookies and metadata store are needed"), o.CheckSettings())
	}
	return o.CheckSettings()
}

// CheckSettings reports all faults of what comes from settings, also of those that do not go together. Defaults are filled
// in.
func (o *Options) CheckSettings() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.ListenAddressTLS == "" || o.TLSConfig != nil, "brokerServicePortTls is set, but there is no certificate")
	check(o.Loops > 0, "numIOThreads is %d", o.Loops)
	check(o.ExecutorThreads > 0, "numOrderedExecutorThreads is %d", o.ExecutorThreads)
	check(o.MaxMessageSize >= 1024 && o.MaxMessageSize <= 1<<30, "maxMessageSize is %d", o.MaxMessageSize)
	check(o.MaxPendingPublishRequestsPerConnection > 0, "maxPendingPublishRequestsPerConnection is %d",
		o.MaxPendingPublishRequestsPerConnection)
	check(o.DefaultNumberOfNamespaceBundles > 0 && o.DefaultNumberOfNamespaceBundles <= maxBundles,
		"defaultNumberOfNamespaceBundles is %d", o.DefaultNumberOfNamespaceBundles)
	check(o.KeepAliveInterval > 0, "keepAliveIntervalSeconds is %v", o.KeepAliveInterval)
	check(o.HandshakeTimeout > 0, "handshake timeout is %v", o.HandshakeTimeout)
	check(o.ConnectionLivenessCheckTimeout > 0, "connectionLivenessCheckTimeoutMillis is %v", o.ConnectionLivenessCheckTimeout)
	o.Admission.validate(check)
	o.Rules.validate(check)
	o.Limits.validate(check)
	errs = append(errs, o.Topic.Validate(), o.Ledger.Validate())
	return errors.Join(errs...)
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// draw returns a random name.
func draw() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
