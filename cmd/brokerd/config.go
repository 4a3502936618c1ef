package main

import (
	"context"
	_ "embed" // the list of Pulsar's settings
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"geminga/cmd/internal/daemon"
	"geminga/cmd/internal/settings"
	"geminga/pkg/broker"
	"geminga/pkg/managedledger"
	"geminga/pkg/topic"
)

// config is everything that the settings set. Names that Pulsar has keep their meaning.
type config struct {
	bind, advertised, cluster       string
	everywhere                      string // what others dial when bind is all addresses
	port, webPort, gossip           int
	metadataURL, bookieCluster      string
	join                            []string
	gossipKey                       string
	pprof                           bool
	maxEntries, maxSizeMB           int
	retentionMinutes, retentionMB   int
	cursorEntries, cacheMB          int
	cacheCopy                       bool
	shutdown                        time.Duration
	log                             daemon.LogOptions
	standalonePort, standaloneCount int
	journalDir                      string // this and the next four: of the embedded bookies
	journalMB                       int
	journalNoSync, journalBuffered  bool
	journalTimeout                  time.Duration
	options                         broker.Options
	loaded                          *settings.Set // that all of this comes from
}

const unlimited = 1 << 30

// pulsarSettings lists the settings of broker.conf.
//
//go:embed pulsar.conf
var pulsarSettings string

func (c *config) register() *settings.Set {
	s := settings.New()
	s.Foreign(settings.ParseForeign(pulsarSettings))
	c.registerNetwork(s)
	c.registerBroker(s)
	c.registerAdmission(s)
	c.registerLimits(s)
	c.registerDispatch(s)
	c.registerTopics(s)
	c.registerStorage(s)
	s.String(&c.log.Level, "logLevel", "info", "debug, info, warn or error")
	s.String(&c.log.Format, "logFormat", "text", "text or json")
	return s
}

func (c *config) registerNetwork(s *settings.Set) {
	ports := settings.Range{Min: 0, Max: 65535}
	s.String(&c.cluster, "clusterName", "standalone", "name of the cluster in generated producer names and in the admin API")
	s.String(&c.bind, "bindAddress", "0.0.0.0", "address on which all ports listen")
	s.String(&c.advertised, "advertisedAddress", "", "host that lookups answer and others dial; empty: bindAddress; when that is 0.0.0.0, the name of this machine, or localhost in standalone")
	s.Int(&c.port, "brokerServicePort", 6650, ports, "port of the Pulsar binary protocol")
	s.Int(&c.webPort, "webServicePort", 8080, ports, "port of the admin API, health and metrics")
	s.String(&c.metadataURL, "metadataStoreUrl", "", "bookied:host:port,host:port of some bookies; the others are found through them")
	s.String(&c.bookieCluster, "bookieClusterId", "", "cluster id that the bookies must have; empty: any")
	s.Int(&c.gossip, "gossipPort", 7946, ports, "port of the membership gossip, TCP and UDP")
	s.List(&c.join, "gossipJoin", "", "host:port of some members; asked again every 30 s for those that are lost")
	s.String(&c.gossipKey, "gossipSecretKey", "", "16, 24 or 32 characters that encrypt the gossip; the same everywhere").Secret()
	s.Bool(&c.pprof, "pprofEnabled", false, "serve /debug/pprof on the web port")
	s.Int(&c.standalonePort, "bookiePort", 3181, ports, "standalone: port of the first embedded bookie, on 127.0.0.1; the others follow")
	s.Int(&c.standaloneCount, "standaloneBookies", 1, settings.Range{Min: 1, Max: 5}, "standalone: embedded bookies; odd, decided at the first start").In("bookies")
	s.Func("journalSyncData", "true", "standalone: answer after the journal is on disk; false loses acknowledged entries on power loss", settings.Inverted(&c.journalNoSync))
	s.Func("journalDirectIO", "true", "standalone: write the journal past the page cache (O_DIRECT) where the file system can", settings.Inverted(&c.journalBuffered))
	s.String(&c.journalDir, "journalDirectory", "", "standalone: directory of the journals, one below it for each bookie; empty: with the other data")
	s.Int(&c.journalMB, "journalMaxSizeMB", 128, settings.Range{Min: 1, Max: 2048}, "standalone: size of a journal segment").In("MiB")
	s.Duration(&c.journalTimeout, "journalWriteTimeoutSeconds", 4, time.Second, "standalone: time after which a hung write or sync fails the bookie")
}

func (c *config) registerBroker(s *settings.Set) {
	o := &c.options
	s.Int(&o.Loops, "numIOThreads", 0, settings.Range{Min: 0, Max: 1024}, "I/O loops; 0: min(2n, max(8, n/2)) for n processors").In("loops")
	s.Int(&o.ExecutorThreads, "numOrderedExecutorThreads", 0, settings.Range{Min: 0, Max: 1024}, "executors of topics and subscriptions; 0: one per processor, at least 2").In("threads")
	s.Int(&o.MaxMessageSize, "maxMessageSize", 5<<20, settings.Range{Min: 1024, Max: 5 << 20}, "largest payload of a message in bytes").In("bytes")
	s.Int(&o.MaxPendingPublishRequestsPerConnection, "maxPendingPublishRequestsPerConnection", 1000, settings.Range{Min: 1, Max: unlimited},
		"unanswered sends of a connection from which on it is not read; again at half of it").In("messages")
	s.Int(&o.DefaultNumberOfNamespaceBundles, "defaultNumberOfNamespaceBundles", 32, settings.Range{Min: 1, Max: 4096}, "bundles of a namespace, the units of ownership; the same on all brokers").In("bundles")
	s.Duration(&o.KeepAliveInterval, "keepAliveIntervalSeconds", 30, time.Second, "seconds of silence after which a client is pinged")
	s.Duration(&o.ConnectionLivenessCheckTimeout, "connectionLivenessCheckTimeoutMillis", 5000, time.Millisecond,
		"how long an old connection may take to answer when another claims its exclusive subscription or producer name")
	s.Duration(&c.shutdown, "brokerShutdownTimeoutMs", 8000, time.Millisecond, "how long a clean shutdown may take")

	t := &o.Topic
	s.Bool(&t.BrokerDeduplicationEnabled, "brokerDeduplicationEnabled", false, "drop what a producer sends a second time with the same sequence id")
	s.Int(&t.BrokerDeduplicationEntriesInterval, "brokerDeduplicationEntriesInterval", 1000, settings.Range{Min: 1, Max: unlimited}, "entries between two snapshots of the sequence ids").In("entries")
	s.Int(&t.BrokerDeduplicationMaxNumberOfProducers, "brokerDeduplicationMaxNumberOfProducers", 10_000, settings.Range{Min: 1, Max: unlimited}, "producers in a snapshot").In("producers")
	s.Duration(&t.BrokerDeduplicationProducerInactivityTimeout, "brokerDeduplicationProducerInactivityTimeoutMinutes", 360, time.Minute, "minutes after which a producer that is gone is forgotten")
	s.Int(&t.DispatcherMaxReadBatchSize, "dispatcherMaxReadBatchSize", 500, settings.Range{Min: 1, Max: 100_000}, "entries that one read asks for").In("entries").Dynamic()
	s.Int(&t.DispatcherMaxReadSizeBytes, "dispatcherMaxReadSizeBytes", 5<<20, settings.Range{Min: 1, Max: unlimited}, "bytes that one read asks for").In("bytes").Dynamic()
	s.Int(&t.DispatcherMaxRoundRobinBatchSize, "dispatcherMaxRoundRobinBatchSize", 20, settings.Range{Min: 1, Max: 100_000}, "entries to one shared consumer before the next one's turn").In("entries").Dynamic()
	s.Limit(&t.MaxUnackedMessagesPerConsumer, "maxUnackedMessagesPerConsumer", 50_000, "unacknowledged messages that block a shared consumer; 0: no limit").In("messages").Dynamic()
	s.Limit(&t.MaxUnackedMessagesPerSubscription, "maxUnackedMessagesPerSubscription", 200_000, "unacknowledged messages that block a shared subscription; 0: no limit").In("messages").Dynamic()
}

// parseConfig reads the flags that the commands share.
func parseConfig(name string, args []string) (c *config, set *settings.Set, data string, report settings.Report, err error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.StringVar(&data, "data", "data/standalone", "standalone: data directory, prepared at the first start")
	file := fs.String("conf", "", "settings file, name=value lines")
	var sets daemon.Sets
	fs.Var(&sets, "set", "name=value, overrides the file and the environment; may be repeated")
	strict := fs.Bool("strict-config", false, "refuse a settings file with names that neither brokerd nor Pulsar has")
	if err := fs.Parse(args); err != nil {
		return nil, nil, "", report, err
	}
	if fs.NArg() > 0 {
		return nil, nil, "", report, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	c = &config{everywhere: "localhost"}
	set = c.register()
	c.loaded = set
	report, err = set.Load(settings.Sources{File: *file, Environ: os.Environ(), Sets: sets, Strict: *strict})
	if err == nil {
		err = c.check()
	}
	return c, set, data, report, err
}

// check reports settings that are good each by itself and do not go together.
func (c *config) check() error {
	o := c.brokerOptions()
	o.EnsureDefaults()
	if err := o.CheckSettings(); err != nil {
		return fmt.Errorf("%w: %w", settings.ErrBadSetting, err)
	}
	return nil
}

func configCommand(_ context.Context, args []string) error {
	_, set, _, report, err := parseConfig("brokerd config", args)
	if err != nil {
		return err
	}
	set.Print(os.Stdout)
	report.Log(slog.New(slog.NewTextHandler(os.Stderr, nil)), "brokerd")
	return nil
}

func (c *config) address(port int) string { return net.JoinHostPort(c.bind, strconv.Itoa(port)) }

// host is what others are told to dial.
func (c *config) host() string {
	switch {
	case c.advertised != "":
		return c.advertised
	case c.bind == "0.0.0.0" || c.bind == "::" || c.bind == "":
		return c.everywhere
	}
	return c.bind
}

func (c *config) advertise(port int) string { return net.JoinHostPort(c.host(), strconv.Itoa(port)) }

// gossipAdvertise is empty unless there is something better than the address that gossip listens on.
func (c *config) gossipAdvertise() string {
	if c.advertised == "" {
		return ""
	}
	return c.advertise(c.gossip)
}

// bookies returns the addresses in metadataStoreUrl.
func (c *config) bookies() ([]string, error) {
	list, ok := strings.CutPrefix(c.metadataURL, "bookied:")
	if !ok || list == "" {
		return nil, fmt.Errorf("metadataStoreUrl is %q, want bookied:host:port,host:port", c.metadataURL)
	}
	return strings.Split(list, ","), nil
}

// brokerOptions fills in what the settings say indirectly.
func (c *config) brokerOptions() broker.Options {
	o := c.options
	o.ClusterName = c.cluster
	o.ListenAddress = c.address(c.port)
	o.Topic = noLimit(o.Topic)
	o.Ledger.MaxEntriesPerLedger = int64(c.maxEntries)
	o.Ledger.MaxBytesPerLedger = int64(c.maxSizeMB) << 20
	o.Ledger.RetentionTime = time.Duration(c.retentionMinutes) * time.Minute
	o.Ledger.RetentionBytes = int64(c.retentionMB) << 20
	if o.Ledger.MinRolloverTime == 0 {
		o.Ledger.MinRolloverTime = time.Nanosecond // to the package, 0 is the default
	}
	o.Ledger.CursorMaxEntriesPerLedger = int64(c.cursorEntries)
	o.Cache = managedledger.CacheOptions{Bytes: int64(c.cacheMB) << 20, CopyEntries: c.cacheCopy}
	o.Settings = storable{c.loaded}
	return o
}

// noLimit turns Pulsar's 0 for "no limit" and "no delay" into the package's -1.
func noLimit(o topic.Options) topic.Options {
	for _, p := range []*int{
		&o.MaxUnackedMessagesPerConsumer, &o.MaxUnackedMessagesPerSubscription,
		&o.KeySharedLookAheadMsgInReplayThresholdPerConsumer, &o.KeySharedLookAheadMsgInReplayThresholdPerSubscription,
	} {
		if *p == 0 {
			*p = -1
		}
	}
	for _, p := range []*time.Duration{&o.ActiveConsumerFailoverDelay, &o.KeySharedUnblockingInterval} {
		if *p == 0 {
			*p = -1
		}
	}
	return o
}

var errNoBookies = errors.New("run needs the setting metadataStoreUrl=bookied:host:port,…; to try things out use brokerd standalone")
