package bookie

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// A member of the metadata group is replaced when it is dead or leaves, one at a time, by a bookie that lives and is not in
// the group, of another rack if there is one.
func TestReplaceMember(t *testing.T) {
	for _, c := range []struct{ name, hosts, group, votes, want string }{
		{"all are well", "a b c d", "0:abc", "abc", ""},
		{"one is dead", "a! b c d", "0:abc", "abc", "0:dbc(a)"},
		{"nobody is left", "a! b c", "0:abc", "abc", ""},
		{"one leaves", "a b- c d", "0:abc", "abc", "0:adc(b)"},
		{"the dead one first", "a b- c! d", "0:abc", "abc", "0:abd(c)"},
		{"while one moves nobody else does", "a b c! d e", "0:dbc(a)", "abc", ""},
		{"nor one who leaves", "a b- c d e", "0:dbc(a)", "abcd", ""},
		{"a newcomer that dies on the way", "a! b c d! e", "0:dbc(a)", "abc", "0:ebc(ad)"},
		{"but not one that votes", "a! b c d! e", "0:dbc(a)", "abcd", ""},
		{"most are silent", "a! b! c! d e", "0:abc", "abc", ""},
		{"half are", "a! b! c d", "0:abc", "abc", "0:dbc(a)"},
		{"most have gone long ago", "a! b c d v! w! x! y! z!", "0:abc", "abc", "0:dbc(a)"},
		{"who leaves takes nothing", "a! b c d- e", "0:abc", "abc", "0:ebc(a)"},
	} {
		var hosts []host
		for _, word := range strings.Fields(c.hosts) {
			hosts = append(hosts, host{
				id: word[:1], dead: strings.HasSuffix(word, "!"), silent: strings.HasSuffix(word, "!"), leaving: strings.HasSuffix(word, "-"),
			})
		}
		g := parseGroups(c.group)[0]
		m, ok := newBoard(hosts, nil).replaceMember(&g, strings.Split(c.votes, ""))
		if got := showGroup(&m.info); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: %s %t, want %s", c.name, got, ok, c.want)
		}
	}
}

// memberIDs waits until the record of the metadata group is settled without some bookies, and returns it.
func (c *cluster) memberIDs(without ...string) []string {
	c.t.Helper()
	var info metadata.GroupInfo
	c.eventually(fmt.Sprintf("the metadata are without %v", without), func() bool {
		info = c.record(ledger.MetadataGroup)
		return len(info.Former) == 0 && !slices.ContainsFunc(info.Replicas, func(id string) bool { return slices.Contains(without, id) })
	})
	if got := sorted(c.nodes[c.leader(0)].meta().voters()); !slices.Equal(got, sorted(info.Replicas)) {
		c.t.Errorf("the record says %v, the voters are %v", info.Replicas, got)
	}
	return info.Replicas
}

func (c *cluster) wantKeys(n int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("all %d keys are there", n), func() bool {
		list, err := c.metadata(c.leader(0)).List(context.Background(), &bookiepb.ListRequest{Prefix: "/k/"})
		if err != nil || list.Result.Code != bookiepb.Code_OK {
			return false
		}
		if len(list.Items) != n {
			c.t.Fatalf("%d keys, want %d", len(list.Items), n)
		}
		return true
	})
}

// Members of the metadata group are lost for good one after the other, more than the group could lose at once, and are
// replaced. One that comes back has been forgotten, forgets, disturbs nobody, and can be a member again. One that is
// decommissioned leaves too, though it leads.
func TestMetadataMembersMove(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) {
		patientElections(o)
		o.ReplaceAfter = 2 * time.Second
	})
	c.join("d")
	c.join("e")
	keys := 0
	write := func() {
		for range 5 {
			c.commit(metadata.Txn{}.Then(metadata.Put(fmt.Sprint("/k/", keys), []byte("v"))))
			keys++
		}
	}
	write()
	wantSlice(t, "members at first", sorted(c.memberIDs()), "a", "b", "c")

	first := c.leader(0)
	c.stop(first)
	now := c.memberIDs(first)
	write()
	second := now[slices.IndexFunc(now, func(id string) bool { return id < "d" })] // of the founders
	c.stop(second)
	now = c.memberIDs(first, second)
	write()
	c.wantKeys(keys)
	if !slices.Contains(now, "d") || !slices.Contains(now, "e") {
		t.Fatalf("members are %v", now)
	}

	// It looks for a leader among those that it knew, and finds one.
	lead := c.leader(0)
	term := c.nodes[lead].meta().raft.CurrentTerm()
	c.start(first, listen(t, c.nodes[first].addr))
	c.ready(first)
	c.eventually(first+" forgets the metadata", func() bool { return c.nodes[first].meta() == nil })
	c.eventually(first+" has nothing left of them", func() bool {
		_, err := os.Stat(filepath.Join(c.dir, first, boltFile))
		return os.IsNotExist(err)
	})
	if got := c.leader(0); got != lead || c.nodes[got].meta().raft.CurrentTerm() != term {
		t.Errorf("a former member has disturbed the group: %s leads in term %d, before %s in term %d",
			got, c.nodes[got].meta().raft.CurrentTerm(), lead, term)
	}
	c.stop(first)
	c.start(first, listen(t, c.nodes[first].addr)) // it starts without the metadata that it was initialized with
	c.ready(first)

	// Only the one that came back can take the place of the leader.
	c.order(lead, metadata.BookieMode{Decommission: true})
	now = c.memberIDs(lead, second)
	if !slices.Contains(now, first) {
		t.Fatalf("members are %v, want %s among them", now, first)
	}
	write()
	c.wantKeys(keys)
	c.eventually("the leader that left has forgotten the metadata", func() bool { return c.nodes[lead].meta() == nil })

	// Everything stops and starts: who is a member now runs, and is found by the others.
	live := []string{"a", "b", "c", "d", "e"}
	live = slices.DeleteFunc(live, func(id string) bool { return id == second })
	c.stopAll()
	for _, id := range live {
		c.start(id, listen(t, c.nodes[id].addr))
	}
	for _, id := range live {
		c.ready(id)
		if got := c.nodes[id].meta() != nil; got != slices.Contains(now, id) {
			t.Errorf("%s runs the metadata: %t; members are %v", id, got, now)
		}
	}
	c.wantKeys(keys)
	write()
}

// newcomer is a bookie that is joining the metadata group of three others, for good.
func newcomer(t *testing.T) (*cluster, *testBookie) {
	c := newCluster(t, 3, nil)
	c.join("d")
	d := c.nodes["d"]
	c.memberIDs()
	// The metadata never say this, so it stays what it is.
	it := metadata.Item{Key: metadata.GroupKey(0), Value: []byte(`{"id":0,"replicas":["a","b","d"],"former":["c"]}`), Version: 1 << 40}
	d.seat.follow(map[string]metadata.Item{it.Key: it})
	c.eventually("d runs a replica", func() bool { return d.meta() != nil })
	return c, d
}

// A newcomer that has no open replica opens one, again and again: it may have failed, and nobody else is chosen meanwhile.
func TestOpeningOfANewcomerIsTriedAgain(t *testing.T) {
	c, d := newcomer(t)
	before := d.seat.group.Swap(nil)
	if err := before.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.eventually("d runs a replica again", func() bool { return d.meta() != nil && d.meta() != before })
}

// A newcomer that was a member before has forgotten its votes and its log. It helps nobody to be elected before it has seen
// itself become a member again; without that, a member that was dead when it was removed would get its vote.
func TestNewcomerHasNoSay(t *testing.T) {
	c, d := newcomer(t)
	ask := func(command any) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, err := d.transport(0).serve(ctx, command, nil, patience)
		if v, ok := r.(*raft.RequestVoteResponse); ok && !v.Granted {
			return fmt.Errorf("refused: %+v", v)
		}
		return err
	}
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("c"), Addr: []byte("c")}
	vote := &raft.RequestVoteRequest{RPCHeader: header, Term: 99, LastLogIndex: 5, LastLogTerm: 1}
	for _, command := range []any{
		vote, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 99, LastLogIndex: 5, LastLogTerm: 1}, &raft.TimeoutNowRequest{RPCHeader: header},
	} {
		if err := ask(command); err == nil || err.Error() != errNoSay.Error() {
			t.Errorf("%T: %v", command, err)
		}
	}
	// After a restart it is what it was.
	c.stop("d")
	c.start("d", listen(t, d.addr))
	c.eventually("d runs a replica again", func() bool { return d.meta() != nil })
	if err := ask(vote); err == nil || err.Error() != errNoSay.Error() {
		t.Errorf("after a restart: %v", err)
	}
	if st := d.Status().GetMetadata(); isWhole(st) {
		t.Errorf("its leader would give it a vote: %v", st)
	}
	d.meta().joined()
	if err := ask(vote); err != nil {
		t.Errorf("once it has a say: %v", err)
	}
}

// What is written of a place outlives a restart, and an empty log is accepted only while nobody counts on it.
func TestSeatFile(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	member := &clusterJSON{BookieID: "a", Metadata: []Member{{ID: "a"}}}
	other := &clusterJSON{BookieID: "b", Metadata: member.Metadata}
	for _, c := range []struct {
		file string
		c    *clusterJSON
		want string
	}{
		{"", member, "held"},
		{"", other, "left"},
		{`{"state":"left","version":7}`, member, "left"},
		{`{"state":"joining","version":7}`, other, "joining"},
		{`{"state":"held","version":7}`, other, "held"},
		{`{"state":"hel`, other, ""},
		{`{"state":"founder"}`, other, ""},
	} {
		if c.file != "" {
			if err := writeFile(fs, "/data/"+seatFile, []byte(c.file)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := readSeat(fs, "/data", c.c)
		if (err != nil) != (c.want == "") || err == nil && string(got.State) != c.want {
			t.Errorf("%s: %v %v, want %q", c.file, got, err, c.want)
		}
	}
	empty, snapshots := raft.NewInmemStore(), raft.NewDiscardSnapshotStore()
	if mayOpen(empty, snapshots, false) == nil || mayOpen(empty, snapshots, true) != nil {
		t.Error("a log that is gone passes, or an empty newcomer does not")
	}
}

// A change is not begun when what it leads to would hang on members that do not follow.
func TestChangeBearsTheSilent(t *testing.T) {
	c := newCluster(t, 3, patientElections)
	lead := c.leader(0)
	g := c.nodes[lead].meta()
	s := c.nodes[lead].metaSettler(g)
	others := slices.DeleteFunc([]string{"a", "b", "c"}, func(id string) bool { return id == lead })
	servers := parseServers("a b c x+")
	add, remove := step{stepPromote, "x"}, step{stepRemove, others[0]}
	// A fourth vote that nobody answers for: 3 of 4 is enough.
	c.eventually("three of four", func() bool { return s.bears(t.Context(), servers, add) == nil })
	c.stop(others[0])
	if err := s.bears(t.Context(), servers, add); err == nil {
		t.Error("two of four pass")
	}
	if err := s.bears(t.Context(), servers, remove); err != nil {
		t.Errorf("the silent one is to go: %v", err)
	}
	if err := s.bears(t.Context(), servers, step{stepRemove, others[1]}); err == nil {
		t.Error("the one that is left beside the leader is to go, and that passes")
	}
}

// A replica is forgotten once it is durable that there need not be one, whatever fails on the way: a bookie that still
// believes to be a member and finds nothing there does not start.
func TestSeatIsGivenUpBeforeItIsForgotten(t *testing.T) {
	for n := int64(1); ; n++ {
		fs, dir := vfs.NewInject(vfs.NewMem()), t.TempDir()
		if err := fs.MkdirAll("/data"); err != nil {
			t.Fatal(err)
		}
		bolt := filepath.Join(dir, boltFile)
		if err := os.WriteFile(bolt, []byte("a log"), 0o644); err != nil {
			t.Fatal(err)
		}
		s := &seat{b: &Bookie{opts: Options{FS: fs, DataDir: "/data", MetadataDir: dir}}}
		if err := s.become(seatHeld, 1); err != nil {
			t.Fatal(err)
		}
		fault := fs.FailIf(vfs.Nth(n, func(vfs.Op) bool { return true }), nil)
		err := s.vacate(2)
		fs.Heal()
		now, rerr := readSeat(fs, "/data", &clusterJSON{})
		if rerr != nil {
			t.Fatal(rerr)
		}
		if _, serr := os.Stat(bolt); os.IsNotExist(serr) != (err == nil) || serr != nil && now.State != seatLeft {
			t.Errorf("operation %d fails: %v, state %q, log: %v", n, err, now.State, serr)
		}
		select {
		case <-fault.Reached():
			continue
		default:
		}
		if err != nil || n < 5 {
			t.Errorf("nothing failed at operation %d: %v", n, err)
		}
		return
	}
}
