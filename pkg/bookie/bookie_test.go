package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// What does no harm shares one cluster.
func TestServices(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { // no change of leaders but those that the tests make
		o.Raft.PreferredTimeout, o.Raft.FollowerTimeout, o.Raft.MetadataTimeout = time.Second, 2*time.Second, 1500*time.Millisecond
	})
	c.run(t, []subtest{
		{"status", testStatus}, {"ledger life", testLedgerLife}, {"refusals", testRefusals},
		{"metadata", testMetadataService}, {"join", testJoin},
	})
}

// The life of a ledger through the raw services: create, append on a stream, read from every replica, fence, close,
// delete.
func testLedgerLife(t *testing.T, c *cluster) {
	lead := c.leader(1)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)

	s := c.openStream(t.Context(), lead, 1)
	var want []string
	for i := range 50 {
		var req []byte
		for j := range 4 {
			p := fmt.Sprintf("entry %d", 4*i+j)
			want = append(want, p)
			req = append(req, testAppend(7, 1, ledger.EntryID(4*i+j), p)...)
		}
		if err := s.Send(&bookiepb.AppendRequest{Commands: req}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for n := int64(0); n < 200; {
		resp, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.Results {
			c.want(r, bookiepb.Code_OK, n)
			n++
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("stream ended with %v", err)
	}

	for id := range c.nodes {
		var got []string
		c.eventually("replica "+id+" has applied all", func() bool {
			var res *bookiepb.Result
			got, res = c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 3, Confirmed: 199})
			return res.Code == bookiepb.Code_OK && len(got) == 197
		})
		if !slices.Equal(got, want[3:]) {
			t.Fatalf("%s served %q", id, got)
		}
		got, res := c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 10, Confirmed: 20, MaxEntries: 3})
		if !slices.Equal(got, want[10:13]) || res.Code != bookiepb.Code_OK {
			t.Fatalf("%s: limit of entries gave %q %v", id, got, res)
		}
		got, _ = c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 10, Confirmed: 11, MaxBytes: 1})
		if !slices.Equal(got, want[10:11]) {
			t.Fatalf("%s: the first entry is always served; got %q", id, got)
		}
		got, _ = c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 198, Confirmed: 198})
		if !slices.Equal(got, want[198:199]) {
			t.Fatalf("%s: nothing beyond confirmed is served; got %q", id, got)
		}
	}
	c.want(c.execute(1, ledger.Command{Op: ledger.OpFence, Ledger: 7, Epoch: 2}), bookiepb.Code_OK, 199)
	c.want(c.execute(1, command(testAppend(7, 1, 200, "late"))), bookiepb.Code_FENCED, 199)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpClose, Ledger: 7, Epoch: 2, Last: 150}), bookiepb.Code_OK, 150)
	_, res := c.read(c.leader(1), &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 151, Confirmed: 199})
	c.want(res, bookiepb.Code_NO_ENTRY, 150)
	got, _ := c.read(c.leader(1), &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 149, Confirmed: 199})
	if !slices.Equal(got, want[149:151]) {
		t.Fatalf("after the close: %q", got)
	}
	c.want(c.execute(1, ledger.Command{Op: ledger.OpDelete, Ledger: 7}), bookiepb.Code_OK, -1)
	_, res = c.read(c.leader(1), &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 0, Confirmed: 1})
	c.want(res, bookiepb.Code_NO_LEDGER, -1)
}

// command decodes what testAppend encoded.
func command(b []byte) ledger.Command {
	c, _, _ := ledger.NextCommand(b)
	return c
}

// What stands at the edge: groups that are not here, followers, malformed requests, another cluster.
func testRefusals(t *testing.T, c *cluster) {
	lead := c.leader(1)
	var follower string
	for id := range c.nodes {
		if id != lead {
			follower = id
		}
	}
	c.eventually("the follower knows the leader", func() bool {
		return c.executeAt(follower, 1, ledger.Command{Op: ledger.OpCreate, Ledger: 1, Epoch: 1}).GetLeader() == c.nodes[lead].addr
	})
	c.want(c.executeAt(follower, 1, ledger.Command{Op: ledger.OpCreate, Ledger: 1, Epoch: 1}), bookiepb.Code_NOT_LEADER, -1)
	c.want(c.executeAt(lead, 99, ledger.Command{Op: ledger.OpCreate, Ledger: 1, Epoch: 1}), bookiepb.Code_NO_GROUP, -1)

	flipped := testAppend(1, 1, 0, "x")
	flipped[len(flipped)-1] ^= 1
	for name, tc := range map[string]struct {
		bookie string
		group  ledger.GroupID
		req    []byte
		want   bookiepb.Code
	}{
		"follower":  {follower, 1, testAppend(1, 1, 0, "x"), bookiepb.Code_NOT_LEADER},
		"no group":  {lead, 99, testAppend(1, 1, 0, "x"), bookiepb.Code_NO_GROUP},
		"no ledger": {lead, 1, testAppend(1, 1, 0, "x"), bookiepb.Code_NO_LEDGER},
		"garbage":   {lead, 1, []byte("\xffnonsense and more of it"), bookiepb.Code_BAD_REQUEST},
		"checksum":  {lead, 1, flipped, bookiepb.Code_BAD_REQUEST},
		"cut":       {lead, 1, flipped[:len(flipped)-1], bookiepb.Code_BAD_REQUEST},
	} {
		s := c.openStream(t.Context(), tc.bookie, tc.group)
		_ = s.Send(&bookiepb.AppendRequest{Commands: tc.req}) // the answer tells
		resp, err := s.Recv()
		if err != nil || len(resp.Results) != 1 || resp.Results[0].Code != tc.want {
			t.Errorf("%s: %v %v", name, resp, err)
		}
		_ = s.CloseSend()
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the stream goes on: %v", name, err)
		}
	}
	exec, err := c.bookie(lead).Execute(t.Context(), &bookiepb.ExecuteRequest{Group: 1, Command: flipped})
	if err != nil {
		t.Fatal(err)
	}
	c.want(exec.Result, bookiepb.Code_BAD_REQUEST, -1)
	_, res := c.read(follower, &bookiepb.ReadRequest{Group: 1, Ledger: 55, First: 0, Confirmed: 0})
	c.want(res, bookiepb.Code_BEHIND, -1)
	c.eventually("the leader proves that there is no ledger", func() bool {
		_, res = c.read(c.leader(1), &bookiepb.ReadRequest{Group: 1, Ledger: 55, First: 0, Confirmed: 0})
		return res.Code == bookiepb.Code_NO_LEDGER
	})
	_, res = c.read(lead, &bookiepb.ReadRequest{Group: 1, Ledger: 55, First: 5, Confirmed: 0})
	c.want(res, bookiepb.Code_BAD_REQUEST, -1)
}

// A group's leader stops in the middle of appends. The same commands, sent again to the next leader, leave every entry
// once and in place.
func testLeaderStops(t *testing.T, c *cluster) {
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 103, Epoch: 1}), bookiepb.Code_OK, -1)
	old := c.leader(1)
	const n = 120
	answered := make(chan int64, 1)
	s := c.openStream(t.Context(), old, 1)
	go func() {
		defer close(answered)
		for {
			resp, err := s.Recv()
			if err != nil {
				return
			}
			for _, r := range resp.Results {
				if r.Code == bookiepb.Code_OK {
					select {
					case <-answered:
					default:
					}
					answered <- r.Last
				}
			}
		}
	}()
	for i := range n {
		if s.Send(&bookiepb.AppendRequest{Commands: testAppend(103, 1, ledger.EntryID(i), fmt.Sprint(i))}) != nil {
			break
		}
		if i == n/2 {
			c.nodes[old].server.Stop() // as if killed: nothing is handed over
			c.nodes[old].links.stop()
		}
	}
	var acked int64 = -1
	for a := range answered {
		acked = a
	}
	c.stop(old)
	for i := range n {
		if res := c.execute(1, command(testAppend(103, 1, ledger.EntryID(i), fmt.Sprint(i)))); res.Code != bookiepb.Code_OK {
			t.Fatalf("retry of %d: %v", i, res)
		}
	}
	got, _ := c.read(c.leader(1), &bookiepb.ReadRequest{Group: 1, Ledger: 103, First: 0, Confirmed: n - 1})
	for i, p := range got {
		if p != fmt.Sprint(i) {
			t.Fatalf("entry %d is %q", i, p)
		}
	}
	if len(got) != n || acked >= n {
		t.Fatalf("%d entries, acked up to %d", len(got), acked)
	}
	c.start(old, listen(t, c.nodes[old].addr))
	c.ready(old)
}

// All bookies lose power at once: everything that was answered is there afterwards, the replicas agree.
func testPowerCutOfAll(t *testing.T, c *cluster) {
	c.want(c.execute(2, ledger.Command{Op: ledger.OpCreate, Ledger: 104, Epoch: 1}), bookiepb.Code_OK, -1)
	for i := range 40 {
		c.want(c.execute(2, command(testAppend(104, 1, ledger.EntryID(i), fmt.Sprint("e", i)))), bookiepb.Code_OK, int64(i))
	}
	seed := uint64(1)
	after := map[string]*vfs.Mem{}
	for id, b := range c.nodes {
		after[id] = b.disk.Crash(seed) // as of now; what is written while it closes is lost
		seed++
	}
	c.stopAll()
	for id, b := range c.nodes {
		b.disk = after[id]
		b.fs = vfs.NewInject(b.disk)
		c.start(id, listen(t, b.addr))
	}
	for id := range c.nodes {
		c.ready(id)
	}
	got, _ := c.read(c.leader(2), &bookiepb.ReadRequest{Group: 2, Ledger: 104, First: 0, Confirmed: 39})
	if len(got) != 40 || got[39] != "e39" {
		t.Fatalf("%d entries after the power cut", len(got))
	}
	c.want(c.execute(2, command(testAppend(104, 1, 40, "more"))), bookiepb.Code_OK, 40)
	c.eventually("replicas agree", func() bool {
		var states []ledger.State
		for _, b := range c.nodes {
			st, _ := b.groups.get(2).fsm.state(104)
			states = append(states, st)
		}
		return states[0] == states[1] && states[1] == states[2] && states[0].Last == 40
	})
}

// A bookie that comes later leads a group of its own, with replicas on two others, and serves it.
func testJoin(t *testing.T, c *cluster) {
	c.join("x")
	var st *bookiepb.StatusResponse
	c.eventually("the new bookie leads a group", func() bool {
		st = c.nodes["x"].Status()
		return len(st.Groups) == 1 && st.Groups[0].Leader != ""
	})
	g := ledger.GroupID(st.Groups[0].Group)
	if r := st.Groups[0].Replicas; len(r) != 3 || r[0] != "x" || g != 4 || st.Metadata != nil {
		t.Errorf("status %v", st)
	}
	c.want(c.execute(g, ledger.Command{Op: ledger.OpCreate, Ledger: 70, Epoch: 1}), bookiepb.Code_OK, -1)
	r, err := c.metadata("x").Get(t.Context(), &bookiepb.GetRequest{Key: "/cluster"})
	if err != nil || r.Result.Code != bookiepb.Code_NOT_LEADER {
		t.Errorf("metadata at a bookie that is no member: %v %v", r, err)
	}
}

func testStatus(t *testing.T, c *cluster) {
	for id := range c.nodes {
		var st *bookiepb.StatusResponse
		c.eventually("all groups have leaders", func() bool {
			var err error
			if st, err = c.bookie(id).Status(context.Background(), &bookiepb.StatusRequest{}); err != nil {
				t.Fatal(err)
			}
			return len(st.Groups) == 3 && st.Groups[0].Leader != "" && st.Metadata.Leader != ""
		})
		if st.ClusterId != "test" || st.BookieId != id || st.Address != c.nodes[id].addr || len(st.Groups[2].Replicas) != 3 {
			t.Errorf("status of %s: %v", id, st)
		}
	}
}
