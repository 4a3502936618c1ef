package bookie

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// handOverTime bounds for how long a group takes no appends because its lead is given away.
	handOverTime = time.Second
	// maxLeadTries doubles the wait between attempts that often.
	maxLeadTries = 5
)

// steward looks after a ledger group that this bookie leads: its Raft configuration is to be what its record says, and its
// preferred replica is to lead.
type steward struct {
	settler
	g *group

	since time.Time // when the wish to give up the lead began
	tries int       // attempts that failed since then
}

func newSteward(b *Bookie, g *group) *steward {
	s := &steward{settler: settler{b: b, n: &g.node, record: g.record.Load, follow: g.followRecord, applied: g.fsm.applied.Load}, g: g}
	s.leave = s.handOver
	return s
}

// tend looks after a group until it is closed.
func (b *Bookie) tend(g *group) {
	s := newSteward(b, g)
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

// giveLead gives the lead to the replica that is preferred, once it has been well for LeadAfter: after a bookie was away its
// groups have gone to others, and the load with them. A bookie that takes no entries waits for nothing: its writers do.
func (s *steward) giveLead(ctx context.Context) {
	wait := s.b.opts.LeadAfter
	first := s.g.record.Load().Replicas[0] == s.g.transport.self
	switch {
	case s.b.intake.refuses() && !s.g.crowded():
		wait = 0
	case wait < 0 || first:
		s.since, s.tries = time.Time{}, 0
		return
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if time.Since(s.since) < wait<<s.tries || s.handOver(ctx) {
		return
	}
	s.since, s.tries = time.Now(), min(s.tries+1, maxLeadTries)
}

// handOver gives the lead to the first replica in the record's order that is well and takes entries. It returns whether
// another one leads now.
func (s *steward) handOver(ctx context.Context) bool {
	self := s.g.transport.self
	for _, id := range s.g.record.Load().Replicas {
		if id == self {
			if !s.b.intake.refuses() {
				return false // nobody before this one
			}
			continue
		}
		status, err := s.b.statusOf(ctx, id)
		if err != nil || status.GetReadOnly() || status.GetLeaving() || s.caughtUp(ctx, id) != nil || !s.votes(id) {
			continue
		}
		if err := s.yield(ctx, id); err != nil {
			s.b.log.Info("could not give the lead of a group away", "group", s.g.id, "to", id, "error", err)
			return false
		}
		s.b.log.Info("gave the lead of a group away", "group", s.g.id, "to", id)
		return true
	}
	return false
}

func (s *steward) votes(id string) bool {
	for _, server := range s.servers() {
		if string(server.ID) == id {
			return server.Suffrage == raft.Voter
		}
	}
	return false
}

// yield makes another replica lead, without the library's transfer of leadership: one that is interrupted leaves a flag
// behind with which the replica refuses proposals for good. Here the flag is the proposer's, and ends with this function.
//
//	this leader                                 the other replica
//	hold proposals; none is under way
//	its log is as long as ours?  ─────────────▶ yes
//	TimeoutNow ───────────────────────────────▶ stands for election at once, in the next term
//	steps down by its request                   wins: no log is longer
//	let proposals go: they are refused, and their streams go to the new leader
//
// The message says no more than that an election timeout is over, which may be at any time. So whatever gets lost on the
// way costs an election at worst.
func (s *steward) yield(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	resume, err := s.g.proposer.hold(ctx)
	if err != nil {
		return err
	}
	defer resume()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for last := s.g.raft.LastIndex(); ; {
		g, err := s.replica(ctx, id)
		if err != nil {
			return err
		}
		if g.GetLastIndex() >= last {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: its log ends at %d, not %d", errNotYet, g.GetLastIndex(), last)
		}
	}
	if err := s.g.transport.timeoutNow(id); err != nil {
		return err
	}
	for s.g.leads() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: it was not elected", errNotYet)
		}
	}
	return nil
}
