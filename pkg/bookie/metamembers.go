package bookie

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// The members of the metadata group move like the replicas of a ledger group, by a record of their own that the metadata
// leader writes: see settle. That leader is the group's own, so who decides and who carries out is the same.

// splitGroups takes the record of the metadata group out of those of all groups; nil when there is none.
func splitGroups(all []metadata.GroupInfo) (groups []metadata.GroupInfo, members *metadata.GroupInfo) {
	for i := range all {
		if all[i].ID == ledger.MetadataGroup {
			members = &all[i]
		} else {
			groups = append(groups, all[i])
		}
	}
	return groups, members
}

// replaceMember says which member of the metadata group is to be replaced, and by whom: a dead one, or one that is being
// decommissioned. One is replaced at a time, but for a newcomer that dies before it has got its vote.
func (b *board) replaceMember(g *metadata.GroupInfo, votes []string) (move, bool) {
	if !b.mostHoldersLive(g.Members()...) {
		return move{}, false
	}
	out := b.leaver(g)
	if out == "" || len(g.Former) > 0 && slices.Contains(votes, out) {
		return move{}, false
	}
	stay := slices.DeleteFunc(slices.Clone(g.Replicas), func(id string) bool { return id == out })
	in := b.best(stay, g.Members(), slices.IndexFunc(b.hosts, func(h host) bool { return h.id == out }))
	return move{info: g.Replaced(out, in), out: out, in: in}, in != ""
}

// placeMembers keeps the record of the metadata group as it should be.
func (b *Bookie) placeMembers(ctx context.Context, g *metaGroup, board *board, known *metadata.GroupInfo) error {
	key := metadata.GroupKey(ledger.MetadataGroup)
	var voters []string
	for _, s := range g.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, string(s.ID))
		}
	}
	if known == nil { // the first leader of a cluster, or one that did not have the record before
		return g.put(ctx, key, 0, metadata.GroupInfo{ID: ledger.MetadataGroup, Replicas: voters})
	}
	m, ok := board.replaceMember(known, voters)
	if !ok || b.reserve.exhausted() {
		return nil
	}
	it, _ := g.fsm.get(key)
	if now := g.record(); now == nil || !slices.Equal(now.Members(), known.Members()) {
		return fmt.Errorf("%w: the record of the metadata group has changed meanwhile", errNotYet)
	}
	if err := g.put(ctx, key, it.Version, m.info); err != nil {
		return err
	}
	b.log.Info("a member of the metadata group is to move", "from", m.out, "to", m.in, "members", m.info.Replicas)
	return nil
}

// metaSettler carries the record of the metadata group out. A leader that is to go removes itself, which needs no transfer of
// the lead; then it tells another one that its election timeout is over.
func (b *Bookie) metaSettler(g *metaGroup) *settler {
	s := &settler{b: b, n: &g.node, record: g.record, follow: func(metadata.GroupInfo) {}, applied: g.raft.AppliedIndex}
	s.removed = func(ctx context.Context) { b.wakeSuccessor(ctx, g) }
	return s
}

// wakeSuccessor spares a group whose leader has removed itself the wait for an election timeout. The message may be sent
// by anybody at any time, so nothing depends on it.
func (b *Bookie) wakeSuccessor(ctx context.Context, g *metaGroup) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for g.leads() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	info := g.record()
	if info == nil {
		return
	}
	for _, id := range info.Replicas {
		if status, err := b.statusOf(ctx, id); err == nil && status.GetMetadata().GetLastIndex() >= g.raft.AppliedIndex() {
			if err := g.transport.timeoutNow(id); err != nil {
				b.log.Debug("could not wake the next metadata leader", "peer", id, "error", err)
				continue
			}
			return
		}
	}
}
