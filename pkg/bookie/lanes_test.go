package bookie

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// lanesOn serves lanes, and gRPC, on a host of a network in memory.
func lanesOn(n *simNet, host string, serve func(context.Context, net.Conn) error) (stop func()) {
	ls := newLanes(serve, slog.New(slog.DiscardHandler))
	server := grpc.NewServer(append(bookiepb.ServerOptions(), grpc.Creds(ls))...)
	return serveOn(n, host, server, ls.stop)
}

// serveOn runs a server on a host of a network in memory. also is what else there is to stop before it has ended.
func serveOn(n *simNet, host string, server *grpc.Server, also func()) (stop func()) {
	port := n.listen(host)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(port) // ends with Stop
	}()
	return func() {
		server.Stop()
		port.kill()
		also()
		<-served
	}
}

// A caller that stops talking, at any moment, does not keep a lane for ever; one that pings does.
func TestSilentLaneEnds(t *testing.T) {
	hello := func(*testing.T, *bookiepb.Lane) {}
	for name, say := range map[string]func(*testing.T, *bookiepb.Lane){
		"before the hello": nil,
		"after it":         hello,
		"after a call": func(t *testing.T, lane *bookiepb.Lane) {
			if err := errors.Join(lane.PutRequest(&bookiepb.RaftRequest{Id: 1}), lane.Flush()); err != nil {
				t.Fatal(err)
			}
			if resp, err := lane.ReadResponse(); err != nil || resp.GetId() != 1 {
				t.Errorf("%v, %v", resp, err)
			}
		},
		"after a minute of pings": func(t *testing.T, lane *bookiepb.Lane) {
			for range 12 {
				time.Sleep(lanePing)
				lane.PutPing()
				if err := lane.Flush(); err != nil {
					t.Fatal(err)
				}
				if resp, err := lane.ReadResponse(); resp != nil || err != nil {
					t.Fatalf("%v, %v is no answer to a ping", resp, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newSimNet()
				ls := testLinks(t, Member{ID: "b", Address: "b:1"})
				service := &raftService{links: ls, find: func(ledger.GroupID) *transport { return nil }, opts: RaftOptions{RPCTimeout: time.Second}}
				defer lanesOn(n, "b", service.exchange)()
				conn, err := n.dialer("a")(t.Context(), "b:1")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				lane := bookiepb.NewLane(conn)
				if say == nil {
					if _, err := conn.Write([]byte(bookiepb.LaneMagic[:3])); err != nil {
						t.Fatal(err)
					}
				} else {
					h, err := lane.Call(identity{clusterID: "test", bookieID: "b"}.hello())
					if err != nil || h.GetError() != "" {
						t.Fatalf("%v, %v", h, err)
					}
					say(t, lane)
				}
				start := time.Now()
				if m, err := lane.ReadResponse(); !errors.Is(err, io.EOF) {
					t.Errorf("%v, %v", m, err)
				}
				if since := time.Since(start); since > laneSilence {
					t.Errorf("it took %v", since)
				}
			})
		})
	}
}

// A peer that is there and says nothing is found out: calls fail, the connection is given up, and one that talks again is
// used.
func TestSilentPeerIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSimNet()
		var lanes, lost atomic.Int64
		var talks atomic.Bool
		stop := lanesOn(n, "b", func(_ context.Context, conn net.Conn) error {
			lanes.Add(1)
			lane := bookiepb.NewLane(conn)
			err := lane.Answer(&bookiepb.RaftHello{ClusterId: "test", BookieId: "b"}, func(*bookiepb.RaftHello) error { return nil })
			for err == nil {
				var req *bookiepb.RaftRequest
				if req, err = lane.ReadRequest(); err != nil || !talks.Load() {
					continue
				}
				if req == nil {
					lane.PutPing()
				} else {
					err = lane.PutResponse(&bookiepb.RaftResponse{
						Id: req.GetId(), Body: &bookiepb.RaftResponse_AppendEntries{AppendEntries: &bookiepb.AppendEntriesResult{Success: true}},
					})
				}
				err = errors.Join(err, lane.Flush())
			}
			return err
		})
		defer stop()
		ls := testLinks(t, Member{ID: "b", Address: "b:1"})
		ls.conns.dial = n.dialer("a")
		ls.lost = func(string) { lost.Add(1) }
		tr := newTransport(1, ls, newHealth(nil), RaftOptions{RPCTimeout: time.Second})
		call := func() error {
			return tr.AppendEntries("b", "b", &raft.AppendEntriesRequest{Term: 1}, &raft.AppendEntriesResponse{})
		}
		if err := call(); err == nil {
			t.Error("a call that nobody answered succeeded")
		}
		time.Sleep(laneSilence + time.Second)
		if lost.Load() != 1 || lanes.Load() != 2 {
			t.Errorf("lost %d times, %d lanes", lost.Load(), lanes.Load())
		}
		talks.Store(true)
		if err := call(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour) // pings keep it
		if lanes.Load() != 2 {
			t.Errorf("%d lanes", lanes.Load())
		}
	})
}

// A lane that comes when the bookie stops is closed, and so are those that are there.
func TestLanesStop(t *testing.T) {
	ls := newLanes(func(ctx context.Context, conn net.Conn) error {
		_, err := io.ReadAll(conn)
		return errors.Join(err, ctx.Err())
	}, slog.New(slog.DiscardHandler))
	offer := func() net.Conn {
		here, there := net.Pipe()
		go func() { _, _ = here.Write([]byte(bookiepb.LaneMagic[:1])) }() // it may be closed before
		if conn, _, err := ls.ServerHandshake(there); conn != nil || !errors.Is(err, credentials.ErrConnDispatched) {
			t.Errorf("%v, %v", conn, err)
		}
		return here
	}
	before := offer()
	ls.stop()
	after := offer()
	for _, conn := range []net.Conn{before, after} {
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
	ls.stop()
}

// A call that nobody waits for any more is forgotten, whatever ended the wait.
func TestCallsAreForgotten(t *testing.T) {
	for name, closes := range map[string]bool{"time is up": false, "its replica closes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newSimNet()
				defer lanesOn(n, "b", func(_ context.Context, conn net.Conn) error {
					lane := bookiepb.NewLane(conn)
					err := lane.Answer(&bookiepb.RaftHello{ClusterId: "test", BookieId: "b"}, func(*bookiepb.RaftHello) error { return nil })
					for err == nil {
						_, err = lane.ReadRequest()
					}
					return err
				})()
				ls := testLinks(t, Member{ID: "b", Address: "b:1"})
				ls.conns.dial = n.dialer("a")
				closed := make(chan struct{})
				if closes {
					time.AfterFunc(time.Second, func() { close(closed) })
				}
				l := ls.get(lane{peer: "b"})
				if resp, err := l.call(&bookiepb.RaftRequest{Group: 1}, 3*time.Second, closed); err == nil {
					t.Errorf("%v", resp)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.nextID != 1 || len(l.pending) != 0 {
					t.Errorf("%d calls were sent, %d are not forgotten", l.nextID, len(l.pending))
				}
			})
		})
	}
}

// What an error says cannot end a lane, on which other groups' calls are answered, too.
func TestAnswerCanBeEncoded(t *testing.T) {
	tr := newTransport(1, testLinks(t, Member{ID: "b", Address: "b:1"}), newHealth(nil), RaftOptions{RPCTimeout: time.Second})
	tr.health.fail(errors.New("file \xff is damaged"))
	service := &raftService{links: tr.links, find: func(ledger.GroupID) *transport { return tr }}
	resp := service.answer(t.Context(), &bookiepb.RaftRequest{Id: 1, Group: 1, ClusterId: "test", Body: &bookiepb.RaftRequest_TimeoutNow{TimeoutNow: &bookiepb.TimeoutNow{}}})
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if err := bookiepb.NewLane(here).PutResponse(resp); err != nil || !strings.Contains(resp.GetError(), "is damaged") {
		t.Errorf("%v: %v", resp, err)
	}
}

// Somebody who connects and says nothing, or not enough, does not keep a bookie from closing.
func TestSilentStrangersDoNotKeepABookie(t *testing.T) {
	for _, said := range []string{"", bookiepb.LaneMagic[:1], bookiepb.LaneMagic, "PRI * HTTP"} {
		t.Run(said, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newSimNet()
				service := &raftService{links: testLinks(t, Member{ID: "b", Address: "b:1"})}
				stop := lanesOn(n, "b", service.exchange)
				conn, err := n.dialer("a")(t.Context(), "b:1")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := conn.Write([]byte(said)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				start := time.Now()
				stop()
				if took := time.Since(start); took > bookiepb.Greeting {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
