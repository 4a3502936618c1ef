package bookie

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// leave forgets what this bookie has of a group that it is no member of: not of the Replicas any more, and not even of the
// Former ones, which the group's leader has confirmed. What is forgotten cannot be had back, so the metadata is asked once more.
//
//	record names us ──▶ running ──record names us no more──▶ leaving ──confirmed, closed──▶ forgotten
//	     ▲                                                                                     │
//	     └────────────────────────── placed here again: gets all from the leader ──────────────┘
func (gs *groups) leave(id ledger.GroupID) {
	jg := gs.deps.journal.Group(uint32(id))
	if gs.get(id) == nil && !keeps(jg) {
		return
	}
	if err := gs.confirm(id); err != nil { // it is seen again with the next record
		gs.deps.log.Warn("it is not certain that a replica may be forgotten", "group", id, "error", err)
		return
	}
	gs.mu.Lock()
	g, closed := gs.byID[id], gs.closed
	if !closed {
		delete(gs.byID, id)
		delete(gs.broken, id)
	}
	gs.mu.Unlock()
	if closed {
		return
	}
	if g != nil {
		gs.deps.metrics.opened(-1)
		g.close(context.Background())
	}
	err := removeSnapshots(gs.deps.opts.FS, snapshotDir(gs.deps.opts.DataDir, id)) // first: without them a log is noticed
	if err == nil {
		err = jg.Reset(0)
	}
	if err != nil {
		gs.deps.log.Error("cannot forget a replica; it is tried again", "group", id, "error", err)
		return
	}
	gs.deps.log.Info("replica of group has moved away and is forgotten here", "group", id)
}

// keeps says whether the journal holds anything of a group.
func keeps(jg *journal.Group) bool {
	if jg.LastIndex() != 0 || jg.Damaged() != nil {
		return true
	}
	held := false // it may be that only what outlived the log is left
	jg.Held(func(journal.Held) bool {
		held = true
		return false
	})
	_, err := jg.GetStable([]byte(termKey))
	return held || err == nil
}

// confirmLeft asks the metadata whether this bookie is no member of a group.
func (b *Bookie) confirmLeft(id ledger.GroupID) error {
	it, err := b.client.get(b.ctx, metadata.GroupKey(id))
	if err != nil {
		return err
	}
	var info metadata.GroupInfo
	if err := json.Unmarshal(it.Value, &info); err != nil {
		return err
	}
	if info.ID != id || len(info.Replicas) == 0 || slices.Contains(info.Members(), b.self.bookieID) {
		return fmt.Errorf("the record of group %d says otherwise: %s", id, it.Value)
	}
	return nil
}
