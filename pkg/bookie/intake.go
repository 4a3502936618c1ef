package bookie

import (
	"encoding/json"
	"errors"
	"sync/atomic"

	"geminga/pkg/metadata"
	"geminga/pkg/vfs"
)

// intake says whether the groups that this bookie leads take entries.
type intake struct {
	full    atomic.Bool // the disk is nearly full
	ordered atomic.Bool // an operator wants it so
}

func (i *intake) refuses() bool { return i.full.Load() || i.ordered.Load() }

// checkSpace stops taking entries before the disk is full, and goes on by itself when there is room again:
//
//	       MinFreeSpace        MinFreeSpaceLwm
//	refuses ───┼─── as before ───┼─── takes        free space ──▶
//
// Between the marks it does what it did, or each byte that is given back would be taken at once by whoever asks first, at
// the leader that notices first, and the disks of its followers, which may be behind in giving space back, would fill.
func (b *Bookie) checkSpace() {
	free, err := b.freeSpace()
	if err != nil {
		b.log.Debug("free space is not known; what held before holds on", "error", err)
		return
	}
	least := b.opts.MinFreeSpace
	if b.intake.full.Load() {
		least = b.opts.MinFreeSpaceLwm + b.reserve.missing()
	}
	low := free < least
	if low {
		b.shed()
	}
	if b.intake.full.Swap(low) == low {
		return
	}
	if low {
		b.log.Warn("disk nearly full: no entries are taken, reads and deletes go on", "free", free)
	} else {
		b.log.Info("disk has room again: entries are taken", "free", free)
	}
}

// shed has the journal keep less for itself: what reclaim gave back has to become free space.
func (b *Bookie) shed() {
	n, err := b.journal.Shed()
	switch {
	case err != nil:
		b.log.Warn("cannot remove spare files of the journal", "error", err)
	case n > 0:
		b.log.Debug("removed spare files of the journal", "files", n)
	}
}

// freeSpace is that of the fullest disk, should the journal or the metadata have one of their own.
func (b *Bookie) freeSpace() (uint64, error) {
	free, err := b.opts.FS.FreeSpace(b.opts.DataDir)
	journal, jerr := b.opts.FS.FreeSpace(b.opts.Journal.Dir)
	free = min(free, journal)
	if b.meta() == nil {
		return free, errors.Join(err, jerr)
	}
	meta, merr := vfs.Disk{}.FreeSpace(b.opts.MetadataDir)
	return min(free, meta), errors.Join(err, jerr, merr)
}

// obey follows what operators order of this bookie, until it closes.
func (b *Bookie) obey() {
	key := metadata.BookieModeKey(b.self.bookieID)
	b.client.watch(b.ctx, metadata.BookieModesPrefix, func(items map[string]metadata.Item) {
		var mode metadata.BookieMode
		if it, ok := items[key]; ok {
			if err := json.Unmarshal(it.Value, &mode); err != nil {
				b.log.Error("cannot read what is ordered of this bookie; what held before holds on", "key", key, "error", err)
				return
			}
		}
		if b.intake.ordered.Swap(mode.ReadOnly) != mode.ReadOnly {
			b.log.Info("ordered to take no entries, or to take them again", "readOnly", mode.ReadOnly)
		}
		if b.leaving.Swap(mode.Decommission) != mode.Decommission {
			b.log.Info("ordered to move all replicas away, or to stay", "decommission", mode.Decommission)
		}
	})
}
