package bookie

import (
	"encoding/json"
	"fmt"
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

// parseServers reads "a b c+": ids, with + for those without a vote.
func parseServers(text string) []raft.Server {
	var out []raft.Server
	for _, word := range strings.Fields(text) {
		s := raft.Server{ID: raft.ServerID(strings.TrimSuffix(word, "+")), Suffrage: raft.Voter}
		if strings.HasSuffix(word, "+") {
			s.Suffrage = raft.Nonvoter
		}
		out = append(out, s)
	}
	return out
}

func TestNextStep(t *testing.T) {
	for _, c := range []struct{ group, servers, want string }{
		{"1:abc", "a b c", "nothing"},
		{"1:cab", "a b c", "nothing"},
		{"1:dbc(a)", "a b c", "add d"},
		{"1:dbc(a)", "a b c d+", "give a vote to d"},
		{"1:dbc(a)", "a b c d", "remove a"},
		{"1:dbc(a)", "b c d", "write the record"},
		{"1:dbc", "b c d", "nothing"},
		{"1:ebc(ad)", "a b c d+", "remove d"},
		{"1:ebc(ad)", "a b c d", "add e"},
		{"1:ebc(ad)", "a b c d e", "remove d"},
		{"1:ebc(ad)", "b c d e", "remove d"},
		{"1:efc(ab)", "a b c e+", "give a vote to e"},
		{"1:adc(b)", "b a d c", "remove b"},
		{"1:cde(ab)", "a b c d e", "remove b"}, // a leads
	} {
		g := parseGroups(c.group)[0]
		if got := nextStep(&g, parseServers(c.servers), "a").String(); got != c.want {
			t.Errorf("%s in %q: %s, want %s", c.group, c.servers, got, c.want)
		}
	}
}

// Whatever the record says and however often it changes under way, the steps reach it, and there are never fewer votes than
// the group began with.
func TestStepsConverge(t *testing.T) {
	g := parseGroups("1:abc")[0]
	servers := parseServers("a b c")
	changes := [][2]string{{"a", "d"}, {"d", "e"}, {"b", "f"}, {"c", "g"}, {"e", "h"}}
	for round := 0; ; round++ {
		if round%3 == 0 && len(changes) > 0 {
			g = g.Replaced(changes[0][0], changes[0][1])
			changes = changes[1:]
		}
		st := nextStep(&g, servers, "b")
		at := slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == st.id })
		switch st.kind {
		case stepAdd:
			servers = append(servers, raft.Server{ID: raft.ServerID(st.id), Suffrage: raft.Nonvoter})
		case stepPromote:
			servers[at].Suffrage = raft.Voter
		case stepRemove:
			servers = slices.Delete(servers, at, at+1)
		case stepRecord:
			g = g.Settled()
		case stepNone:
			if len(changes) == 0 {
				if got := showGroup(&g); got != "1:hfg" || len(servers) != 3 {
					t.Fatalf("ends with %s and %v", got, servers)
				}
				return
			}
		}
		votes := 0
		for _, s := range servers {
			if s.Suffrage == raft.Voter {
				votes++
			}
		}
		if votes < 3 || round > 100 {
			t.Fatalf("round %d: %v", round, servers)
		}
	}
}

// Silence is counted only while somebody listens.
func TestCensus(t *testing.T) {
	var c census
	now := time.Now()
	up := &bookiepb.StatusResponse{}
	round := func(later time.Duration, b *bookiepb.StatusResponse) time.Duration {
		now = now.Add(later)
		c.take(now, map[string]*bookiepb.StatusResponse{"a": up, "b": b}, 3*time.Second)
		return c.silent["b"]
	}
	for i, step := range []struct {
		later time.Duration
		b     *bookiepb.StatusResponse
		want  time.Duration
	}{
		{time.Hour, nil, 0}, // nobody listened before
		{time.Second, nil, time.Second},
		{2 * time.Second, nil, 3 * time.Second},
		{time.Hour, nil, 6 * time.Second}, // this process was stopped
		{time.Second, up, 0},
		{time.Second, nil, time.Second},
	} {
		if got := round(step.later, step.b); got != step.want {
			t.Errorf("round %d: silent for %s, want %s", i, got, step.want)
		}
	}
	if len(c.silent) != 1 {
		t.Errorf("silent: %v", c.silent)
	}
}

// patientElections keeps the leaders where they are on a machine that has other things to do. With one of three away, a single
// late answer of another makes a leader step down.
func patientElections(o *Options) {
	o.Raft.PreferredTimeout, o.Raft.FollowerTimeout, o.Raft.MetadataTimeout = 1500*time.Millisecond, 2500*time.Millisecond, 2*time.Second
}

// record reads a group's record.
func (c *cluster) record(id ledger.GroupID) metadata.GroupInfo {
	c.t.Helper()
	it, _ := c.nodes[c.leader(ledger.MetadataGroup)].meta().fsm.get(metadata.GroupKey(id))
	var info metadata.GroupInfo
	if err := json.Unmarshal(it.Value, &info); err != nil {
		c.t.Fatalf("record of group %d: %v", id, err)
	}
	return info
}

// fill creates a ledger in a group and appends n entries.
func (c *cluster) fill(group ledger.GroupID, id ledger.ID, n int) {
	c.t.Helper()
	c.want(c.execute(group, ledger.Command{Op: ledger.OpCreate, Ledger: id, Epoch: 1}), bookiepb.Code_OK, -1)
	for i := range n {
		c.want(c.execute(group, command(testAppend(id, 1, ledger.EntryID(i), fmt.Sprint(i)))), bookiepb.Code_OK, int64(i))
	}
}

// holds waits until a bookie serves the n entries of a ledger.
func (c *cluster) holds(node string, group ledger.GroupID, id ledger.ID, n int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s serves ledger %d", node, id), func() bool {
		got, _ := c.read(node, &bookiepb.ReadRequest{Group: uint32(group), Ledger: uint64(id), First: 0, Confirmed: int64(n - 1)})
		for i := range got {
			if got[i] != fmt.Sprint(i) {
				c.t.Fatalf("entry %d of ledger %d is %q", i, id, got[i])
			}
		}
		return len(got) == n
	})
}

func (c *cluster) order(id string, mode metadata.BookieMode) {
	c.t.Helper()
	value, err := json.Marshal(mode)
	if err != nil {
		c.t.Fatal(err)
	}
	c.commit(metadata.Txn{}.Then(metadata.Put(metadata.BookieModeKey(id), value)))
}

// A bookie that stays away is replaced: its replicas are on others, with all that they held, while writers go on. When it
// comes back it holds nothing of the groups that it has left, and can be used again. One that is decommissioned loses its
// replicas the same way, though it lives.
func TestReplicasMove(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) {
		patientElections(o)
		o.ReplaceAfter = 2 * time.Second
	})
	c.join("d")
	const n = 20
	for group := ledger.GroupID(1); group <= 3; group++ {
		c.fill(group, ledger.ID(100+group), n)
	}
	gone := c.leader(1)
	c.stop(gone)
	for group := ledger.GroupID(1); group <= 3; group++ {
		c.eventually(fmt.Sprintf("group %d is whole without %s", group, gone), func() bool {
			info := c.record(group)
			return len(info.Former) == 0 && !slices.Contains(info.Replicas, gone) && slices.Contains(info.Replicas, "d")
		})
		c.holds("d", group, ledger.ID(100+group), n)
		c.want(c.execute(group, command(testAppend(ledger.ID(100+group), 1, n, fmt.Sprint(n)))), bookiepb.Code_OK, n)
		if got := c.voters(group); !slices.Equal(got, sorted(c.record(group).Replicas)) {
			t.Errorf("group %d is recorded with %v, and has the voters %v", group, c.record(group).Replicas, got)
		}
	}

	c.start(gone, listen(t, c.nodes[gone].addr))
	c.ready(gone)
	b := c.nodes[gone]
	c.eventually("what has moved away is forgotten", func() bool {
		for group := ledger.GroupID(1); group <= 3; group++ {
			if b.groups.get(group) != nil || keeps(b.journal.Group(uint32(group))) {
				return false
			}
		}
		return true
	})

	leaver := c.leader(2)
	c.order(leaver, metadata.BookieMode{Decommission: true})
	c.eventually(leaver+" has left all groups", func() bool { return len(c.nodes[leaver].groups.all()) == 0 })
	for group := ledger.GroupID(1); group <= 3; group++ {
		info := c.record(group)
		if slices.Contains(info.Members(), leaver) {
			t.Errorf("%s is in group %d still: %v", leaver, group, info)
		}
		for _, id := range info.Replicas {
			c.holds(id, group, ledger.ID(100+group), n+1)
		}
	}
	if !c.nodes[leaver].Status().Leaving {
		t.Error("its status does not tell that it is decommissioned")
	}
}

func (c *cluster) voters(group ledger.GroupID) []string {
	return sorted(c.nodes[c.leader(group)].groups.get(group).voters())
}

func sorted(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}

// A replica that was placed into a group begins with nothing, and never founds the group; founders found it once.
func TestNewcomerDoesNotFoundAGroup(t *testing.T) {
	j := openJournal(t, vfs.NewMem())
	s := testStore(t, j.Group(1), 1)
	if err := bootstrap(s, nil); err != nil {
		t.Fatal(err)
	}
	if last, _ := s.LastIndex(); last != 0 || keeps(j.Group(1)) {
		t.Fatalf("it wrote something: last %d", last)
	}
	if err := s.StoreLogs(testLogs(1, 5, 1)); err != nil {
		t.Fatal(err)
	}
	if err := bootstrap(s, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(1, 5); err != nil {
		t.Fatal(err)
	}
	if err := bootstrap(s, nil); err == nil {
		t.Error("a replica that had entries and lost them began again")
	}
}

// The preferred replica gets the lead back after it was away, and an append that comes meanwhile is not lost.
func TestLeadGoesBack(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) {
		patientElections(o)
		o.LeadAfter = 100 * time.Millisecond
	})
	for group := ledger.GroupID(1); group <= 3; group++ {
		c.fill(group, ledger.ID(100+group), 1)
	}
	first := c.record(1).Replicas[0]
	c.stop(first)
	c.leader(1, first)
	c.start(first, listen(t, c.nodes[first].addr))
	i := int64(0)
	c.eventually("the preferred replica leads again", func() bool {
		i++
		c.want(c.execute(1, command(testAppend(101, 1, ledger.EntryID(i), fmt.Sprint(i)))), bookiepb.Code_OK, i)
		return c.nodes[first].groups.get(1) != nil && c.nodes[first].groups.get(1).isReady()
	})
	c.holds(first, 1, 101, int(i)+1)

	// It gives the lead to another one when it is to take no entries.
	c.order(first, metadata.BookieMode{ReadOnly: true})
	c.leader(1, first)
	c.eventually("it knows of its successor", func() bool { return !c.nodes[first].groups.get(1).leads() })
	i++
	c.want(c.execute(1, command(testAppend(101, 1, ledger.EntryID(i), fmt.Sprint(i)))), bookiepb.Code_OK, i)
}
