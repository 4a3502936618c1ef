package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

const (
	// comparePause is between two comparisons of a group with its other replicas. Each costs a digest of the group's state,
	// and a message to each of them.
	comparePause = 10 * time.Minute
	// compareGap is between two groups.
	compareGap = time.Second
	// compareWait is how long to wait for an index that is to be compared at. It is longer than a follower is behind.
	compareWait = 3 * time.Second
	// compareTries is how often another index is tried, until all replicas were seen at the same one.
	compareTries = 8
	// compareAhead is how far ahead the index is chosen in a group that is busy, at first.
	compareAhead = 16
	// comparePage is how many digests of ledgers go into a message.
	comparePage = 8192
	// compareNamed is how many ledgers are named in the log.
	compareNamed = 10
)

// errDiffers: a replica's state is not what the majority has come to from the same log. Neither it nor its entries can be
// trusted.
var errDiffers = fmt.Errorf("%w: its state is not that of the majority", ErrDamaged)

// opinion is the state of one replica at an index of the log, as digests.
type opinion struct {
	bookie string
	index  uint64 // has been applied there; 0: it did not answer
	digest uint64
	sums   []ledgerSum // of another replica: only if its digest is another than ours
	err    error       // not nil: it said nothing about the index
}

// compareStates compares the state of each group that has a replica here with its other replicas, time and again. Replicas
// that applied the same log are equal, or one of them is wrong: a bit that flipped in memory or in a snapshot while it was
// written, or a fault of ours.
//
// Each replica judges itself, so that nobody has to believe another one that says "you are damaged":
//
//	equal to a majority of the voters, itself included    fine; who differs is named, and judges itself
//	a majority agrees on something else                   this replica stops, begins again with the leader's state, and
//	                                                      compares its entries with that before it serves them
//	no majority agrees on anything                        nobody can tell who is right: only told
func (b *Bookie) compareStates() {
	for pause(b.ctx, comparePause) == nil {
		for _, g := range b.groups.all() {
			if err := g.compare(b.ctx); err != nil && b.ctx.Err() == nil {
				b.log.Debug("the replicas of a group were not compared", "group", g.id, "error", err)
			}
			if pause(b.ctx, compareGap) != nil {
				return
			}
		}
	}
}

// compare asks the other voters once. The error says why too few of them were seen at the same index.
func (g *group) compare(ctx context.Context) error {
	voters, err := g.electors()
	if err != nil || !slices.Contains(voters, g.transport.self) || len(voters) < 2 {
		return err
	}
	index, ahead := g.fsm.applied.Load(), uint64(compareAhead)
	var own opinion
	var others []opinion
	for range compareTries {
		own, others = g.opinions(ctx, voters, index)
		if ctx.Err() != nil || !g.health.ok() {
			return errors.Join(ctx.Err(), g.health.err())
		}
		highest, late := own.index, own.err != nil
		for _, o := range others {
			highest = max(highest, o.index)
			late = late || o.err != nil && o.index > 0 // one that does not answer at all is not waited for
		}
		if !late {
			break
		}
		if highest > index { // a busy group: all of them are to come there yet
			index, ahead = highest+ahead, ahead*4
		} else { // it is not, or not any more
			index = highest
		}
	}
	if own.err != nil {
		return own.err
	}
	return g.judge(own, others, len(voters))
}

// electors are those whose votes make a majority.
func (g *group) electors() ([]string, error) {
	f := g.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range f.Configuration().Servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids, nil
}

// opinions asks all voters at the same time what they have at an index.
func (g *group) opinions(ctx context.Context, voters []string, index uint64) (own opinion, others []opinion) {
	ctx, cancel := context.WithTimeout(ctx, 2*compareWait)
	defer cancel()
	state := g.opinion(ctx, index)
	ready := make(chan struct{})
	var wg sync.WaitGroup
	all := make([]opinion, len(voters))
	for i, id := range voters {
		if id == g.transport.self {
			continue
		}
		wg.Go(func() {
			all[i] = g.transport.links.compare(ctx, id, g.id, index, func(digest uint64) bool {
				<-ready
				return own.err == nil && own.digest != digest
			})
			all[i].bookie = id
		})
	}
	own = <-state
	close(ready)
	wg.Wait()
	return own, slices.DeleteFunc(all, func(o opinion) bool { return o.bookie == "" })
}

// opinion makes this replica's own.
func (g *group) opinion(ctx context.Context, index uint64) <-chan opinion {
	out := make(chan opinion, 1)
	go func() { // ends with ctx
		ctx, cancel := context.WithTimeout(ctx, compareWait)
		defer cancel()
		o := opinion{bookie: g.transport.self}
		var s *fsmState
		if s, o.err = g.fsm.at(ctx, index); o.err == nil {
			o.sums, o.digest = s.sums()
			o.index = index
		} else {
			o.index = g.fsm.applied.Load()
		}
		out <- o
	}()
	return out
}

// judge says who is right.
func (g *group) judge(own opinion, others []opinion, voters int) error {
	support := map[uint64]int{own.digest: 1}
	seen := 1
	for _, o := range others {
		if o.err == nil {
			support[o.digest]++
			seen++
		}
	}
	g.metrics.compared()
	differ := false
	for _, o := range others {
		if o.err != nil || o.digest == own.digest {
			continue
		}
		differ = true
		ids := differing(own.sums, o.sums)
		g.metrics.differ(len(ids))
		g.log.Error("two replicas of a group have come to different states from the same log", "group", g.id, "index", own.index, "other", o.bookie,
			"replicas", seen, "agree", support[own.digest], "agreeOther", support[o.digest], "voters", voters,
			"ledgers", len(ids), "first", ids[:min(len(ids), compareNamed)])
	}
	for digest, n := range support {
		if 2*n <= voters {
			continue
		}
		if digest != own.digest {
			g.health.fail(fmt.Errorf("%w: at index %d, %d of %d voters agree on another", errDiffers, own.index, n, voters))
		}
		return nil
	}
	if differ {
		g.log.Error("no majority of the replicas agrees on a state of the group, so none of them is repaired", "group", g.id, "index", own.index)
		return nil
	}
	return fmt.Errorf("only %d of %d voters were seen at index %d", seen, voters, own.index)
}

// compare asks a peer for its state at an index. Wanted says of its digest whether those of the ledgers are wanted too.
func (ls *links) compare(ctx context.Context, peer string, group ledger.GroupID, index uint64, wanted func(digest uint64) bool) (o opinion) {
	conn, err := ls.get(lane{peer: peer, bulk: true}).conn()
	if err != nil {
		return opinion{err: err}
	}
	ctx, cancel := context.WithCancel(ctx) // ends the stream, if not all of it is wanted
	defer cancel()
	stream, err := bookiepb.NewRaftClient(conn).Compare(ls.self.outgoing(ctx), &bookiepb.CompareRequest{
		Group: uint32(group), ClusterId: ls.self.clusterID, Index: index,
	})
	if err != nil {
		return opinion{err: err}
	}
	md, err := stream.Header()
	if err == nil {
		err = ls.checkPeer(identityIn(md), peer)
	}
	if err != nil {
		return opinion{err: err}
	}
	m, err := stream.Recv()
	if err != nil {
		return opinion{err: err}
	}
	o.index, o.digest = m.GetIndex(), m.GetDigest()
	if !m.GetThere() {
		o.err = fmt.Errorf("%s is at index %d, not %d", peer, o.index, index)
		return o
	}
	if !wanted(o.digest) {
		return o
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return o
		}
		if err == nil && len(m.GetLedgers()) != len(m.GetSums()) {
			err = errors.New("digests and ledgers are not as many")
		}
		if err != nil {
			o.err = err
			return o
		}
		for i, id := range m.GetLedgers() {
			o.sums = append(o.sums, ledgerSum{ledger.ID(id), m.GetSums()[i]})
		}
	}
}

// Compare implements bookiepb.RaftServer.
func (s *raftService) Compare(req *bookiepb.CompareRequest, stream grpc.ServerStreamingServer[bookiepb.CompareResponse]) error {
	g, err := s.replica(stream.Context(), stream.SendHeader, req)
	if err != nil {
		return err
	}
	own := <-g.opinion(stream.Context(), req.GetIndex())
	if !g.health.ok() {
		return status.Error(codes.Unavailable, errStopped.Error())
	}
	if err := stream.Send(&bookiepb.CompareResponse{Index: own.index, There: own.err == nil, Digest: own.digest}); err != nil || own.err != nil {
		return err
	}
	for page := range slices.Chunk(own.sums, comparePage) {
		m := &bookiepb.CompareResponse{}
		for _, l := range page {
			m.Ledgers, m.Sums = append(m.Ledgers, uint64(l.id)), append(m.Sums, l.sum)
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}
