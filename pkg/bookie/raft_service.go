package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// raftService is the receiving end of transport: it takes the calls of a peer off its stream and gives each to its
// group. A group that is slow, because its disk is, holds up only the calls to it.
type raftService struct {
	bookiepb.UnimplementedRaftServer
	links *links
	find  func(ledger.GroupID) *transport // nil: no replica of the group runs here
	group func(ledger.GroupID) *group     // the same, for ledger groups
	opts  RaftOptions
}

// maxCallsPerPeer bounds the calls of one peer that wait for a group. A leader has at most two out for each group.
const maxCallsPerPeer = 4096

// Exchange implements bookiepb.RaftServer.
func (s *raftService) Exchange(stream grpc.BidiStreamingServer[bookiepb.RaftRequest, bookiepb.RaftResponse]) error {
	if err := s.handshake(stream.Context(), stream.SendHeader); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	answers := make(chan *bookiepb.RaftResponse, 64)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait: the calls under way end by it
	wg.Go(func() {
		for {
			select {
			case resp := <-answers:
				if stream.Send(resp) != nil {
					cancel() // and Recv fails too: the stream is broken
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	room := make(chan struct{}, maxCallsPerPeer)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case room <- struct{}{}:
		default:
			return status.Error(codes.ResourceExhausted, "too many raft calls wait")
		}
		wg.Go(func() {
			defer func() { <-room }()
			resp := s.answer(ctx, req)
			select {
			case answers <- resp:
			case <-ctx.Done():
			}
		})
	}
}

func (s *raftService) answer(ctx context.Context, req *bookiepb.RaftRequest) *bookiepb.RaftResponse {
	out := &bookiepb.RaftResponse{Id: req.GetId(), Full: s.links.full()}
	result, err := s.serve(ctx, req)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	responseToPB(result, out)
	return out
}

func (s *raftService) serve(ctx context.Context, req *bookiepb.RaftRequest) (any, error) {
	if req.GetClusterId() != s.links.self.clusterID {
		return nil, fmt.Errorf("%w: %q", ErrWrongCluster, req.GetClusterId())
	}
	t := s.find(ledger.GroupID(req.GetGroup()))
	if t == nil {
		return nil, fmt.Errorf("no replica of group %d here", req.GetGroup())
	}
	command, err := requestFromPB(req)
	if err != nil {
		return nil, err
	}
	if call, ok := command.(*raft.AppendEntriesRequest); ok {
		t.strip(call)
	}
	return t.serve(ctx, command, nil, s.opts.RPCTimeout)
}

// InstallSnapshot implements bookiepb.RaftServer. The stream never stays open undrained: raft reads it to its end, or
// the return resets it.
func (s *raftService) InstallSnapshot(stream grpc.ClientStreamingServer[bookiepb.SnapshotChunk, bookiepb.RaftResponse]) error {
	if err := s.handshake(stream.Context(), stream.SetHeader); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetClusterId() != s.links.self.clusterID || first.GetHead() == nil {
		return status.Error(codes.FailedPrecondition, "wrong cluster, or no head in the first chunk")
	}
	t := s.find(ledger.GroupID(first.GetGroup()))
	if t == nil {
		return status.Errorf(codes.NotFound, "no replica of group %d here", first.GetGroup())
	}
	out := &bookiepb.RaftResponse{}
	head := snapshotHeadFromPB(first.GetHead())
	known, err := t.covered(head)
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if known != nil {
		responseToPB(known, out)
		return stream.SendAndClose(out)
	}
	reader := &chunkReader{recv: stream.Recv, chunk: first.GetData()}
	result, err := t.serve(stream.Context(), head, reader, s.opts.SnapshotTimeout)
	if err != nil {
		out.Error = err.Error()
	} else {
		responseToPB(result, out)
	}
	return stream.SendAndClose(out)
}

// handshake refuses peers of other clusters and impostors, and says who we are.
func (s *raftService) handshake(ctx context.Context, send func(metadata.MD) error) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if err := s.links.checkPeer(md, ""); err != nil {
		if s.links.refused.due(time.Now(), err.Error()) {
			s.links.log.Warn("refused a peer; it tries again and again", "error", err)
		}
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return send(s.links.self.pairs())
}

// replica greets a peer and returns the replica that its request is for.
func (s *raftService) replica(ctx context.Context, send func(metadata.MD) error, req interface {
	GetGroup() uint32
	GetClusterId() string
}) (*group, error) {
	if err := s.handshake(ctx, send); err != nil {
		return nil, err
	}
	id := ledger.GroupID(req.GetGroup())
	g := s.group(id)
	if req.GetClusterId() != s.links.self.clusterID || g == nil {
		return nil, status.Errorf(codes.NotFound, "no replica of group %d here", id)
	}
	return g, nil
}

// chunkReader reads the data of a snapshot stream.
type chunkReader struct {
	recv  func() (*bookiepb.SnapshotChunk, error)
	chunk []byte
}

// Read implements io.Reader.
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.chunk) == 0 {
		m, err := r.recv()
		if err != nil {
			return 0, err
		}
		r.chunk = m.GetData()
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}
