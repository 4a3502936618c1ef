package main

import (
	"time"

	"geminga/cmd/internal/settings"
	"geminga/pkg/bookie"
)

// placementConfig is where replicas go, and when they move.
type placementConfig struct {
	rack         string
	autoRecovery bool
	recovery     time.Duration
	leadAfter    time.Duration
	minFreeMB    int
	minFreeLwmMB int
	reserveMB    int
}

func (c *placementConfig) register(s *settings.Set) {
	s.String(&c.rack, "rack", "", "what fails together with this bookie (a rack, a zone); the replicas of a group are spread over racks. Empty: a rack of its own")
	s.Bool(&c.autoRecovery, "autoRecoveryDaemonEnabled", true, "replace the replicas of bookies that are lost; the bookie that leads the metadata decides by its own setting")
	s.DurationOrNone(&c.recovery, "lostBookieRecoveryDelay", 300, time.Second,
		"seconds of silence after which a bookie is lost and its replicas are replaced; less than 10 count as 10, because a restart takes as long")
	s.DurationOrNone(&c.leadAfter, "ledgerGroupPreferredLeaderDelaySeconds", 10, time.Second,
		"seconds that the preferred replica of a group must have been well before it gets the lead back; 0: it is not given back")
	s.Int(&c.minFreeMB, "minFreeSpaceMB", 256, settings.Range{Min: 1, Max: 1 << 30}, "free space in MiB below which no entries are taken; reads and deletes go on").In("MiB")
	s.Int(&c.minFreeLwmMB, "minFreeSpaceLwmMB", 0, settings.Range{Min: 0, Max: 1 << 30},
		"free space in MiB from which on entries are taken again, as BookKeeper's diskUsageLwmThreshold; 0: half more than minFreeSpaceMB, and never less than that").In("MiB")
	s.Int(&c.reserveMB, "reservedSpaceMB", 16, settings.Range{Min: 0, Max: 1 << 20}, "space in MiB that is kept, besides that of a journal segment, to live on and to start with when others fill the disk; 0: none").In("MiB")
}

// leastRecoveryDelay bounds lostBookieRecoveryDelay, which is 0 in BookKeeper's own file.
const leastRecoveryDelay = 10 * time.Second

func (c *placementConfig) apply(o *bookie.Options) {
	o.Rack, o.ReplaceAfter, o.LeadAfter, o.MinFreeSpace = c.rack, max(c.recovery, leastRecoveryDelay), c.leadAfter, uint64(c.minFreeMB)<<20
	if c.minFreeLwmMB > 0 {
		o.MinFreeSpaceLwm = max(uint64(c.minFreeLwmMB)<<20, o.MinFreeSpace)
	}
	o.Reserve = int64(c.reserveMB)<<20 + o.Journal.SegmentSize
	if c.reserveMB == 0 {
		o.Reserve = -1
	}
	if !c.autoRecovery {
		o.ReplaceAfter = -1
	}
	if c.leadAfter == 0 {
		o.LeadAfter = -1
	}
}
