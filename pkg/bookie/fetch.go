package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// need is a run of entries that a ledger has.
type need struct {
	ledger ledger.ID
	run    run
}

// lack is a record of which a replica lacks what it needs: all its runs, by offset.
type lack struct {
	index uint64
	needs []need
}

func (l *lack) bytes() int64 {
	n := int64(0)
	for i := range l.needs {
		n += int64(l.needs[i].run.length)
	}
	return n
}

// kept makes what the journal is to keep of what another replica sent, and says whether that is what was asked for: each
// entry has its checksum, and each body the number of entries that the log says.
func (l *lack) kept(data []byte) (journal.Kept, error) {
	k := journal.Kept{Index: l.index, Data: data}
	for i := range l.needs {
		r := &l.needs[i].run
		if uint64(len(data)) < uint64(r.length) {
			return k, fmt.Errorf("%w: record %d: too short", ErrDamaged, l.index)
		}
		if err := r.check(data[:r.length]); err != nil {
			return k, fmt.Errorf("ledger %d: %w", l.needs[i].ledger, err)
		}
		data = data[r.length:]
		k.Pieces = append(k.Pieces, r.piece())
	}
	if len(data) > 0 {
		return k, fmt.Errorf("%w: record %d: %d bytes too many", ErrDamaged, l.index, len(data))
	}
	return k, nil
}

// check compares the checksums of a run's entries, and their number. There may be more of them than the run has: those
// that the closing of the ledger discarded.
func (r run) check(body []byte) error {
	n := uint32(0)
	for len(body) > 0 {
		_, rest, err := ledger.NextEntry(body)
		if err != nil {
			return fmt.Errorf("entry %d: %w", r.first+ledger.EntryID(n), err)
		}
		body = rest
		n++
	}
	if n < r.count {
		return fmt.Errorf("%w: %d entries of %d from %d on", ledger.ErrUnreadable, n, r.count, r.first)
	}
	return nil
}

// fetch asks a peer for some records and hands out what it has, checked. It returns the number of bytes that came.
func (ls *links) fetch(ctx context.Context, peer string, group ledger.GroupID, want []lack, take func(*lack, journal.Kept) error) (int64, error) {
	conn, err := ls.get(lane{peer: peer, bulk: true}).conn()
	if err != nil {
		return 0, err
	}
	req := &bookiepb.FetchRequest{Group: uint32(group), ClusterId: ls.self.clusterID}
	for i := range want {
		r := &bookiepb.FetchRecord{Index: want[i].index}
		for _, n := range want[i].needs {
			r.Offsets, r.Lengths = append(r.Offsets, n.run.offset), append(r.Lengths, n.run.length)
		}
		req.Records = append(req.Records, r)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	stream, err := bookiepb.NewRaftClient(conn).Fetch(ls.self.outgoing(ctx), req)
	if err != nil {
		return 0, err
	}
	head, err := stream.Header()
	if err == nil {
		err = ls.checkPeer(identityIn(head), peer)
	}
	bytes := int64(0)
	for i := 0; i < len(want) && err == nil; i++ {
		var m *bookiepb.FetchResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		bytes += int64(len(m.GetData()))
		if m.GetMissing() {
			continue
		}
		k, bad := want[i].kept(m.GetData())
		if bad != nil {
			ls.log.Error("a peer sent damaged entries", "peer", peer, "group", group, "error", bad)
			continue
		}
		err = take(&want[i], k)
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s did not answer for all records", peer)
	}
	return bytes, err
}

// Fetch implements bookiepb.RaftServer.
func (s *raftService) Fetch(req *bookiepb.FetchRequest, stream grpc.ServerStreamingServer[bookiepb.FetchResponse]) error {
	g, err := s.replica(stream.Context(), stream.SendHeader, req)
	if err != nil {
		return err
	}
	for _, r := range req.GetRecords() {
		if err := stream.Send(g.gather(r)); err != nil {
			return err
		}
	}
	return nil
}

// gather reads what another replica asks for.
func (g *group) gather(r *bookiepb.FetchRecord) *bookiepb.FetchResponse {
	out := &bookiepb.FetchResponse{}
	if len(r.GetLengths()) != len(r.GetOffsets()) || g.fill.doubt.all.Load() {
		return &bookiepb.FetchResponse{Missing: true}
	}
	for i, off := range r.GetOffsets() {
		b, err := g.store.body(run{index: r.GetIndex(), offset: off, length: r.GetLengths()[i]})
		if err != nil {
			if errors.Is(err, journal.ErrCorrupt) {
				g.repair(r.GetIndex())
			}
			return &bookiepb.FetchResponse{Missing: true}
		}
		out.Data = append(out.Data, b...)
	}
	return out
}
