package main

import (
	"context"
	_ "embed" // the list of BookKeeper's settings
	"flag"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"geminga/cmd/internal/daemon"
	"geminga/cmd/internal/settings"
	"geminga/pkg/bookie"
)

// config is everything that the settings set. Names that Pulsar or BookKeeper have keep their meaning.
type config struct {
	bind, advertised       string
	port, httpPort, gossip int
	join                   []string
	gossipKey              string
	pprof                  bool
	noSync, buffered       bool
	journalDir             string
	segmentMB              int
	writeTimeout           time.Duration
	groupWait              time.Duration
	scrub                  int
	space                  spaceConfig
	groups, replicas       int
	placement              placementConfig
	metadataElection       time.Duration
	groupElection          time.Duration
	refused                time.Duration
	shutdown               time.Duration
	log                    daemon.LogOptions
}

// bookkeeperSettings lists the settings of bookkeeper.conf.
//
//go:embed bookkeeper.conf
var bookkeeperSettings string

func (c *config) register() *settings.Set {
	s := settings.New()
	s.Foreign(settings.ParseForeign(bookkeeperSettings))
	ports := settings.Range{Min: 0, Max: 65535}
	s.String(&c.bind, "bindAddress", "0.0.0.0", "address on which all ports listen")
	s.String(&c.advertised, "advertisedAddress", "", "host that others dial; empty: bindAddress, or the name of this machine when that is 0.0.0.0")
	s.Int(&c.port, "bookiePort", 3181, ports, "port of brokers and other bookies (gRPC)")
	s.Int(&c.httpPort, "httpServerPort", 8000, ports, "port of /healthz, /readyz, /status, /metrics")
	s.Int(&c.gossip, "gossipPort", 7946, ports, "port of the membership gossip, TCP and UDP")
	s.List(&c.join, "gossipJoin", "", "host:port of some members; asked again every 30 s for those that are lost")
	s.String(&c.gossipKey, "gossipSecretKey", "", "16, 24 or 32 characters that encrypt the gossip; the same everywhere").Secret()
	s.Bool(&c.pprof, "pprofEnabled", false, "serve /debug/pprof on the HTTP port")
	s.Func("journalSyncData", "true", "answer after the journal is on disk; false loses acknowledged entries on power loss", settings.Inverted(&c.noSync))
	s.Func("journalDirectIO", "true", "write the journal past the page cache (O_DIRECT) where the file system can; false: through it, which costs more CPU and keeps what was written lately in memory for readers. Without journalSyncData always false", settings.Inverted(&c.buffered))
	s.String(&c.journalDir, "journalDirectory", "", "directory of the journal; empty: <data>/journal")
	s.Int(&c.segmentMB, "journalMaxSizeMB", 128, settings.Range{Min: 1, Max: 2048}, "size of a journal segment in MiB").In("MiB")
	s.DurationOrNone(&c.groupWait, "journalMaxGroupWaitMSec", 0, time.Millisecond, "milliseconds that a write waits for others to share its sync; 0: for those only that came during the one before")
	s.Duration(&c.writeTimeout, "journalWriteTimeoutSeconds", 4, time.Second, "seconds after which a hung write or sync fails the bookie; with an election after it, a hung disk costs less than 10 s")
	s.Int(&c.scrub, "scrubBytesPerSecond", 4<<20, settings.Range{Min: 0, Max: 1 << 40}, "how fast journal and indexes are read in the background to find damage, in bytes a second; 0: not at all, and replicas do not compare their states").In("bytes per second")
	c.space.register(s)
	s.Int(&c.groups, "ledgerGroupsPerBookie", 1, settings.Range{Min: 1, Max: 64}, "ledger groups that prefer this bookie as leader").In("groups")
	s.Int(&c.replicas, "ledgerGroupReplicas", 3, settings.Range{Min: 1, Max: 7}, "replicas of new ledger groups, as far as there are bookies").In("replicas")
	c.placement.register(s)
	s.Duration(&c.metadataElection, "metadataElectionTimeoutMillis", 1000, time.Millisecond, "silence of the metadata leader after which another is elected; raise it on starved machines")
	s.Duration(&c.groupElection, "ledgerGroupElectionTimeoutMillis", 1500, time.Millisecond,
		"the same for a ledger group's preferred leader; the other replicas wait twice as long. Topics do not wait for it: they go on in another group")
	s.DurationOrNone(&c.refused, "refusedConnectionElectionMillis", 200, time.Millisecond,
		"a leader whose port has refused connections for so long is taken for dead, without waiting for the timeouts above; 0: never")
	s.Duration(&c.shutdown, "shutdownTimeoutSeconds", 8, time.Second, "seconds that a clean shutdown may take")
	s.String(&c.log.Level, "logLevel", "info", "debug, info, warn or error")
	s.String(&c.log.Format, "logFormat", "text", "text or json")
	return s
}

// parseConfig reads the flags that run and config share.
func parseConfig(name string, args []string) (c *config, set *settings.Set, data string, report settings.Report, err error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.StringVar(&data, "data", "", "data directory, prepared by bookied init")
	file := fs.String("conf", "", "settings file, name=value lines")
	var sets daemon.Sets
	fs.Var(&sets, "set", "name=value, overrides the file and the environment; may be repeated")
	strict := fs.Bool("strict-config", false, "refuse a settings file with names that neither bookied nor BookKeeper has")
	if err := fs.Parse(args); err != nil {
		return nil, nil, "", report, err
	}
	c = &config{}
	set = c.register()
	report, err = set.Load(settings.Sources{File: *file, Environ: os.Environ(), Sets: sets, Strict: *strict})
	return c, set, data, report, err
}

func configCommand(_ context.Context, args []string) error {
	_, set, _, report, err := parseConfig("bookied config", args)
	if err != nil {
		return err
	}
	set.Print(os.Stdout)
	report.Log(slog.New(slog.NewTextHandler(os.Stderr, nil)), "bookied")
	return nil
}

func (c *config) address(port int) string { return net.JoinHostPort(c.bind, strconv.Itoa(port)) }

func (c *config) bookieOptions(data string) bookie.Options {
	o := bookie.Options{
		DataDir:           data,
		ListenAddress:     c.address(c.port),
		AdvertisedAddress: c.bookieAdvertise(),
		Journal: bookie.JournalOptions{
			Dir: c.journalDir, SegmentSize: int64(c.segmentMB) << 20, NoSync: c.noSync, Buffered: c.buffered, WriteTimeout: c.writeTimeout,
			MaxGroupWait: c.groupWait,
		},
		Raft: bookie.RaftOptions{
			MetadataTimeout: c.metadataElection, PreferredTimeout: c.groupElection, FollowerTimeout: 2 * c.groupElection,
			RefusedAfter: c.refused,
		},
		LedgerGroupsPerBookie: c.groups,
		ScrubBytesPerSecond:   c.scrubRate(),
		ReplicationFactor:     c.replicas,
	}
	if c.refused == 0 {
		o.Raft.RefusedAfter = -1
	}
	c.placement.apply(&o)
	c.space.apply(&o)
	return o
}

// gossipAdvertise is empty unless there is something better than the address that gossip listens on.
func (c *config) gossipAdvertise() string {
	if c.advertised == "" {
		return ""
	}
	return net.JoinHostPort(c.advertised, strconv.Itoa(c.gossip))
}

// bookieAdvertise is the same for the bookie's own port.
func (c *config) bookieAdvertise() string {
	if c.advertised == "" {
		return ""
	}
	return net.JoinHostPort(c.advertised, strconv.Itoa(c.port))
}

// scrubRate says "never" in the options' way.
func (c *config) scrubRate() int64 {
	if c.scrub == 0 {
		return -1
	}
	return int64(c.scrub)
}
