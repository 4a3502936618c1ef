package bookie

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"geminga/rpc/bookiepb"
)

// bookieService serves ledgers. Its commands are in append.go and read.go.
type bookieService struct {
	bookiepb.UnimplementedBookieServer
	b *Bookie
}

// Status implements bookiepb.BookieServer.
func (s *bookieService) Status(context.Context, *bookiepb.StatusRequest) (*bookiepb.StatusResponse, error) {
	return s.b.Status(), nil
}

// Status says what this bookie is and which groups it holds.
func (b *Bookie) Status() *bookiepb.StatusResponse {
	out := &bookiepb.StatusResponse{
		ClusterId: b.self.clusterID, BookieId: b.self.bookieID, Address: b.address,
		ReadOnly: b.intake.refuses(), Leaving: b.leaving.Load(),
	}
	for _, g := range b.groups.all() {
		st := b.nodeStatus(&g.node)
		st.Filling, st.Missing = !g.fill.whole.Load(), uint64(g.fill.missing.Load())
		st.Unreadable = g.unreadable()
		record := g.record.Load()
		st.Applied, st.Ledgers, st.Replicas, st.Former = g.fsm.applied.Load(), uint64(g.fsm.ledgers()), record.Replicas, record.Former
		st.LastIndex, st.AppendRate = g.raft.LastIndex(), g.rate.perSecond()
		st.ReadOnly = st.Ready && g.refuses()
		out.Groups = append(out.Groups, st)
	}
	slices.SortFunc(out.Groups, func(x, y *bookiepb.GroupStatus) int { return cmp.Compare(x.Group, y.Group) })
	if m := b.meta(); m != nil {
		out.Metadata = b.nodeStatus(&m.node)
		out.Metadata.Applied, out.Metadata.LastIndex = m.raft.AppliedIndex(), m.raft.LastIndex()
		out.Metadata.Replicas, out.Metadata.Filling = m.voters(), m.joining.Load()
	}
	return out
}

func (b *Bookie) nodeStatus(n *node) *bookiepb.GroupStatus {
	_, id := n.raft.LeaderWithID()
	st := &bookiepb.GroupStatus{Group: uint32(n.id), LeaderId: string(id), Term: n.raft.CurrentTerm(), Ready: n.isReady()}
	switch {
	case string(id) == b.self.bookieID && n.raft.State() == raft.Leader:
		st.Leader = b.address
	case id != "":
		st.Leader, _ = b.book.address(string(id))
	}
	return st
}

// metaHint is where this bookie believes the metadata leader, or at least a member of the group, to be.
func (b *Bookie) metaHint() string { return b.client.lead() }

// checkCluster refuses callers that name another cluster. Naming none is fine.
func (b *Bookie) checkCluster(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, id := range md.Get(bookiepb.ClusterHeader) {
		if id != b.self.clusterID {
			return status.Errorf(codes.FailedPrecondition, "wrong cluster: %q, this is %q", id, b.self.clusterID)
		}
	}
	return nil
}

func (b *Bookie) checkUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := b.checkCluster(ctx); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (b *Bookie) checkStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := b.checkCluster(ss.Context()); err != nil {
		return err
	}
	return next(srv, ss)
}
