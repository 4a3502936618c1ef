package bookie

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"geminga/pkg/journal"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// Options says how a bookie runs. What it is (its id, its cluster) was decided by Init.
type Options struct {
	DataDir     string // made by Init
	MetadataDir string // of the metadata group's log and snapshots; default DataDir/metadata, always on the real disk
	FS          vfs.FS // of cluster.json and the journal; default the real disk
	ClusterID   string // when set, Open refuses a data directory of another cluster

	ListenAddress     string       // host:port
	Listener          net.Listener // used instead of ListenAddress when set; the bookie closes it
	AdvertisedAddress string       // what others dial; default the address listened on
	Dial              Dial         // how other bookies are reached; default TCP
	Rack              string       // what fails together with it: replicas are spread over racks. Empty: a rack of its own

	Journal JournalOptions
	Raft    RaftOptions

	LedgerGroupsPerBookie int // groups that prefer this bookie as their leader; default 1
	ReplicationFactor     int // replicas of new groups, at most; default 3

	// ReplaceAfter is how long a bookie may be silent before its replicas are replaced; default 5 min, negative: for ever.
	ReplaceAfter time.Duration
	// ProbeInterval is how often the metadata leader asks who is there, and the leader of a group whether its
	// configuration is what it should be; default 1 s.
	ProbeInterval time.Duration
	// LeadAfter is how long a leader waits before it hands a group to the replica that is preferred; default 10 s, negative: for ever.
	LeadAfter time.Duration

	MaxProposalBytes int           // how much one proposal gathers; default 1 MiB
	MaxCommandBytes  int           // largest single command; default 7 MiB
	MaxInFlight      int           // proposals of a group that wait for their commit; default 4
	MaxQueueBytes    int           // appends of a group that wait to be proposed; default 32 MiB
	RecentBytes      int           // newest entries of a group's log kept in memory; default 4 MiB
	QueueTimeout     time.Duration // how long a stream waits for room in the queue before it is told OVERLOADED; default 1 s
	ApplyTimeout     time.Duration // after which a proposal's outcome is unknown; default 10 s
	StallTimeout     time.Duration // a leader with appends and no apply for so long has failed; default 30 s
	WatchBuffer      int           // events a watcher may be behind; default 8192
	MinFreeSpace     uint64        // below it no entries are taken; default 256 MiB
	MinFreeSpaceLwm  uint64        // from it on they are taken again; default half more than MinFreeSpace
	Reserve          int64         // space kept to live on when others fill the disk; default 16 MiB and a journal segment, negative: none

	SnapshotLogBytes int64 // a group's log grows by this between two snapshots, at least; default 64 MiB
	TrailingLogBytes int64 // of a group's log that stay behind a snapshot for replicas that lag; default 64 MiB, negative: none

	ReclaimInterval       time.Duration // between two looks whether deleted ledgers have left space to be given back; default 1 min
	ReclaimBytesPerSecond int64         // how fast what is left in sparse segments is copied; default 32 MiB/s

	BackfillBytesPerSecond int64 // how fast a replica fetches entries that it lacks from others; default 64 MiB/s

	ScrubBytesPerSecond int64 // how fast the journal is read to find damage; default 4 MiB/s, negative: never

	Logger        *slog.Logger
	MeterProvider metric.MeterProvider
}

// Dial connects to an address. An error that is ECONNREFUSED says that nobody listens there.
type Dial = func(ctx context.Context, addr string) (net.Conn, error)

// JournalOptions are passed on to the journal.
type JournalOptions struct {
	Dir          string        // default DataDir/journal
	SegmentSize  int64         // default 128 MiB
	NoSync       bool          // answer after the write, not after the sync: power loss may lose acknowledged entries
	Buffered     bool          // write through the page cache; without NoSync the default is past it, where that can be done
	WriteTimeout time.Duration // a write or sync that takes longer has failed, and the process ends; default 4 s
	MaxGroupWait time.Duration // a write waits so long for others to share its sync; default 0
}

// RaftOptions are the timeouts of the groups. All heartbeats pass through the main loop of a group, behind its
// fsyncs, hence they are longer than the library's.
type RaftOptions struct {
	PreferredTimeout time.Duration // heartbeat and election timeout of a group's preferred replica; default 1.5 s
	FollowerTimeout  time.Duration // of its other replicas; default 3 s
	MetadataTimeout  time.Duration // of the metadata group; default 2 s
	RefusedAfter     time.Duration // a leader whose port has refused connections for so long is taken for dead; default 200 ms, negative: never
	Turn             time.Duration // when a leader died, a replica waits so long for each that is to stand for election before it; default 400 ms
	RPCTimeout       time.Duration // of one call between replicas; default 5 s
	SnapshotTimeout  time.Duration // of sending one snapshot; default 10 min
	SnapshotEvery    uint64        // metadata entries between snapshots; default 8192
	TrailingLogs     uint64        // metadata entries kept behind a snapshot for members that lag; default 10240
	MaxAppendEntries int           // entries in one call; default 8
}

// EnsureDefaults fills in what is not set.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Disk{}
	}
	setDefault(&o.MetadataDir, filepath.Join(o.DataDir, "metadata"))
	setDefault(&o.Journal.Dir, filepath.Join(o.DataDir, "journal"))
	if o.Dial == nil {
		o.Dial = dialTCP
	}
	setDefault(&o.LedgerGroupsPerBookie, 1)
	setDefault(&o.ReplicationFactor, 3)
	setDefault(&o.ReplaceAfter, 5*time.Minute)
	setDefault(&o.ProbeInterval, time.Second)
	setDefault(&o.LeadAfter, 10*time.Second)
	setDefault(&o.MaxProposalBytes, 1<<20)
	setDefault(&o.MaxCommandBytes, 7<<20)
	setDefault(&o.MaxInFlight, 4)
	setDefault(&o.MaxQueueBytes, 32<<20)
	setDefault(&o.RecentBytes, 4<<20)
	setDefault(&o.QueueTimeout, time.Second)
	setDefault(&o.ApplyTimeout, 10*time.Second)
	setDefault(&o.StallTimeout, 30*time.Second)
	setDefault(&o.WatchBuffer, 8192)
	setDefault(&o.MinFreeSpace, 256<<20)
	setDefault(&o.MinFreeSpaceLwm, o.MinFreeSpace+o.MinFreeSpace/2)
	setDefault(&o.Journal.SegmentSize, 128<<20)
	setDefault(&o.Reserve, 16<<20+o.Journal.SegmentSize)
	setDefault(&o.SnapshotLogBytes, 64<<20)
	setDefault(&o.TrailingLogBytes, 64<<20)
	setDefault(&o.ReclaimInterval, time.Minute)
	setDefault(&o.ReclaimBytesPerSecond, 32<<20)
	setDefault(&o.BackfillBytesPerSecond, 64<<20)
	setDefault(&o.ScrubBytesPerSecond, 4<<20)
	setDefault(&o.Journal.WriteTimeout, 4*time.Second) // with an election after it, a hung disk costs less than 10 s
	o.Raft.ensureDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = noop.NewMeterProvider()
	}
}

func (o *RaftOptions) ensureDefaults() {
	setDefault(&o.PreferredTimeout, 1500*time.Millisecond)
	setDefault(&o.FollowerTimeout, 3*time.Second)
	setDefault(&o.MetadataTimeout, 2*time.Second)
	setDefault(&o.RefusedAfter, 200*time.Millisecond)
	setDefault(&o.Turn, 400*time.Millisecond)
	setDefault(&o.RPCTimeout, 5*time.Second)
	setDefault(&o.SnapshotTimeout, 10*time.Minute)
	setDefault(&o.SnapshotEvery, 8192)
	setDefault(&o.TrailingLogs, 10240)
	setDefault(&o.MaxAppendEntries, 8)
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate reports all that is wrong.
func (o *Options) Validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(o.DataDir == "", "DataDir is empty")
	bad(o.ListenAddress == "" && o.Listener == nil, "ListenAddress is empty")
	bad(o.LedgerGroupsPerBookie < 0, "LedgerGroupsPerBookie %d is negative", o.LedgerGroupsPerBookie)
	bad(o.ReplicationFactor < 1 || o.ReplicationFactor > 7, "ReplicationFactor %d is not in 1…7", o.ReplicationFactor)
	bad(o.ProbeInterval < 0, "ProbeInterval %s is negative", o.ProbeInterval)
	bad(o.ReplaceAfter > 0 && o.ReplaceAfter < 3*o.ProbeInterval, "ReplaceAfter %s is below three ProbeIntervals of %s", o.ReplaceAfter, o.ProbeInterval)
	bad(o.ReclaimBytesPerSecond < 0, "ReclaimBytesPerSecond %d is negative", o.ReclaimBytesPerSecond)
	bad(o.BackfillBytesPerSecond < 0, "BackfillBytesPerSecond %d is negative", o.BackfillBytesPerSecond)
	bad(o.MinFreeSpaceLwm < o.MinFreeSpace, "MinFreeSpaceLwm %d is below MinFreeSpace %d", o.MinFreeSpaceLwm, o.MinFreeSpace)
	bad(o.MaxInFlight < 1, "MaxInFlight %d is not positive", o.MaxInFlight)
	bad(o.MaxProposalBytes < 4096, "MaxProposalBytes %d is below 4 KiB", o.MaxProposalBytes)
	bad(o.MaxQueueBytes < o.MaxCommandBytes, "MaxQueueBytes %d is below MaxCommandBytes %d", o.MaxQueueBytes, o.MaxCommandBytes)
	// A follower that lags gets MaxAppendEntries proposals in one message, and the library counts only their number.
	perCall := o.Raft.MaxAppendEntries * max(o.MaxProposalBytes, o.MaxCommandBytes)
	bad(perCall > bookiepb.MaxMessageSize-1<<20, "MaxAppendEntries × largest proposal = %d bytes does not fit a message of %d",
		perCall, bookiepb.MaxMessageSize)
	bad(o.Raft.FollowerTimeout < o.Raft.PreferredTimeout, "FollowerTimeout %s is below PreferredTimeout %s",
		o.Raft.FollowerTimeout, o.Raft.PreferredTimeout)
	return errors.Join(errs...)
}

func (o *Options) journalOptions() journal.Options {
	return journal.Options{
		Dir: o.Journal.Dir, FS: o.FS, SegmentSize: o.Journal.SegmentSize, SyncData: !o.Journal.NoSync, Buffered: o.Journal.Buffered,
		WriteDeadline: o.Journal.WriteTimeout, MaxGroupWait: o.Journal.MaxGroupWait,
		Logger: o.Logger, MeterProvider: o.MeterProvider,
	}
}
