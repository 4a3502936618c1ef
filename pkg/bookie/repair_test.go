package bookie

import (
	"path/filepath"
	"strings"
	"testing"

	"geminga/pkg/ledger"
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

// rot spoils the files of a replica's snapshots that end so, at an offset or, when that is negative, in the middle. It
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
		if at < 0 {
			at = size / 2
		}
		if _, err := f.WriteAt([]byte("rotten"), at); err != nil {
			c.t.Fatal(err)
		}
		n++
	}
	return n
}

// A replica whose snapshots are both damaged, or name a layer that cannot be opened, with the log before them compacted,
// begins again with one of its leader.
func TestDamagedSnapshotsAreReplaced(t *testing.T) {
	for suffix, files := range map[string]int{fileSuffix: snapshotKept, layerSuffix: 1} {
		t.Run(suffix, func(t *testing.T) {
			c, victim, want := compacted(t, true)
			if n := c.rot(victim, suffix, -1); n != files {
				t.Fatalf("%d files", n)
			}
			c.start(victim, nil)
			c.serves(victim, 7, append(want, c.write(7, 20, 5)...))
			c.whole(victim)
		})
	}
}

// Damage in a block of a layer shows when somebody looks for an entry there. The reader is told that it is unreadable here,
// and the replica begins again with a snapshot of its leader.
func TestDamagedBlockOfALayerIsReplaced(t *testing.T) {
	c, victim, want := compacted(t, false)
	if n := c.rot(victim, layerSuffix, 2); n != 1 {
		t.Fatalf("%d layers", n)
	}
	_, res := c.read(victim, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 3, Confirmed: 19})
	c.want(res, bookiepb.Code_UNREADABLE, 19)
	c.serves(victim, 7, append(want, c.write(7, 20, 5)...))
	c.whole(victim)
}

// Nobody need look: the scrubber does.
func TestDamagedLayerIsScrubbed(t *testing.T) {
	c, victim, want := compacted(t, false)
	c.rot(victim, layerSuffix, 2)
	b := c.nodes[victim]
	g := b.groups.get(1)
	b.scrubber.round(t.Context())
	if g.health.ok() {
		t.Fatal("the damage was not noticed")
	}
	c.serves(victim, 7, append(want, c.write(7, 20, 5)...))
	c.whole(victim)
}

// Alone, a replica serves on what it can find.
func TestDamagedLayerOfTheOnlyReplica(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.TrailingLogBytes, o.RecentBytes = -1, 1 })
	c.create(7)
	c.write(7, 0, 20)
	c.compact("a")
	more := c.write(7, 20, 5)
	c.rot("a", layerSuffix, 2)
	_, res := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 3, Confirmed: 24})
	c.want(res, bookiepb.Code_UNREADABLE, 24)
	got, res := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 20, Confirmed: 24})
	if c.want(res, bookiepb.Code_OK, 24); len(got) != len(more) {
		t.Errorf("%d entries", len(got))
	}
	c.write(7, ledger.EntryID(25), 1)
}
