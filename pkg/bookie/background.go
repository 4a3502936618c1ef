package bookie

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"geminga/pkg/metadata"
)

// enroll registers this bookie, then follows the records of the bookies and the groups until the bookie closes.
func (b *Bookie) enroll() {
	if err := b.register(b.ctx); err != nil {
		if b.ctx.Err() == nil {
			b.fail(err)
		}
		return
	}
	b.registered.Store(true)
	b.place()
	b.work.start(func() {
		b.client.watch(b.ctx, metadata.BookiesPrefix, func(items map[string]metadata.Item) {
			b.book.update(decodeAll[metadata.BookieInfo](items, b.log))
			b.place()
		})
	})
	b.client.watch(b.ctx, metadata.GroupsPrefix, b.groups.changed)
}

// register puts this bookie's record, which says where it listens and which instance it is. A record of another
// instance means that the disk is not the one that the cluster knows: it was wiped, swapped, or the id was given
// twice. Such a bookie has forgotten votes and entries, and must not run under that name.
func (b *Bookie) register(ctx context.Context) error {
	info := metadata.BookieInfo{ID: b.self.bookieID, Address: b.address, Instance: b.self.instance}
	value, err := json.Marshal(info)
	if err != nil {
		return err
	}
	key := metadata.BookieKey(b.self.bookieID)
	for {
		it, err := b.client.get(ctx, key)
		if err != nil {
			return err
		}
		if it.Version != 0 {
			var known metadata.BookieInfo
			if err := json.Unmarshal(it.Value, &known); err != nil {
				return fmt.Errorf("record %s is damaged: %w", key, err)
			}
			if known.Instance != info.Instance {
				return fmt.Errorf("%w: %q is registered as instance %s, this data directory is %s: "+
					"a bookie that lost its disk comes back under a new id", ErrIdentity, info.ID, known.Instance, info.Instance)
			}
			if known.Address == info.Address {
				return nil
			}
		}
		txn := metadata.Txn{}.If(key, it.Version).Then(metadata.Put(key, value))
		if err := b.client.commit(ctx, txn); !errors.Is(err, metadata.ErrBadVersion) && err != nil {
			return err
		}
		// Read it again: what was committed may have been somebody else's.
	}
}

// watchdog looks every second for what nothing else notices.
func (b *Bookie) watchdog() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	b.checkSpace()
	for {
		select {
		case <-b.journal.Failed():
			b.fail(fmt.Errorf("%w: %w", ErrStore, b.journal.Err()))
			return
		case now := <-tick.C:
			if id, yes := b.groups.stalled(now, b.opts.StallTimeout); yes {
				b.fail(fmt.Errorf("%w: group %d for %s", ErrStalled, id, b.opts.StallTimeout))
				return
			}
			b.checkSpace()
		case <-b.ctx.Done():
			return
		}
	}
}

// checkSpace stops taking entries before the disk is full, and goes on by itself when there is room again.
func (b *Bookie) checkSpace() {
	free, err := b.freeSpace()
	if err != nil {
		b.log.Debug("free space is not known; what held before holds on", "error", err)
		return
	}
	low := free < b.opts.MinFreeSpace
	if b.readOnly.Swap(low) == low {
		return
	}
	if low {
		b.log.Warn("disk nearly full: no entries are taken, reads and deletes go on", "free", free)
	} else {
		b.log.Info("disk has room again: entries are taken", "free", free)
	}
}

// freeSpace is that of the fuller disk, should the journal have one of its own.
func (b *Bookie) freeSpace() (uint64, error) {
	free, err := b.opts.FS.FreeSpace(b.opts.DataDir)
	journal, jerr := b.opts.FS.FreeSpace(b.opts.Journal.Dir)
	return min(free, journal), errors.Join(err, jerr)
}

// place wakes placeGroups.
func (b *Bookie) place() {
	select {
	case b.placement <- struct{}{}:
	default:
	}
}

// placeGroups creates the ledger groups that are missing, on the member that leads the metadata group.
func (b *Bookie) placeGroups() {
	for {
		select {
		case <-b.placement:
		case <-b.ctx.Done():
			return
		}
		for b.meta.isReady() {
			err := b.placeOnce(b.ctx)
			if err == nil {
				break
			}
			wait := metaRetry
			if errors.Is(err, errBadGroupRecord) {
				b.log.Error("no ledger groups are created until the record is repaired", "error", err)
				wait = badRecordRetry
			} else {
				b.log.Debug("creating groups", "error", err)
			}
			if pause(b.ctx, wait) != nil {
				return
			}
		}
	}
}

// badRecordRetry is how often a record that cannot be read is looked at again, and complained about.
const badRecordRetry = 30 * time.Second

// errBadGroupRecord: which groups there are is not known.
var errBadGroupRecord = errors.New("record of a ledger group cannot be read")

// groupRecords decodes all records of groups or none: without one of them its id would look free, and its replicas
// unplaced.
func groupRecords(items map[string]metadata.Item) ([]metadata.GroupInfo, error) {
	out := make([]metadata.GroupInfo, 0, len(items))
	for key, it := range items {
		var g metadata.GroupInfo
		if err := json.Unmarshal(it.Value, &g); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errBadGroupRecord, key, err)
		}
		if want := metadata.GroupKey(g.ID); want != key {
			return nil, fmt.Errorf("%w: %s says that it is %s", errBadGroupRecord, key, want)
		}
		out = append(out, g)
	}
	return out, nil
}

func (b *Bookie) placeOnce(ctx context.Context) error {
	if it, _ := b.meta.fsm.get(metadata.ClusterKey); it.Version == 0 {
		value, err := json.Marshal(metadata.ClusterInfo{ID: b.self.clusterID})
		if err != nil {
			return err
		}
		if err := b.create(ctx, metadata.ClusterKey, value); err != nil {
			return err
		}
	}
	var bookies []string
	for _, info := range decodeAll[metadata.BookieInfo](b.below(metadata.BookiesPrefix), b.log) {
		bookies = append(bookies, info.ID)
	}
	groups, err := groupRecords(b.below(metadata.GroupsPrefix))
	if err != nil {
		return err
	}
	for _, g := range plan(bookies, b.client.members, groups, b.opts.LedgerGroupsPerBookie, b.opts.ReplicationFactor) {
		value, err := json.Marshal(g)
		if err != nil {
			return err
		}
		if err := b.create(ctx, metadata.GroupKey(g.ID), value); err != nil {
			return err
		}
		b.log.Info("created group", "group", g.ID, "replicas", g.Replicas)
	}
	return nil
}

func (b *Bookie) below(prefix string) map[string]metadata.Item {
	out := map[string]metadata.Item{}
	for after, more := "", true; more; {
		var items []metadata.Item
		items, more = b.meta.fsm.list(prefix, after, listPage)
		for _, it := range items {
			out[it.Key] = it
			after = it.Key
		}
	}
	return out
}

// create puts a key that must not be there.
func (b *Bookie) create(ctx context.Context, key string, value []byte) error {
	txn := metadata.Txn{}.If(key, 0).Then(metadata.Put(key, value))
	out, err := b.meta.commit(ctx, &txn)
	return errors.Join(err, out.Err)
}
