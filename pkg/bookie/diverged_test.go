package bookie

import (
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
)

// edit changes what a stopped bookie has of group 1.
func (c *cluster) edit(id string, change func(g *journal.Group)) {
	c.t.Helper()
	b := c.nodes[id]
	j, err := journal.Open(journal.Options{Dir: filepath.Join(b.data, "journal"), FS: b.disk, SegmentSize: 4 << 20, SyncData: true, WriteDeadline: time.Minute})
	if err != nil {
		c.t.Fatal(err)
	}
	change(j.Group(1))
	if err := j.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// setTerm makes a replica believe that it has heard of a term.
func (c *cluster) setTerm(g *journal.Group, term uint64) {
	c.t.Helper()
	if err := g.SetStable([]byte(termKey), binary.BigEndian.AppendUint64(nil, term)); err != nil {
		c.t.Fatal(err)
	}
}

// A replica comes back with a long tail of entries that nobody else has, and the others have compacted their logs, so that
// it gets a snapshot which its log contradicts. The library alone would send that snapshot for ever. The replica starts
// again without the tail, and the bookie goes on.
func TestDivergedReplicaStartsAgain(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) {
		o.TrailingLogBytes, o.RecentBytes = -1, 1
		patientElections(o)
	})
	c.create(7)
	want := c.write(7, 0, 10)
	away, others := c.follower()
	c.serves(away, 7, want)
	c.stopAll()
	var term uint64
	c.edit(away, func(g *journal.Group) {
		v, err := g.GetStable([]byte(termKey))
		if err != nil {
			t.Fatal(err)
		}
		term = binary.BigEndian.Uint64(v) + 1 // one that it led in, alone
		c.setTerm(g, term)
		for i := range uint64(100) {
			rec := journal.Record{Index: g.LastIndex() + 1, Term: term, Type: uint8(raft.LogCommand), Data: testAppend(7, 1, 10, "never committed")}
			if err := g.Append([]journal.Record{rec}); err != nil {
				t.Fatal(i, err)
			}
		}
	})
	for _, id := range others {
		c.edit(id, func(g *journal.Group) { c.setTerm(g, term+5) })
		c.start(id, nil)
	}
	want = append(want, c.write(7, 10, 20)...)
	for _, id := range others {
		c.serves(id, 7, want)
		c.compact(id)
	}
	c.start(away, nil)
	c.serves(away, 7, want)
	c.whole(away)
	want = append(want, c.write(7, 30, 5)...)
	c.serves(away, 7, want)
	if err := c.nodes[away].health.err(); err != nil {
		t.Errorf("the bookie failed: %v", err)
	}
}
