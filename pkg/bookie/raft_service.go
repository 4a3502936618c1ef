package bookie

import (
	"context"
	"fmt"
	"net"
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

// raftService is the receiving end of transport: it takes the calls of a peer off its lane and gives each to its
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

// exchange serves one lane until it breaks: the other end of link.
func (s *raftService) exchange(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(laneGreeting, func() { _ = conn.Close() })
	defer silence.Stop()
	lane := bookiepb.NewLane(conn)
	if err := lane.Answer(s.links.self.hello(), func(h *bookiepb.RaftHello) error { return s.judge(identityOf(h)) }); err != nil {
		return err
	}
	answers := make(chan *bookiepb.RaftResponse, 64) // nil: to a ping
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait: the calls under way end by it
	wg.Go(func() {
		if respond(ctx, lane, answers) != nil {
			cancel()
			_ = conn.Close() // and reading fails too
		}
	})
	give := func(resp *bookiepb.RaftResponse) {
		select {
		case answers <- resp:
		case <-ctx.Done():
		}
	}
	room := make(chan struct{}, maxCallsPerPeer)
	for {
		silence.Reset(laneSilence)
		req, err := lane.ReadRequest()
		if err != nil {
			return err
		}
		if req == nil {
			give(nil)
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			return fmt.Errorf("%d raft calls of one peer wait", maxCallsPerPeer)
		}
		wg.Go(func() {
			defer func() { <-room }()
			give(s.answer(ctx, req))
		})
	}
}

// respond sends answers, those that wait together.
func respond(ctx context.Context, lane *bookiepb.Lane, answers <-chan *bookiepb.RaftResponse) error {
	for {
		select {
		case resp := <-answers:
			if err := putAnswer(lane, resp); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
		for more := true; more && lane.Buffered() < laneBurst; {
			select {
			case resp := <-answers:
				if err := putAnswer(lane, resp); err != nil {
					return err
				}
			default:
				more = false
			}
		}
		if err := lane.Flush(); err != nil {
			return err
		}
	}
}

func putAnswer(lane *bookiepb.Lane, resp *bookiepb.RaftResponse) error {
	if resp == nil {
		lane.PutPing()
		return nil
	}
	return lane.PutResponse(resp)
}

func (s *raftService) answer(ctx context.Context, req *bookiepb.RaftRequest) *bookiepb.RaftResponse {
	out := &bookiepb.RaftResponse{Id: req.GetId(), Full: s.links.full()}
	result, err := s.serve(ctx, req)
	outcomeToPB(result, err, out)
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
	head, err := snapshotHeadFromPB(first.GetHead())
	var known *raft.InstallSnapshotResponse
	if err == nil {
		known, err = t.covered(head)
	}
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if known != nil {
		responseToPB(known, out)
		return stream.SendAndClose(out)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	reader := &chunkReader{recv: s.prompt(stream.Recv, cancel), chunk: first.GetData()}
	result, err := t.serve(ctx, head, reader, s.opts.SnapshotTimeout)
	outcomeToPB(result, err, out)
	return stream.SendAndClose(out)
}

// prompt gives a snapshot up when its next chunk is waited for as long as any call may take. Raft reads a snapshot in its
// main loop, where it neither votes nor hears of another leader meanwhile: a leader that lost its power half-way would
// cost the group its quorum until the connection is found to be dead.
func (s *raftService) prompt(recv func() (*bookiepb.SnapshotChunk, error), give func()) func() (*bookiepb.SnapshotChunk, error) {
	return func() (*bookiepb.SnapshotChunk, error) {
		defer time.AfterFunc(s.opts.RPCTimeout, give).Stop()
		return recv()
	}
}

// handshake refuses peers of other clusters and impostors, and says who we are.
func (s *raftService) handshake(ctx context.Context, send func(metadata.MD) error) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if err := s.judge(identityIn(md)); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return send(s.links.self.pairs())
}

// judge says why a peer is refused, if it is.
func (s *raftService) judge(is identity) error {
	err := s.links.checkPeer(is, "")
	if err != nil && s.links.refused.due(time.Now(), err.Error()) {
		s.links.log.Warn("refused a peer; it tries again and again", "error", err)
	}
	return err
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
