package main

import (
	"time"

	"geminga/cmd/internal/settings"
)

// registerStorage has the settings of ledgers, of what cursors store, and of the cache.
func (c *config) registerStorage(s *settings.Set) {
	l := &c.options.Ledger
	s.Int(&c.maxEntries, "managedLedgerMaxEntriesPerLedger", 50_000, settings.Range{Min: 1, Max: unlimited}, "entries after which a ledger is full").In("entries")
	s.Int(&c.maxSizeMB, "managedLedgerMaxSizePerLedgerMbytes", 2048, settings.Range{Min: 1, Max: 1 << 20}, "MiB after which a ledger is full").In("MiB")
	s.DurationOrNone(&l.MinRolloverTime, "managedLedgerMinLedgerRolloverTimeMinutes", 10, time.Minute, "age below which a full ledger is kept open; 0: none")
	s.Duration(&l.MaxRolloverTime, "managedLedgerMaxLedgerRolloverTimeMinutes", 240, time.Minute, "age after which a ledger with entries is closed in any case")
	s.Int(&c.retentionMinutes, "defaultRetentionTimeInMinutes", 0, settings.Range{Min: -1, Max: unlimited / 60}, "how long a full ledger is kept when no durable subscription needs it; -1: for ever; 0, of either: no time").In("minutes")
	s.Int(&c.retentionMB, "defaultRetentionSizeInMB", 0, settings.Range{Min: -1, Max: unlimited}, "how much of a topic is kept when no durable subscription needs it; -1: all; 0, of either: nothing").In("MiB")
	s.Duration(&l.RetentionCheckInterval, "retentionCheckIntervalInSeconds", 120, time.Second, "how often ledgers that nobody needs any more are looked for where no event tells")
	s.Duration(&l.LedgerStallTimeout, "ledgerStallTimeoutMillis", 250, time.Millisecond, "time without an acknowledgement after which a topic goes on in another ledger group")
	s.Int(&c.cursorEntries, "managedLedgerCursorMaxEntriesPerLedger", 50_000, settings.Range{Min: 1, Max: unlimited}, "records after which a cursor's ledger is replaced").In("records")
	s.Int(&l.MaxUnackedRanges, "managedLedgerMaxUnackedRangesToPersist", 200_000, settings.Range{Min: 1, Max: unlimited}, "acknowledged ranges kept in a cursor's stored state").In("ranges")
	s.Int(&l.MaxBatchDeletedIndexes, "managedLedgerMaxBatchDeletedIndexToPersist", 200_000, settings.Range{Min: 1, Max: unlimited}, "partly acknowledged batches that a cursor keeps").In("batches")
	s.Func("acknowledgmentAtBatchIndexLevelEnabled", "true", "acknowledge single messages of a batch; false: only whole batches",
		settings.Inverted(&c.options.Topic.WholeBatchesOnly))
	s.Int(&c.cacheMB, "managedLedgerCacheSizeMB", 256, settings.Range{Min: 1, Max: 1 << 20}, "MiB of the entry cache of the broker").In("MiB")
	s.Bool(&c.cacheCopy, "managedLedgerCacheCopyEntries", false, "copy entries into the cache instead of keeping their receive buffers").Dynamic()
}
