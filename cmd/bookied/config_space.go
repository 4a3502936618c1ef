package main

import (
	"time"

	"geminga/cmd/internal/settings"
	"geminga/pkg/bookie"
)

// spaceConfig is about what a bookie does beside its writers: snapshots, fetching what it lacks, giving space back.
type spaceConfig struct {
	snapshotMB, trailingMB int
	backfill, copying      int
	wait                   time.Duration
}

func (c *spaceConfig) register(s *settings.Set) {
	sizes, rates := settings.Range{Min: 1, Max: 1 << 20}, settings.Range{Min: 1, Max: 1 << 40}
	s.Int(&c.snapshotMB, "ledgerGroupSnapshotLogSizeMB", 64, sizes,
		"MiB by which a group's log grows between two snapshots, at least; what a restart replays").In("MiB")
	s.Int(&c.trailingMB, "ledgerGroupTrailingLogSizeMB", 64, sizes,
		"MiB of a group's log that stay behind a snapshot, for replicas that lag a little").In("MiB")
	s.Int(&c.backfill, "backfillBytesPerSecond", 64<<20, rates,
		"how fast a replica fetches the entries that it lacks from others, for each group, in bytes a second").In("bytes per second")
	s.Duration(&c.wait, "gcWaitTime", 60000, time.Millisecond, "milliseconds between two looks whether deleted ledgers have left space to be given back")
	s.Int(&c.copying, "compactionRateByBytes", 32<<20, rates,
		"how fast what is left in sparse segments of the journal is copied, in bytes a second").In("bytes per second")
}

func (c *spaceConfig) apply(o *bookie.Options) {
	o.SnapshotLogBytes, o.TrailingLogBytes = int64(c.snapshotMB)<<20, int64(c.trailingMB)<<20
	o.BackfillBytesPerSecond = int64(c.backfill)
	o.ReclaimInterval, o.ReclaimBytesPerSecond = c.wait, int64(c.copying)
}
