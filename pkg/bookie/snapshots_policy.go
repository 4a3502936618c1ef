package bookie

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// snapshotLook is how often it is looked whether a group is due.
	snapshotLook = time.Second
	// snapshotFactor times the size of the last snapshot, without its layers, is what the log must have grown by: so they
	// are at most this part of what is written.
	snapshotFactor = 8
)

// takeSnapshots takes a snapshot of each group whose log has grown enough, one after the other, until the bookie closes.
//
// Raft's own trigger counts entries. An entry here is a proposal of any size, and a snapshot is of any size too: what
// keeps its cost down is that it is small against the log that it covers.
func (b *Bookie) takeSnapshots() {
	for pause(b.ctx, snapshotLook) == nil {
		for _, g := range b.groups.all() {
			if !g.snapshotDue() {
				continue
			}
			if err := g.snapshot(b.ctx); err != nil && b.ctx.Err() == nil && !errors.Is(err, errStopped) {
				b.log.Warn("no snapshot could be taken; the log goes on growing", "group", g.id, "error", err)
			}
		}
	}
}

// snapshotDue says whether the log has grown enough since the last snapshot.
func (g *group) snapshotDue() bool {
	return g.health.ok() && g.fsm.bytes.Load() > max(g.opts.SnapshotLogBytes, snapshotFactor*g.snapshots.cost())
}

// snapshot takes one and compacts the log. When ctx or the group ends first, that goes on behind its back.
func (g *group) snapshot(ctx context.Context) error {
	return g.snapshotLeaving(ctx, g.store.trailing(g.opts.TrailingLogBytes))
}

// snapshotLeaving says how many entries are to stay in the log behind the snapshot.
func (g *group) snapshotLeaving(ctx context.Context, trailing uint64) error {
	began, bytes := time.Now(), g.fsm.bytes.Load()
	if err := g.retune(func(c *raft.ReloadableConfig) { c.TrailingLogs = trailing }); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- g.raft.Snapshot().Error() }() // not waited for: raft may drop a future when it stops
	var err error
	select {
	case err = <-done:
	case <-g.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case errors.Is(err, raft.ErrNothingNewToSnapshot):
		return nil
	case err != nil:
		g.fsm.bytes.Add(bytes) // due again
		return fmt.Errorf("snapshot: %w", err)
	}
	newest, _ := g.snapshots.newest()
	g.metrics.snapshot(g.snapshots.cost())
	g.log.Info("took a snapshot", "group", g.id, "index", newest.Index, "bytes", g.snapshots.cost(), "all", newest.Size, "log", g.store.group.FirstIndex(), "took", time.Since(began))
	return nil
}
