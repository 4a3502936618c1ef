package bookie

import (
	"path/filepath"
	"testing"
)

// A replica whose snapshots are both damaged, with the log before them compacted, begins again with one of its leader.
func TestDamagedSnapshotsAreReplaced(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.TrailingLogBytes, o.RecentBytes = -1, 1 })
	c.create(7)
	want := c.write(7, 0, 20)
	victim, _ := c.follower()
	c.serves(victim, 7, want)
	c.compact(victim)
	c.stop(victim)
	b := c.nodes[victim]
	dir := snapshotDir(b.data, 1)
	names, err := b.disk.List(dir)
	if err != nil || len(names) != snapshotKept {
		t.Fatal(names, err)
	}
	for _, name := range names {
		f, err := b.disk.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("rotten"), size/2); err != nil {
			t.Fatal(err)
		}
	}
	c.start(victim, nil)
	c.serves(victim, 7, append(want, c.write(7, 20, 5)...))
	c.whole(victim)
}
