package bookie

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// What is known to break groups that use the library as it comes, and which tests are about it.
//
//	raft issue             what happens                                       test
//	#697                   a snapshot is sent to a diverged replica for ever  TestSnapshotLivelock, TestDivergedReplicaStartsAgain, TestHealLog
//	#695                   a heartbeat changes the term beside the main loop  TestHeartbeatWaitsForTheLog
//	#503, #614             nobody succeeds a leader whose disk hangs          TestHungDiskOfTheLeader, TestDeadlineStore
//	#612                   a follower gets no entries any more                TestFrozenFollower, TestNoPipeline, TestFaultsThatPass/frozen_follower
//	#696                   an interrupted transfer leaves proposals refused   TestFailedYieldLeavesNothing
//	no issue               a full disk behind a cut tail: nothing is taken    TestFullDiskBehindACutTail

// slowLog holds up the writing of entries.
type slowLog struct {
	*raft.InmemStore
	begun, let chan struct{}
}

func (s *slowLog) StoreLogs(logs []*raft.Log) error {
	s.begun <- struct{}{}
	<-s.let
	return s.InmemStore.StoreLogs(logs)
}

// A heartbeat of a newer term that comes while entries are being written waits until they are: the library's fast path
// would change the term under the main loop, which then stamps entries with a term that it does not lead.
func TestHeartbeatWaitsForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := testLinks(t, Member{})
		store := &slowLog{raft.NewInmemStore(), make(chan struct{}), make(chan struct{})}
		n := node{health: newHealth(nil), log: links.log, wait: time.Second, stop: make(chan struct{})}
		n.startSilent(t, links, store)
		defer n.close(t.Context())
		header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("b"), Addr: []byte("b")}
		call := func(term uint64, entries ...*raft.Log) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := n.transport.serve(t.Context(), &raft.AppendEntriesRequest{RPCHeader: header, Term: term, Entries: entries}, nil, time.Minute)
				done <- err
			}()
			return done
		}
		first := call(2, &raft.Log{Index: 1, Term: 2, Type: raft.LogNoop})
		<-store.begun
		second := call(3)
		synctest.Wait()
		if term := n.raft.CurrentTerm(); term != 2 || len(second) != 0 {
			t.Errorf("term %d while entries of term 2 are being written; answered: %t", term, len(second) != 0)
		}
		close(store.let)
		if err := errors.Join(<-first, <-second); err != nil || n.raft.CurrentTerm() != 3 {
			t.Errorf("afterwards: term %d, %v", n.raft.CurrentTerm(), err)
		}
	})
}

// startSilent starts a node that never stands for election.
func (n *node) startSilent(t *testing.T, links *links, s store) {
	t.Helper()
	err := n.start(links, RaftOptions{PreferredTimeout: time.Second, RPCTimeout: time.Second, MaxAppendEntries: 1}, nodeOptions{
		id: 1, timeout: neverStand, fsm: newMetaFSM(n.health, 1), store: s, snapshots: raft.NewInmemSnapshotStore(),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The library's pipeline has stopped for ever after an append that was rejected: it is not used.
func TestNoPipeline(t *testing.T) {
	tr := &transport{}
	if p, err := tr.AppendEntriesPipeline("b", "b"); p != nil || !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Errorf("%v %v", p, err)
	}
}

// The lead is offered twice to a replica that hangs, and the leader loses it meanwhile. When it leads again it takes
// proposals. The library's own transfer would leave it refusing them for good: its second attempt waits on a channel that
// nobody reads after the lead is lost.
func TestFailedYieldLeavesNothing(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) {
		o.Journal.WriteTimeout, o.Raft.RPCTimeout = patience, patience
	})
	c.fill(1, 7, 1)
	first := c.leader(1)
	hung := map[string]string{"a": "b", "b": "c", "c": "a"}[first]
	hang := c.nodes[hung].fs.HangIf(vfs.Kinds(vfs.OpSync))
	defer hang.Release()
	c.want(c.execute(1, command(testAppend(7, 1, 1, "1"))), bookiepb.Code_OK, 1)
	lead := c.leader(1, hung)
	well := slices.DeleteFunc([]string{"a", "b", "c"}, func(id string) bool { return id == lead || id == hung })[0]
	g := c.nodes[lead].groups.get(1)
	s := newSteward(c.nodes[lead].Bookie, g)
	for i := range 2 {
		if err := s.yield(t.Context(), hung); err == nil {
			t.Fatal("a replica that hangs was elected")
		}
		if i == 0 { // the first attempt is over
			c.want(c.execute(1, command(testAppend(7, 1, 2, "2"))), bookiepb.Code_OK, 2)
		}
	}
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(well), Addr: []byte(well)}
	term := g.raft.CurrentTerm()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := g.transport.serve(ctx, &raft.RequestVoteRequest{RPCHeader: header, Term: term + 1, LeadershipTransfer: true}, nil, patience); err != nil {
		t.Fatal(err)
	}
	c.eventually("the lead was lost", func() bool { return g.raft.CurrentTerm() > term })
	tries := 0
	c.eventually("it leads again and takes proposals", func() bool {
		if g.raft.State() == raft.Leader {
			return g.isReady()
		}
		if tries++; tries%200 == 0 {
			_ = c.nodes[well].groups.get(1).transport.timeoutNow(lead) // as if its timeout were over
		}
		return false
	})
	c.want(c.executeAt(lead, 1, command(testAppend(7, 1, 3, "3"))), bookiepb.Code_OK, 3)
}
