package bookie

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"geminga/pkg/journal"
	"geminga/rpc/bookiepb"
)

// compacted is a cluster with a follower whose log is in its snapshots, which is stopped if that is asked for.
func compacted(t *testing.T, stop bool) (c *cluster, victim string, want []string) {
	c = newCluster(t, 3, func(o *Options) { o.TrailingLogBytes, o.RecentBytes = -1, 1 })
	c.create(7)
	want = c.write(7, 0, 20)
	victim, _ = c.follower()
	c.serves(victim, 7, want)
	c.compact(victim)
	if stop {
		c.stop(victim)
	}
	return c, victim, want
}

// rot spoils the files of a replica's snapshots that end so, at an offset or in the middle (-1), or near the end (-2). It
// returns their number.
func (c *cluster) rot(id, suffix string, at int64) (n int) {
	c.t.Helper()
	b := c.nodes[id]
	dir := snapshotDir(b.data, 1)
	names, err := b.disk.List(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		f, err := b.disk.Open(filepath.Join(dir, name))
		if err != nil {
			c.t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			c.t.Fatal(err)
		}
		where := at
		switch at {
		case -1:
			where = size / 2
		case -2:
			where = size - 20
		}
		if _, err := f.WriteAt([]byte("rotten"), where); err != nil {
			c.t.Fatal(err)
		}
		n++
	}
	return n
}

// A replica whose snapshots are both damaged, with the log before them compacted, begins again with one of its leader; so
// does one whose index cannot be made anew from its journal.
func TestDamagedSnapshotsAreReplaced(t *testing.T) {
	c, victim, want := compacted(t, true)
	if n := c.rot(victim, fileSuffix, -1); n != snapshotKept {
		t.Fatalf("%d files", n)
	}
	c.start(victim, nil)
	c.serves(victim, 7, append(want, c.write(7, 20, 5)...))
	c.whole(victim)
}

// Damage in a block of a layer shows when somebody looks for an entry there, or when it is scrubbed. The index is made anew
// from the journal, and the replica goes on.
func TestDamagedBlockOfALayerIsMended(t *testing.T) {
	for name, meet := range map[string]func(*cluster, string){
		"read": func(c *cluster, victim string) {
			_, res := c.read(victim, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 3, Confirmed: 19})
			c.want(res, bookiepb.Code_UNREADABLE, 19)
		},
		"scrubbed": func(c *cluster, victim string) { c.nodes[victim].scrubber.round(c.t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			c, victim, want := compacted(t, false)
			if n := c.rot(victim, layerSuffix, 2); n != 1 {
				t.Fatalf("%d layers", n)
			}
			g := c.nodes[victim].groups.get(1)
			meet(c, victim)
			c.serves(victim, 7, append(want, c.write(7, 20, 5)...))
			c.whole(victim)
			if !g.health.ok() {
				t.Errorf("it began again: %v", g.health.err())
			}
		})
	}
}

// A replica whose journal cannot say what it has lost begins with a snapshot of the leader, in a term above that of all
// others. The leader counts it for less than that snapshot, has compacted what would come next, and so offers the same
// snapshot again, in its older term. It has to hear of the newer term by that: nothing is written meanwhile.
func TestReplicaOfALaterTermIsLed(t *testing.T) {
	c, victim, want := compacted(t, true)
	want = append(want, c.write(7, 20, 5)...)
	leader := c.leader(1)
	c.compact(leader)
	other := ""
	for id := range c.nodes {
		if id != victim && id != leader {
			other = id
		}
	}
	b := c.nodes[victim]
	snaps, err := openSnapshotStore(b.disk, snapshotDir(b.data, 1), testLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.nodes[other].links.fetchSnapshot(t.Context(), leader, 1, 0, snaps)
	if err != nil {
		t.Fatal(err)
	}
	c.edit(victim, func(g *journal.Group) {
		if err := errors.Join(g.Reset(got.Index), g.SetStable([]byte(bootstrapKey), []byte{1})); err != nil {
			t.Fatal(err)
		}
		c.setTerm(g, c.nodes[leader].groups.get(1).raft.CurrentTerm()+1)
	})
	c.start(victim, nil)
	c.serves(victim, 7, want)
	c.whole(victim)
	c.eventually("a leader leads the replica", func() bool { return c.nodes[victim].groups.get(1).leader() != "" })
}
