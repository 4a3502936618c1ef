package bookie

import (
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// slowStream is a server's end of a stream on which large messages arrive only when they are let through.
type slowStream struct {
	grpc.ServerStream
	arriving chan<- struct{}
	let      <-chan struct{}
}

func (s *slowStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if req, ok := m.(*bookiepb.RaftRequest); ok && len(req.GetAppendEntries().GetEntries()) > 0 {
		select {
		case s.arriving <- struct{}{}:
		case <-s.Context().Done():
		}
		select {
		case <-s.let:
		case <-s.Context().Done():
		}
	}
	return nil
}

// raftPeer serves the raft calls to bookie b for groups 1 and 2, which agree to everything.
func raftPeer(t *testing.T, intercept grpc.StreamServerInterceptor) Member {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	b := Member{ID: "b", Address: l.Addr().String()}
	links := testLinks(t, b)
	links.self.bookieID = "b"
	groups := map[ledger.GroupID]*transport{}
	done := make(chan struct{})
	for id := ledger.GroupID(1); id <= 2; id++ {
		tr := newTransport(id, links, newHealth(nil), RaftOptions{RPCTimeout: patience})
		groups[id] = tr
		go func() {
			for {
				select {
				case rpc := <-tr.Consumer():
					rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
				case <-done:
					return
				}
			}
		}()
	}
	server := grpc.NewServer(append(bookiepb.ServerOptions(), grpc.ChainStreamInterceptor(intercept))...)
	bookiepb.RegisterRaftServer(server, &raftService{
		links: links, find: func(id ledger.GroupID) *transport { return groups[id] }, opts: RaftOptions{RPCTimeout: patience},
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(l); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
		close(done)
	})
	return b
}

// testLinks are those of bookie a.
func testLinks(t *testing.T, b Member) *links {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	book := openAddressBook(vfs.NewMem(), "/data", []Member{{ID: "a", Address: "nowhere"}, b}, log)
	conns := newConns(dialTCP)
	ls := newLinks(identity{clusterID: "test", bookieID: "a"}, book, conns, log)
	t.Cleanup(func() {
		ls.close()
		conns.close()
	})
	return ls
}

// While entries of tens of MiB are on their way to a peer for one group, heartbeats reach it: of another group, and of
// the same one.
func TestLargeCallDelaysNoOther(t *testing.T) {
	arriving, let := make(chan struct{}), make(chan struct{})
	peer := raftPeer(t, func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, &slowStream{ServerStream: ss, arriving: arriving, let: let})
	})
	ls := testLinks(t, peer)
	call := func(group ledger.GroupID, entries ...*raft.Log) error {
		tr := newTransport(group, ls, newHealth(nil), RaftOptions{RPCTimeout: patience})
		var resp raft.AppendEntriesResponse
		return tr.AppendEntries("b", "b", &raft.AppendEntriesRequest{Term: 1, Entries: entries}, &resp)
	}
	large := make(chan error, 1)
	go func() { large <- call(1, &raft.Log{Index: 1, Term: 1, Data: make([]byte, 16<<20)}) }()
	select {
	case <-arriving:
	case <-time.After(patience):
		t.Fatal("the large call does not arrive")
	}
	for _, group := range []ledger.GroupID{2, 1} {
		if err := call(group); err != nil {
			t.Errorf("heartbeat of group %d: %v", group, err)
		}
	}
	select {
	case err := <-large:
		t.Fatalf("the large call did not wait: %v", err)
	default:
	}
	close(let)
	if err := <-large; err != nil {
		t.Errorf("the large call: %v", err)
	}
}

func TestLaneForSmallAndLarge(t *testing.T) {
	entries := func(sizes ...int) *bookiepb.RaftRequest {
		a := &raft.AppendEntriesRequest{}
		for _, n := range sizes {
			a.Entries = append(a.Entries, &raft.Log{Data: make([]byte, n)})
		}
		return &bookiepb.RaftRequest{Body: &bookiepb.RaftRequest_AppendEntries{AppendEntries: appendToPB(a)}}
	}
	for _, tc := range []struct {
		req  *bookiepb.RaftRequest
		bulk bool
	}{
		{entries(), false}, {entries(1000, 1000), false}, {entries(bulkMessage), true}, {entries(bulkMessage/2, bulkMessage/2), true},
		{&bookiepb.RaftRequest{Body: &bookiepb.RaftRequest_RequestVote{RequestVote: &bookiepb.RequestVote{}}}, false},
	} {
		if got := laneFor("b", tc.req); got != (lane{"b", tc.bulk}) {
			t.Errorf("%v for %d entries", got, len(tc.req.GetAppendEntries().GetEntries()))
		}
	}
}
