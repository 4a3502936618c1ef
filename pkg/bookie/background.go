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
	b.work.start(b.obey)
	b.work.start(func() {
		b.client.watch(b.ctx, metadata.BookiesPrefix, func(items map[string]metadata.Item) {
			b.book.update(decodeAll[metadata.BookieInfo](items, b.log))
			b.place()
		})
	})
	b.client.watch(b.ctx, metadata.GroupsPrefix, func(items map[string]metadata.Item) {
		b.seat.follow(items)
		b.groups.changed(items)
	})
}

// register puts this bookie's record, which says where it listens and which instance it is. A record of another
// instance means that the disk is not the one that the cluster knows: it was wiped, swapped, or the id was given
// twice. Such a bookie has forgotten votes and entries, and must not run under that name.
func (b *Bookie) register(ctx context.Context) error {
	info := metadata.BookieInfo{ID: b.self.bookieID, Address: b.address, Instance: b.self.instance, Rack: b.opts.Rack}
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
			if known == info {
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

// spaceInterval is how often the free space is looked at. What writers add meanwhile comes out of MinFreeSpace: in a second
// they filled a disk to the end, and what gives space back needs some.
const spaceInterval = 100 * time.Millisecond

// watchdog looks every second for what nothing else notices, and oftener for what cannot wait as long.
func (b *Bookie) watchdog() {
	tick, space := time.NewTicker(time.Second), time.NewTicker(spaceInterval)
	defer tick.Stop()
	defer space.Stop()
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
			b.groups.measure(now)
			b.reserve.take()
		case <-space.C:
			b.checkSpace()
		case <-b.ctx.Done():
			return
		}
	}
}
