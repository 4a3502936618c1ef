package bookie

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// zeros is a snapshot of any size.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func anInstall() *raft.InstallSnapshotRequest {
	return &raft.InstallSnapshotRequest{Term: 1, Configuration: raft.EncodeConfiguration(configurationOf([]string{"a", "b"}))}
}

// raftOn serves the calls of Raft on a host of a network in memory.
func raftOn(n *simNet, host string, service bookiepb.RaftServer) (stop func()) {
	server := grpc.NewServer(append(bookiepb.ServerOptions(), grpc.Creds(insecure.NewCredentials()))...)
	bookiepb.RegisterRaftServer(server, service)
	return serveOn(n, host, server, func() {})
}

// deafRaft takes a snapshot and reads none of it.
type deafRaft struct {
	bookiepb.UnimplementedRaftServer
}

func (deafRaft) InstallSnapshot(s grpc.ClientStreamingServer[bookiepb.SnapshotChunk, bookiepb.RaftResponse]) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// Raft's shutdown waits for a snapshot that is being sent. A peer that reads nothing does not hold it up.
func TestSnapshotOnItsWayEndsWithItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSimNet()
		defer raftOn(n, "b", deafRaft{})()
		ls := testLinks(t, Member{ID: "b", Address: "b:1"})
		ls.conns.dial = n.dialer("a")
		tr := newTransport(1, ls, newHealth(nil), RaftOptions{SnapshotTimeout: time.Hour})
		sent := make(chan error, 1)
		go func() {
			sent <- tr.InstallSnapshot("b", "b", anInstall(), &raft.InstallSnapshotResponse{}, zeros{})
		}()
		time.Sleep(time.Minute)
		select {
		case err := <-sent:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		start := time.Now()
		tr.close()
		if err := <-sent; err == nil || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// Raft reads a snapshot in its main loop, and votes for nobody meanwhile. A leader that is gone half-way, of which nobody
// is told, keeps it from that for no longer than a call may take; a disk that is slow here is not the leader's fault.
func TestSnapshotFromALeaderThatIsGone(t *testing.T) {
	const rpcTimeout = 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		n := newSimNet()
		there := testLinks(t, Member{ID: "b", Address: "b:1"})
		there.self.bookieID = "b"
		o := RaftOptions{RPCTimeout: rpcTimeout, SnapshotTimeout: 10 * time.Minute}
		follower := newTransport(1, there, newHealth(nil), o)
		defer raftOn(n, "b", &raftService{
			links: there, find: func(ledger.GroupID) *transport { return follower }, opts: o,
		})()
		here := testLinks(t, Member{ID: "b", Address: "b:1"})
		here.conns.dial = n.dialer("a")
		leader := newTransport(1, here, newHealth(nil), o)
		sent := make(chan error, 1)
		go func() {
			sent <- leader.InstallSnapshot("b", "b", anInstall(), &raft.InstallSnapshotResponse{}, zeros{})
		}()
		rpc := <-follower.Consumer() // from here on this is raft's main loop
		if _, err := io.CopyN(io.Discard, rpc.Reader, 1<<20); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the disk
		if _, err := io.CopyN(io.Discard, rpc.Reader, 1<<20); err != nil {
			t.Errorf("a slow disk ends a snapshot: %v", err)
		}
		n.setCut("a", "b", true)
		n.setCut("b", "a", true)
		start := time.Now()
		if _, err := io.Copy(io.Discard, rpc.Reader); err == nil || time.Since(start) > rpcTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		rpc.Respond(&raft.InstallSnapshotResponse{}, nil)
		n.setCut("a", "b", false)
		n.setCut("b", "a", false)
		if err := <-sent; err == nil {
			t.Error("half a snapshot was taken")
		}
	})
}
