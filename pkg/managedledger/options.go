package managedledger

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// Env is what a managed ledger is given to live with.
type Env struct {
	Bookies  Bookies
	Store    Store
	Executor *executor.Executor // the topic's
	Cache    *Cache             // nil: nothing is cached
	Epoch    ledger.Epoch       // of the ownership
	Listener Listener
	Logger   *slog.Logger // nil: discarded
	Metrics  *Metrics     // nil: not measured
}

// Options are the settings of managed ledgers, in the meaning of Pulsar's broker.conf.
type Options struct {
	// MaxEntriesPerLedger (managedLedgerMaxEntriesPerLedger) and MaxBytesPerLedger (managedLedgerMaxSizePerLedgerMbytes)
	// make a ledger full. Both are soft: a ledger takes more until its successor is ready.
	MaxEntriesPerLedger int64
	MaxBytesPerLedger   int64
	// MinRolloverTime (managedLedgerMinLedgerRolloverTimeMinutes) is the least age at which a full ledger is rolled;
	// MaxRolloverTime the age at which one that has entries is rolled in any case.
	MinRolloverTime time.Duration
	MaxRolloverTime time.Duration
	// MaxLedgers is the length of the list from which on no ledger is rolled for its size or age: the list is one metadata
	// value, and what does not fit would end the topic. The room beyond is for ledgers in trouble and for new owners.
	MaxLedgers int
	// RetentionTime (defaultRetentionTimeInMinutes) since a ledger was closed, and RetentionBytes (defaultRetentionSizeInMB)
	// of a topic, are kept although all cursors are behind them; what is beyond either goes. Negative: no limit; zero, of
	// either: nothing is kept. RetentionCheckInterval (retentionCheckIntervalInSeconds) is how often what no event
	// announces is looked for.
	RetentionTime          time.Duration
	RetentionBytes         int64
	RetentionCheckInterval time.Duration
	// LedgerStallTimeout (ledgerStallTimeout) without an acknowledgement makes the managed ledger move to another group.
	LedgerStallTimeout time.Duration
	// OpenTimeout bounds the retries while opening; CloseTimeout the wait for pending ops while closing.
	OpenTimeout  time.Duration
	CloseTimeout time.Duration

	// CursorMaxEntriesPerLedger (managedLedgerCursorMaxEntriesPerLedger) rolls a cursor's ledger.
	CursorMaxEntriesPerLedger int64
	// CursorFlushInterval is how long acknowledgements that want no receipt may gather before they are written
	// (1 / managedLedgerDefaultMarkDeleteRateLimit).
	CursorFlushInterval time.Duration
	// MaxUnackedRanges (managedLedgerMaxUnackedRangesToPersist) bounds the ranges in a whole record of a cursor's state,
	// MaxBatchDeletedIndexes (managedLedgerMaxBatchDeletedIndexToPersist) the partly acknowledged batches in it, and
	// MaxUnackedRangesInMetadata (managedLedgerMaxUnackedRangesToPersistInMetadataStore) either of them in the metadata,
	// where a clean close puts the state; with more it stays in the cursor's ledger. Acknowledgements beyond
	// MaxUnackedRanges, or beyond the 6 MiB of a record, are answered and are lost in a crash. Batches beyond
	// MaxBatchDeletedIndexes are not kept at all: Cursor.DeletePart refuses them.
	MaxUnackedRanges           int
	MaxBatchDeletedIndexes     int
	MaxUnackedRangesInMetadata int
}

// A state is one entry, or one metadata value, and has to fit: what is too large is refused for good, and nothing would
// be stored any more. A range takes 3 to 7 bytes as long as its ledger has less than two million entries.
const (
	mostUnackedRanges           = 1_000_000
	mostUnackedRangesInMetadata = 300_000
	mostMetadataBytes           = 2800 << 10 // in base64 it is a third more; values have at most 4 MiB
)

// recordBounds are those of a whole record.
func (o *Options) recordBounds() bounds {
	return bounds{ranges: o.MaxUnackedRanges, parts: o.MaxBatchDeletedIndexes, bytes: mostRecordBytes}
}

// metadataBounds are those of a state in the metadata.
func (o *Options) metadataBounds() bounds {
	return bounds{ranges: o.MaxUnackedRangesInMetadata, parts: o.MaxUnackedRangesInMetadata, bytes: mostMetadataBytes}
}

// mostLedgers leaves a fourth of a metadata value of 4 MiB, at some 100 bytes a ledger, to rollovers that must be.
const mostLedgers = 30_000

// EnsureDefaults fills what is zero.
func (o *Options) EnsureDefaults() {
	def(&o.MaxEntriesPerLedger, 50_000)
	def(&o.MaxBytesPerLedger, 2048<<20)
	def(&o.MinRolloverTime, 10*time.Minute)
	def(&o.MaxRolloverTime, 240*time.Minute)
	def(&o.MaxLedgers, mostLedgers)
	def(&o.RetentionCheckInterval, 2*time.Minute)
	def(&o.LedgerStallTimeout, 250*time.Millisecond)
	def(&o.OpenTimeout, 30*time.Second)
	def(&o.CloseTimeout, 5*time.Second)
	def(&o.CursorMaxEntriesPerLedger, 50_000)
	def(&o.CursorFlushInterval, time.Second)
	def(&o.MaxUnackedRanges, 200_000)
	def(&o.MaxBatchDeletedIndexes, 200_000)
	def(&o.MaxUnackedRangesInMetadata, 1_000)
}

// Validate reports all faults.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, name string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("managedledger: %s is %v", name, value))
		}
	}
	check(o.MaxEntriesPerLedger > 0, "MaxEntriesPerLedger", o.MaxEntriesPerLedger)
	check(o.MaxBytesPerLedger > 0, "MaxBytesPerLedger", o.MaxBytesPerLedger)
	check(o.MinRolloverTime >= 0, "MinRolloverTime", o.MinRolloverTime)
	check(o.MaxRolloverTime >= o.MinRolloverTime, "MaxRolloverTime below MinRolloverTime:", o.MaxRolloverTime)
	check(o.MaxLedgers > 1 && o.MaxLedgers <= mostLedgers, "MaxLedgers", o.MaxLedgers)
	check(o.RetentionCheckInterval > 0, "RetentionCheckInterval", o.RetentionCheckInterval)
	check(o.LedgerStallTimeout > 0, "LedgerStallTimeout", o.LedgerStallTimeout)
	check(o.OpenTimeout > 0, "OpenTimeout", o.OpenTimeout)
	check(o.CloseTimeout > 0, "CloseTimeout", o.CloseTimeout)
	check(o.CursorMaxEntriesPerLedger > 0, "CursorMaxEntriesPerLedger", o.CursorMaxEntriesPerLedger)
	check(o.CursorFlushInterval > 0, "CursorFlushInterval", o.CursorFlushInterval)
	check(o.MaxUnackedRanges > 0 && o.MaxUnackedRanges <= mostUnackedRanges,
		fmt.Sprintf("MaxUnackedRanges, of 1 to %d,", mostUnackedRanges), o.MaxUnackedRanges)
	check(o.MaxBatchDeletedIndexes > 0 && o.MaxBatchDeletedIndexes <= mostUnackedRanges,
		fmt.Sprintf("MaxBatchDeletedIndexes, of 1 to %d,", mostUnackedRanges), o.MaxBatchDeletedIndexes)
	check(o.MaxUnackedRangesInMetadata > 0 && o.MaxUnackedRangesInMetadata <= mostUnackedRangesInMetadata,
		fmt.Sprintf("MaxUnackedRangesInMetadata, of 1 to %d,", mostUnackedRangesInMetadata), o.MaxUnackedRangesInMetadata)
	return errors.Join(errs...)
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
