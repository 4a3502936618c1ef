package bookie

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"geminga/pkg/metadata"
)

// place wakes supervise.
func (b *Bookie) place() {
	select {
	case b.placement <- struct{}{}:
	default:
	}
}

// supervise keeps the records of the ledger groups as they should be, on the member that leads the metadata group: it
// creates groups that are missing and replaces the replicas of bookies that are gone or leave. It writes what is to be;
// the leaders of the groups carry it out.
func (b *Bookie) supervise() {
	tick := time.NewTicker(b.opts.ProbeInterval)
	defer tick.Stop()
	var seen census
	var quiet time.Time // no attempts before it
	for {
		select {
		case <-b.placement:
		case <-tick.C:
		case <-b.ctx.Done():
			return
		}
		g := b.meta()
		if g == nil || !g.isReady() {
			seen = census{}
			continue
		}
		if time.Now().Before(quiet) {
			continue
		}
		err := b.superviseOnce(b.ctx, g, &seen)
		switch {
		case errors.Is(err, errBadGroupRecord):
			b.log.Error("no ledger groups are created or moved until the record is repaired", "error", err)
			quiet = time.Now().Add(badRecordRetry)
		case err != nil:
			b.log.Debug("placing groups; it is tried again", "error", err)
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
		g, err := groupRecord(it)
		if err != nil {
			return nil, err
		}
		if want := metadata.GroupKey(g.ID); want != key {
			return nil, fmt.Errorf("%w: %s says that it is %s", errBadGroupRecord, key, want)
		}
		out = append(out, g)
	}
	return out, nil
}

func groupRecord(it metadata.Item) (metadata.GroupInfo, error) {
	var g metadata.GroupInfo
	if err := json.Unmarshal(it.Value, &g); err != nil {
		return g, fmt.Errorf("%w: %s: %w", errBadGroupRecord, it.Key, err)
	}
	if len(g.Replicas) == 0 {
		return g, fmt.Errorf("%w: %s has no replicas", errBadGroupRecord, it.Key)
	}
	return g, nil
}

func (b *Bookie) superviseOnce(ctx context.Context, meta *metaGroup, seen *census) error {
	if it, _ := meta.fsm.get(metadata.ClusterKey); it.Version == 0 {
		if err := meta.put(ctx, metadata.ClusterKey, 0, metadata.ClusterInfo{ID: b.self.clusterID}); err != nil {
			return err
		}
	}
	bookies := decodeAll[metadata.BookieInfo](meta.below(metadata.BookiesPrefix), b.log)
	ids := make([]string, len(bookies))
	for i := range bookies {
		ids[i] = bookies[i].ID
	}
	before := seen.quiet(silentProbes * b.opts.ProbeInterval)
	seen.take(time.Now(), b.probe(ctx, ids), b.opts.ProbeInterval+b.opts.Raft.RPCTimeout)
	b.tellSilent(before, seen.quiet(silentProbes*b.opts.ProbeInterval))
	items := meta.below(metadata.GroupsPrefix) // after the probe: it took its time
	all, err := groupRecords(items)
	if err != nil {
		return err
	}
	groups, members := splitGroups(all)
	board := newBoard(b.hosts(meta, bookies, seen), groups)
	if err := b.placeMembers(ctx, meta, board, members); err != nil {
		return err
	}
	for _, g := range board.create(b.client.ids(), b.opts.LedgerGroupsPerBookie, b.opts.ReplicationFactor) {
		if err := meta.put(ctx, metadata.GroupKey(g.ID), 0, g); err != nil {
			return err
		}
		b.log.Info("created group", "group", g.ID, "replicas", g.Replicas)
	}
	for _, m := range board.replace() {
		key := metadata.GroupKey(m.info.ID)
		if err := meta.put(ctx, key, items[key].Version, m.info); err != nil {
			return err
		}
		b.log.Info("a replica of a group is to move", "group", m.info.ID, "from", m.out, "to", m.in, "replicas", m.info.Replicas)
	}
	return nil
}

// tellSilent logs who has fallen silent, and who speaks again.
func (b *Bookie) tellSilent(before, now map[string]bool) {
	for id := range now {
		if !before[id] {
			b.log.Warn("a bookie does not answer", "peer", id, "replacedAfter", b.opts.ReplaceAfter)
		}
	}
	for id := range before {
		if !now[id] {
			b.log.Info("a bookie answers again", "peer", id)
		}
	}
}

// hosts joins what is registered, what is ordered, and what was seen.
func (b *Bookie) hosts(meta *metaGroup, bookies []metadata.BookieInfo, seen *census) []host {
	modes := meta.below(metadata.BookieModesPrefix)
	out := make([]host, 0, len(bookies))
	for _, info := range bookies {
		h := host{id: info.ID, rack: info.Rack}
		var mode metadata.BookieMode
		if it, ok := modes[metadata.BookieModeKey(info.ID)]; ok {
			if err := json.Unmarshal(it.Value, &mode); err != nil {
				b.log.Error("cannot read what is ordered of a bookie", "key", it.Key, "error", err)
			}
		}
		h.leaving = mode.Decommission
		h.full = mode.ReadOnly || seen.answers[info.ID].GetReadOnly()
		h.silent = seen.silent[info.ID] >= silentProbes*b.opts.ProbeInterval
		h.doubtful = !h.silent && seen.answers[info.ID] == nil
		h.dead = b.opts.ReplaceAfter > 0 && seen.silent[info.ID] >= b.opts.ReplaceAfter
		out = append(out, h)
	}
	return out
}

// silentProbes is after how many probes without an answer a bookie gets no new replicas.
const silentProbes = 3

// below lists the items below a prefix, by key.
func (g *metaGroup) below(prefix string) map[string]metadata.Item {
	out := map[string]metadata.Item{}
	for after, more := "", true; more; {
		var items []metadata.Item
		items, more = g.fsm.list(prefix, after, listPage)
		for _, it := range items {
			out[it.Key] = it
			after = it.Key
		}
	}
	return out
}

// put writes a record that must have this version now.
func (g *metaGroup) put(ctx context.Context, key string, version int64, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	txn := metadata.Txn{}.If(key, version).Then(metadata.Put(key, value))
	out, err := g.commit(ctx, &txn)
	return errors.Join(err, out.Err)
}
