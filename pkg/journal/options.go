package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"geminga/pkg/vfs"
)

// Options say where a journal lives and how careful it is.
type Options struct {
	// Dir holds the segments and nothing else. It is made if missing.
	Dir string
	// FS is where Dir is. Default: vfs.Disk.
	FS vfs.FS

	// SegmentSize is the length to which segment files are allocated. Default 128 MiB.
	SegmentSize int64
	// SyncData makes every write wait for fdatasync. The zero value answers after the write reached the kernel, which
	// survives the death of the process but not of the machine; DefaultOptions sets it to true.
	SyncData bool
	// Buffered writes segments through the page cache. Zero value: past it where that can be done, see vfs.File.WriteDirect.
	// Ignored without SyncData, which is always through it.
	Buffered bool
	// MaxGroupWait lets a batch wait for company. Default 0: a batch is what gathered during the one before it.
	MaxGroupWait time.Duration
	// MaxRecordSize bounds Data plus Extra of one record. Default 64 MiB.
	MaxRecordSize int
	// MaxBatchSize bounds what is gathered into one write, unless a single call is larger. Default 8 MiB.
	MaxBatchSize int
	// TailSize is the memory that holds the newest bytes of the journal for readers. Default 32 MiB.
	TailSize int
	// WriteDeadline is how long a write, a sync or the allocation of a segment may take before the journal gives up
	// for good. Default 10 s.
	WriteDeadline time.Duration

	// Logger gets one line about each recovery and each loss. Default: discarded.
	Logger *slog.Logger
	// MeterProvider gets the instruments. Default: none.
	MeterProvider metric.MeterProvider
}

const (
	minSegmentSize = 16 << 10
	maxSegmentSize = 2 << 30 // offsets are kept in 32 bits
	maxRecordSize  = 1 << 29 // lengths are kept in 30 bits
	minTailSize    = 16 << 10

	maxStableKey   = 1 << 10
	maxStableValue = 64 << 10
)

// DefaultOptions are the defaults for a directory, with SyncData on.
func DefaultOptions(dir string) Options {
	o := Options{Dir: dir, SyncData: true}
	o.EnsureDefaults()
	return o
}

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.Disk{}
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = 128 << 20
	}
	if o.MaxRecordSize == 0 {
		o.MaxRecordSize = 64 << 20
	}
	if o.MaxBatchSize == 0 {
		o.MaxBatchSize = 8 << 20
	}
	if o.TailSize == 0 {
		o.TailSize = 32 << 20
	}
	if o.WriteDeadline == 0 {
		o.WriteDeadline = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MeterProvider == nil {
		o.MeterProvider = noop.NewMeterProvider()
	}
}

// Validate reports every fault.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("journal: "+format, args...))
		}
	}
	check(o.Dir != "", "Dir is empty")
	check(o.SegmentSize >= minSegmentSize && o.SegmentSize <= maxSegmentSize,
		"SegmentSize %d is not within [%d, %d]", o.SegmentSize, minSegmentSize, maxSegmentSize)
	check(o.MaxRecordSize > 0 && o.MaxRecordSize <= maxRecordSize,
		"MaxRecordSize %d is not within [1, %d]", o.MaxRecordSize, maxRecordSize)
	check(o.MaxBatchSize > 0 && o.MaxBatchSize <= maxRecordSize,
		"MaxBatchSize %d is not within [1, %d]", o.MaxBatchSize, maxRecordSize)
	check(o.TailSize >= minTailSize, "TailSize %d is below %d", o.TailSize, minTailSize)
	check(o.WriteDeadline > 0, "WriteDeadline %v is not positive", o.WriteDeadline)
	check(o.MaxGroupWait >= 0, "MaxGroupWait %v is negative", o.MaxGroupWait)
	return errors.Join(errs...)
}
