package bookie

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// maxLag is how many proposals a replica may be behind its leader when it gets a vote, or the lead. What a group cannot
// do without must not have much to catch up first.
const maxLag = 64

// settler brings the Raft configuration of a group that this bookie leads to what the group's record says.
type settler struct {
	b *Bookie
	n *node

	record  func() *metadata.GroupInfo // as last seen here; nil: not known
	follow  func(metadata.GroupInfo)   // takes a newer record over
	applied func() uint64              // index of what this replica has applied, as its status says
	leave   func(context.Context) bool // gives the lead away, and says whether another one has it; nil: the leader removes itself
	removed func(context.Context)      // called when it has; nil: nothing is to be done
}

// settle brings the configuration of the group to what its record says, one change at a time. All that it knows is in the
// record and the configuration, so whoever leads next goes on where it ended:
//
//	record       Replicas a b c               Replicas d b c, Former a                        Replicas d b c
//	             ────────────── placement ──▶ ─────────────────────────────────────── leader ▶ ──────────────
//	raft                a b c                 a b c + d(no vote) ▶ a b c d ▶ b c d
//	bookie d                                  opens an empty replica
//	bookie a                                                                                 forgets its data
//
// A newcomer gets its vote when it holds what the group has, so that a majority never hangs on an empty replica. The
// record is read from the metadata before each change, not from what was seen of it: another bookie may have been chosen
// meanwhile. It is settled with its version as condition, so whoever leaves Former is in no configuration that can count:
// this leader's is committed, and its predecessors' can commit nothing any more.
func (s *settler) settle(ctx context.Context) error {
	for {
		seen := s.record()
		if seen == nil || nextStep(seen, s.servers(), s.n.transport.self).kind == stepNone {
			return nil
		}
		info, version, err := s.read(ctx)
		if err != nil {
			return err
		}
		// What is in the configuration may not be committed yet, if an earlier change got no answer.
		if _, err := s.n.await(ctx, func() raft.Future { return s.n.raft.Barrier(s.n.wait) }); err != nil {
			return err
		}
		st := nextStep(&info, s.servers(), s.n.transport.self)
		switch st.kind {
		case stepNone:
			s.follow(info)
			return nil
		case stepRecord:
			err = s.write(ctx, info, version)
		default:
			err = s.change(ctx, st)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
}

func (s *settler) servers() []raft.Server { return s.n.raft.GetConfiguration().Configuration().Servers }

// read returns the group's record and its version.
func (s *settler) read(ctx context.Context) (metadata.GroupInfo, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.n.wait)
	defer cancel()
	it, err := s.b.client.get(ctx, metadata.GroupKey(s.n.id))
	if err != nil {
		return metadata.GroupInfo{}, 0, err
	}
	info, err := groupRecord(it)
	return info, it.Version, err
}

// write says that the change is over.
func (s *settler) write(ctx context.Context, info metadata.GroupInfo, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.n.wait)
	defer cancel()
	if err := s.whole(ctx, &info); err != nil {
		return err
	}
	next := info.Settled()
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	key := metadata.GroupKey(s.n.id)
	if err := s.b.client.commit(ctx, metadata.Txn{}.If(key, version).Then(metadata.Put(key, value))); err != nil {
		return err
	}
	s.follow(next)
	s.b.log.Info("a group has its replicas", "group", groupName(s.n.id), "replicas", next.Replicas, "were", info.Former)
	return nil
}

// whole returns nil when all replicas of a ledger group hold all entries: what a former one forgets might be nowhere else.
// And they know of the configuration without it: one that does not would ask it for its vote, should it be placed here again
// and be empty. The metadata have no entries beside their log, and their newcomers no vote: see seat.
func (s *settler) whole(ctx context.Context, info *metadata.GroupInfo) error {
	if info.ID == ledger.MetadataGroup {
		return nil
	}
	at := s.n.raft.AppliedIndex() // behind a barrier, so the configuration is not after it
	for _, id := range info.Replicas {
		g, err := s.replica(ctx, id)
		if err != nil {
			return err
		}
		if !isWhole(g) {
			return fmt.Errorf("%w: bookie %s lacks entries of %d records", errNotYet, id, g.GetMissing())
		}
		if g.GetLastIndex() < at || g.GetLeaderId() != s.n.transport.self {
			return fmt.Errorf("%w: the log of bookie %s ends at %d, not %d, or it does not follow", errNotYet, id, g.GetLastIndex(), at)
		}
	}
	return nil
}

// bears returns nil when most of those that have a vote after a change follow this leader now. Otherwise the change could
// not be committed, nor could anything after it, before somebody comes back.
//
//	a is dead      a b c + d(no vote)      b and c follow: 2 of 3
//	d gets a vote  a b c d                 b, c and d have to: 3 of 4
//	a is removed   b c d                   any 2 of 3
func (s *settler) bears(ctx context.Context, servers []raft.Server, st step) error {
	votes, follow := 0, 0
	for _, server := range servers {
		id := string(server.ID)
		if id == st.id && st.kind == stepRemove || id != st.id && server.Suffrage != raft.Voter {
			continue
		}
		votes++
		if id == s.n.transport.self {
			follow++
		} else if g, err := s.replica(ctx, id); err == nil && g.GetLeaderId() == s.n.transport.self {
			follow++
		}
	}
	if 2*follow <= votes {
		return fmt.Errorf("%w: only %d of %d votes would be here", errNotYet, follow, votes)
	}
	return nil
}

// step is a change of a group's configuration.
type step struct {
	kind stepKind
	id   string // of a bookie
}

type stepKind uint8

const (
	stepNone    stepKind = iota
	stepAdd              // without a vote
	stepPromote          // to a vote
	stepRemove
	stepRecord // nothing is left to do but to say so
)

// String names the step for errors and logs.
func (s step) String() string {
	return [...]string{"nothing", "add ", "give a vote to ", "remove ", "write the record"}[s.kind] + s.id
}

// nextStep says what brings a configuration nearer to a record. A group never has fewer votes than before in between:
// those who leave do so after those who come have their votes; the leader itself leaves last.
func nextStep(info *metadata.GroupInfo, servers []raft.Server, self string) step {
	find := func(id string) int {
		return slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == id })
	}
	for _, s := range servers {
		if s.Suffrage != raft.Voter && !slices.Contains(info.Replicas, string(s.ID)) {
			return step{stepRemove, string(s.ID)} // it was chosen, and is not any more
		}
	}
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			return step{stepPromote, string(s.ID)}
		}
	}
	for _, id := range info.Replicas {
		if find(id) < 0 {
			return step{stepAdd, id}
		}
	}
	out := step{stepNone, ""}
	for _, s := range servers {
		if id := string(s.ID); !slices.Contains(info.Replicas, id) && (out.kind == stepNone || out.id == self) {
			out = step{stepRemove, id}
		}
	}
	if out.kind == stepNone && len(info.Former) > 0 {
		out.kind = stepRecord
	}
	return out
}

// errNotYet: a replica is not as far as it has to be.
var errNotYet = errors.New("not yet")

// change carries a step out.
func (s *settler) change(ctx context.Context, st step) error {
	id, addr := raft.ServerID(st.id), raft.ServerAddress(st.id)
	change := func() raft.Future { return s.n.raft.RemoveServer(id, 0, s.n.wait) }
	switch st.kind {
	case stepAdd:
		// Not before it listens: the library waits ever longer for one that does not.
		if _, err := s.replica(ctx, st.id); err != nil {
			return err
		}
		change = func() raft.Future { return s.n.raft.AddNonvoter(id, addr, 0, s.n.wait) }
	case stepPromote:
		if err := s.caughtUp(ctx, st.id); err != nil {
			return err
		}
		if err := s.bears(ctx, s.servers(), st); err != nil {
			return err
		}
		change = func() raft.Future { return s.n.raft.AddVoter(id, addr, 0, s.n.wait) }
	case stepRemove:
		if err := s.bears(ctx, s.servers(), st); err != nil {
			return err
		}
		if st.id == s.n.transport.self && s.leave != nil && s.leave(ctx) {
			return ledger.ErrNotLeader // whoever leads now removes this one
		}
	}
	if _, err := s.n.await(ctx, change); err != nil {
		return err
	}
	s.b.log.Info("changed the replicas of a group", "group", groupName(s.n.id), "change", st.String())
	if st.kind == stepRemove && st.id == s.n.transport.self && s.removed != nil {
		s.removed(ctx)
	}
	return nil
}

// replica asks a bookie about its replica of the group.
func (s *settler) replica(ctx context.Context, id string) (*bookiepb.GroupStatus, error) {
	status, err := s.b.statusOf(ctx, id)
	if err != nil {
		return nil, err
	}
	g := groupStatus(status, s.n.id)
	if g == nil {
		return nil, fmt.Errorf("%w: bookie %s runs no replica", errNotYet, id)
	}
	return g, nil
}

// caughtUp returns nil when a replica is as far as this one was when the question was asked.
func (s *settler) caughtUp(ctx context.Context, id string) error {
	applied := s.applied()
	g, err := s.replica(ctx, id)
	if err != nil {
		return err
	}
	if g.GetApplied()+maxLag < applied {
		return fmt.Errorf("%w: bookie %s has applied %d of %d", errNotYet, id, g.GetApplied(), applied)
	}
	if !isWhole(g) {
		return fmt.Errorf("%w: bookie %s lacks entries of %d records", errNotYet, id, g.GetMissing())
	}
	return nil
}
