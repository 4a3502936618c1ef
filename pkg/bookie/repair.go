package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// repairRetry is how long to wait before a repair that failed is tried again.
const repairRetry = 2 * time.Second

// repairing mends a replica whose log or snapshot cannot be read: the replica has stopped, and starts again from a fresh
// snapshot of the group's leader.
//
//	stopped ──▶ leader: snapshot ≥ own last index ──▶ durable here ──▶ damaged log cleared ──▶ opened, fetches its entries
//
// Everything that this replica acknowledged and that was committed is in such a snapshot. Its index is not below the
// replica's own last one, or the leader would go on counting this replica for entries that it has not any more. The term
// and the vote stay: only the log goes. When the journal cannot say what it has lost, not even those can be trusted; then
// the replica begins in a term in which it cannot have voted: one above that of all other members, each of which has to
// answer, because whoever it voted for is one of them.
type repairing struct {
	deps groupDeps
	info metadata.GroupInfo
	ask  func(ctx context.Context, id string) (*bookiepb.StatusResponse, error)
	// differed: it was stopped because its state was another than the majority's, so its own snapshots are good for nothing.
	differed bool
}

// run tries until it is done, or ctx ends. Alone in its group, nobody can help with what is not here.
func (r *repairing) run(ctx context.Context) error {
	peers := r.peers()
	if !r.differed {
		done, err := r.fromJournal(ctx, len(peers) == 0)
		if done {
			return nil
		}
		if err != nil {
			r.deps.log.Error("an index could not be made anew from the journal", "group", r.info.ID, "error", err)
		}
	}
	if len(peers) == 0 {
		return fmt.Errorf("%w: group %d: %w", ErrDamaged, r.info.ID, errAlone)
	}
	for {
		var errs []error
		for _, id := range peers {
			err := r.from(ctx, id)
			if err == nil {
				return nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
		}
		r.deps.log.Warn("a damaged replica is not repaired yet; it is tried again", "group", r.info.ID, "error", errors.Join(errs...))
		if err := pause(ctx, repairRetry); err != nil {
			return err
		}
	}
}

func (r *repairing) peers() []string {
	var out []string
	for _, id := range r.info.Members() {
		if id != r.deps.links.self.bookieID {
			out = append(out, id)
		}
	}
	return out
}

// from mends the replica with the help of one peer, which has to lead the group.
func (r *repairing) from(ctx context.Context, peer string) error {
	jg := r.deps.journal.Group(uint32(r.info.ID))
	snaps, err := openSnapshotStore(r.deps.opts.FS, snapshotDir(r.deps.opts.DataDir, r.info.ID), r.deps.log)
	if err != nil {
		return err
	}
	s := newJournalStore(jg, 1, snaps, func() uint64 { return 0 })
	before, _ := snaps.newest()
	least := max(jg.LastIndex(), before.Index)
	for _, d := range snaps.damaged {
		least = max(least, d.Index)
	}
	term := uint64(0)
	_, stable := jg.GetStable([]byte(termKey))
	trusted := stable == nil || errors.Is(stable, journal.ErrNotFound)
	if !trusted {
		if term, err = r.termAbove(ctx); err != nil {
			return err
		}
	}
	got, err := r.deps.links.fetchSnapshot(ctx, peer, r.info.ID, least, snaps)
	if err != nil {
		return err
	}
	if r.differed {
		err = snaps.forget(got)
	}
	if err != nil {
		return err
	}
	if trusted {
		err = s.clear(min(before.Index, jg.LastIndex()))
	} else if err = jg.Reset(before.Index); err == nil {
		err = s.SetUint64([]byte(termKey), max(term, got.Term))
	}
	if err == nil {
		err = s.Set([]byte(bootstrapKey), []byte{1})
	}
	if err != nil {
		return err
	}
	r.deps.metrics.repaired()
	r.deps.log.Info("replica of group begins again with a snapshot of the leader", "group", r.info.ID, "leader", peer, "index", got.Index)
	return nil
}

// termAbove returns a term in which this replica has not voted.
func (r *repairing) termAbove(ctx context.Context) (uint64, error) {
	highest := uint64(0)
	for _, id := range r.peers() {
		status, err := r.ask(ctx, id)
		if err != nil {
			return 0, err
		}
		g := groupStatus(status, r.info.ID)
		if g == nil {
			return 0, fmt.Errorf("bookie %s runs no replica, so its term is not known", id)
		}
		highest = max(highest, g.GetTerm())
	}
	return highest + 1, nil
}

// fetchSnapshot asks a peer for a snapshot of at least an index, and puts it into a store.
func (ls *links) fetchSnapshot(ctx context.Context, peer string, id ledger.GroupID, least uint64, to *snapshotStore) (raft.SnapshotMeta, error) {
	var none raft.SnapshotMeta
	conn, err := ls.get(lane{peer: peer, bulk: true}).conn()
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	stream, err := bookiepb.NewRaftClient(conn).Snapshot(ls.self.outgoing(ctx), &bookiepb.SnapshotRequest{
		Group: uint32(id), ClusterId: ls.self.clusterID, Index: least,
	})
	if err != nil {
		return none, err
	}
	md, err := stream.Header()
	if err == nil {
		err = ls.checkPeer(identityIn(md), peer)
	}
	if err != nil {
		return none, err
	}
	first, err := stream.Recv()
	if err != nil {
		return none, err
	}
	head, err := snapshotHeadFromPB(first.GetHead())
	if err != nil {
		return none, err
	}
	if head.LastLogIndex < least {
		return none, fmt.Errorf("%s sent a snapshot of index %d, not %d", peer, head.LastLogIndex, least)
	}
	sink, err := to.Create(head.SnapshotVersion, head.LastLogIndex, head.LastLogTerm,
		raft.DecodeConfiguration(head.Configuration), head.ConfigurationIndex, nil)
	if err != nil {
		return none, err
	}
	n, err := io.Copy(sink, &chunkReader{recv: stream.Recv, chunk: first.GetData()})
	if err == nil && n != head.Size {
		err = fmt.Errorf("%s sent %d bytes of a snapshot of %d", peer, n, head.Size)
	}
	if err != nil {
		return none, errors.Join(err, sink.Cancel())
	}
	return raft.SnapshotMeta{ID: sink.ID(), Index: head.LastLogIndex, Term: head.LastLogTerm}, sink.Close()
}

// snapshotTimeout is how long a leader may take to make a snapshot and to send it.
const snapshotTimeout = 10 * time.Minute

// Snapshot implements bookiepb.RaftServer.
func (s *raftService) Snapshot(req *bookiepb.SnapshotRequest, stream grpc.ServerStreamingServer[bookiepb.SnapshotChunk]) error {
	g, err := s.replica(stream.Context(), stream.SendHeader, req)
	if err != nil {
		return err
	}
	meta, state, err := g.freshSnapshot(stream.Context(), req.GetIndex())
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	defer func() { _ = state.Close() }() // it was only read
	chunk := &bookiepb.SnapshotChunk{Group: req.GetGroup(), ClusterId: s.links.self.clusterID, Head: snapshotHeadToPB(&raft.InstallSnapshotRequest{
		SnapshotVersion: meta.Version, LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: meta.Size,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
	})}
	buf := make([]byte, snapshotChunk)
	for {
		if err := stream.Send(chunk); err != nil {
			return err
		}
		n, err := io.ReadFull(state, buf)
		switch {
		case n == 0 && errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
			return status.Error(codes.DataLoss, err.Error())
		}
		chunk = &bookiepb.SnapshotChunk{Data: buf[:n]}
	}
}

// freshSnapshot opens a snapshot with all that is committed, and of no lower index than least. The barrier adds an entry,
// so that a quiet group gets beyond least in the end.
func (g *group) freshSnapshot(ctx context.Context, least uint64) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := g.verify(ctx); err != nil {
		return nil, nil, err
	}
	if _, err := g.await(ctx, func() raft.Future { return g.raft.Barrier(g.wait) }); err != nil {
		return nil, nil, err
	}
	if err := g.snapshot(ctx); err != nil {
		return nil, nil, err
	}
	newest, _ := g.snapshots.newest()
	if newest.Index < least {
		return nil, nil, fmt.Errorf("the newest snapshot of group %d is of index %d, not %d", g.id, newest.Index, least)
	}
	return g.snapshots.Open(newest.ID)
}
