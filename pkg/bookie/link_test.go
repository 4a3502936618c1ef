package bookie

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// slowConn is a connection on which large writes wait until they are let through.
type slowConn struct {
	net.Conn
	arriving chan<- struct{}
	let      <-chan struct{}
}

func (c *slowConn) Write(p []byte) (int, error) {
	if len(p) >= bulkMessage {
		c.arriving <- struct{}{}
		<-c.let
	}
	return c.Conn.Write(p)
}

// raftPeer serves the raft calls to bookie b for groups 1 and 2, which agree to everything.
func raftPeer(t *testing.T) Member {
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
	service := &raftService{
		links: links, find: func(id ledger.GroupID) *transport { return groups[id] }, opts: RaftOptions{RPCTimeout: patience},
	}
	lanes := newLanes(service.exchange, slog.New(slog.DiscardHandler))
	server := grpc.NewServer(append(bookiepb.ServerOptions(), grpc.Creds(lanes))...)
	bookiepb.RegisterRaftServer(server, service)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(l); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		lanes.stop()
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
	peer := raftPeer(t)
	ls := testLinks(t, peer)
	ls.conns.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dialTCP(ctx, addr)
		return &slowConn{Conn: conn, arriving: arriving, let: let}, err
	}
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
