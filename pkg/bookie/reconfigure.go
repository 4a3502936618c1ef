package bookie

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// maxLag is how many proposals a replica may be behind its leader when it gets a vote, or the lead. What a group cannot
// do without must not have much to catch up first.
const maxLag = 64

// steward looks after a group that this bookie leads: its Raft configuration is to be what its record says, and its
// preferred replica is to lead.
type steward struct {
	b *Bookie
	g *group

	since time.Time // when the wish to give up the lead began
	tries int       // attempts that failed since then
}

// tend looks after a group until it is closed.
func (b *Bookie) tend(g *group) {
	s := &steward{b: b, g: g}
	tick := time.NewTicker(b.opts.ProbeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.stopped:
			return
		case <-b.ctx.Done():
			return
		}
		if !g.isReady() {
			s.since = time.Time{}
			continue
		}
		if err := s.settle(b.ctx); err != nil {
			b.log.Debug("a change of replicas; it is tried again", "group", g.id, "error", err)
		}
		s.giveLead(b.ctx)
	}
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
func (s *steward) settle(ctx context.Context) error {
	for {
		servers := s.servers()
		if nextStep(s.g.record.Load(), servers, s.g.transport.self).kind == stepNone {
			return nil
		}
		info, version, err := s.read(ctx)
		if err != nil {
			return err
		}
		// What is in the configuration may not be committed yet, if an earlier change got no answer.
		if _, err := s.g.await(ctx, func() raft.Future { return s.g.raft.Barrier(s.g.wait) }); err != nil {
			return err
		}
		st := nextStep(&info, s.servers(), s.g.transport.self)
		switch st.kind {
		case stepNone:
			s.g.followRecord(info)
			return nil
		case stepRecord:
			err = s.record(ctx, info, version)
		default:
			err = s.change(ctx, st)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
}

func (s *steward) servers() []raft.Server { return s.g.raft.GetConfiguration().Configuration().Servers }

// read returns the group's record and its version.
func (s *steward) read(ctx context.Context) (metadata.GroupInfo, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.g.wait)
	defer cancel()
	it, err := s.b.client.get(ctx, metadata.GroupKey(s.g.id))
	if err != nil {
		return metadata.GroupInfo{}, 0, err
	}
	info, err := groupRecord(it)
	return info, it.Version, err
}

// record says that the change is over.
func (s *steward) record(ctx context.Context, info metadata.GroupInfo, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.g.wait)
	defer cancel()
	for _, id := range info.Replicas { // or what a former one forgets might be nowhere else
		g, err := s.replica(ctx, id)
		if err != nil {
			return err
		}
		if !isWhole(g) {
			return fmt.Errorf("%w: bookie %s lacks entries of %d records", errNotYet, id, g.GetMissing())
		}
	}
	next := info.Settled()
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	key := metadata.GroupKey(s.g.id)
	if err := s.b.client.commit(ctx, metadata.Txn{}.If(key, version).Then(metadata.Put(key, value))); err != nil {
		return err
	}
	s.g.followRecord(next)
	s.b.log.Info("a group has its replicas", "group", s.g.id, "replicas", next.Replicas, "were", info.Former)
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
func (s *steward) change(ctx context.Context, st step) error {
	id, addr := raft.ServerID(st.id), raft.ServerAddress(st.id)
	change := func() raft.Future { return s.g.raft.RemoveServer(id, 0, s.g.wait) }
	switch st.kind {
	case stepAdd:
		// Not before it listens: the library waits ever longer for one that does not.
		if _, err := s.replica(ctx, st.id); err != nil {
			return err
		}
		change = func() raft.Future { return s.g.raft.AddNonvoter(id, addr, 0, s.g.wait) }
	case stepPromote:
		if err := s.caughtUp(ctx, st.id); err != nil {
			return err
		}
		change = func() raft.Future { return s.g.raft.AddVoter(id, addr, 0, s.g.wait) }
	case stepRemove:
		if st.id == s.g.transport.self && s.handOver(ctx) {
			return ledger.ErrNotLeader // whoever leads now removes this one
		}
	}
	if _, err := s.g.await(ctx, change); err != nil {
		return err
	}
	s.b.log.Info("changed the replicas of a group", "group", s.g.id, "change", st.String())
	return nil
}

// replica asks a bookie about its replica of the group.
func (s *steward) replica(ctx context.Context, id string) (*bookiepb.GroupStatus, error) {
	status, err := s.b.statusOf(ctx, id)
	if err != nil {
		return nil, err
	}
	g := groupStatus(status, s.g.id)
	if g == nil {
		return nil, fmt.Errorf("%w: bookie %s runs no replica", errNotYet, id)
	}
	return g, nil
}

// caughtUp returns nil when a replica is as far as this one was when the question was asked.
func (s *steward) caughtUp(ctx context.Context, id string) error {
	applied := s.g.fsm.applied.Load()
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
