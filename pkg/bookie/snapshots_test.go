package bookie

import (
	"fmt"
	"slices"
	"testing"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// write appends entries of about a kilobyte to a ledger of group 1, and returns them.
func (c *cluster) write(id ledger.ID, first ledger.EntryID, n int) []string {
	c.t.Helper()
	var out []string
	for i := range ledger.EntryID(n) {
		p := fmt.Sprintf("ledger %d, entry %d: %01000d", id, first+i, first+i)
		c.want(c.execute(1, command(testAppend(id, 1, first+i, p))), bookiepb.Code_OK, int64(first+i))
		out = append(out, p)
	}
	return out
}

// create makes a ledger in group 1.
func (c *cluster) create(id ledger.ID) {
	c.t.Helper()
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: id, Epoch: 1}), bookiepb.Code_OK, -1)
}

// serves waits until a bookie has all entries of a ledger, which must be those.
func (c *cluster) serves(id string, l ledger.ID, want []string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%s serves ledger %d", id, l), func() bool {
		got, _ := c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: uint64(l), Confirmed: int64(len(want) - 1)})
		if !slices.Equal(got, want[:len(got)]) {
			c.t.Fatalf("%s served wrong entries of ledger %d", id, l)
		}
		return len(got) == len(want)
	})
}

// compact takes snapshots on a bookie until all but the newest few entries of group 1 have left the log.
func (c *cluster) compact(id string) {
	c.t.Helper()
	g := c.nodes[id].groups.get(1)
	for range snapshotKept {
		if err := g.snapshot(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
	if first, last := g.store.group.FirstIndex(), g.store.group.LastIndex(); first != 0 && last-first > 2 {
		c.t.Fatalf("%s: the log is [%d, %d] after two snapshots", id, first, last)
	}
}

// What left the log is read as before: while the bookie runs, after it starts again from its snapshot, and offline.
func TestCompactedEntriesAreServed(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.TrailingLogBytes, o.RecentBytes = -1, 1 })
	c.create(7)
	want := c.write(7, 0, 60)
	c.compact("a")
	want = append(want, c.write(7, 60, 20)...)
	c.serves("a", 7, want)
	state, _ := c.nodes["a"].groups.get(1).fsm.state(7)
	c.stop("a")

	d := c.offline(t, "a")
	all, _, err := d.Ledgers(t.Context())
	if err != nil || len(all) != 1 || all[0].State != state || all[0].Applied.Err != nil {
		t.Errorf("offline: %+v, %v", all, err)
	}
	n := 0
	_, err = d.Dump(t.Context(), DumpRange{Ledger: 7, Last: 1 << 40}, func(e *DumpedEntry) error {
		if e.Err != nil || string(e.Payload) != want[e.Entry] {
			t.Errorf("offline: entry %d: %v", e.Entry, e.Err)
		}
		n++
		return nil
	})
	if r, verr := d.Verify(); err != nil || verr != nil || n != len(want) || !r.Clean || r.GroupSnapshots != snapshotKept {
		t.Errorf("offline: %d entries, %+v, %v, %v", n, r, err, verr)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}

	c.start("a", nil)
	c.ready("a")
	c.serves("a", 7, want)
	g := c.nodes["a"].groups.get(1)
	if got := g.fsm.applies.Load(); got > 30 {
		t.Errorf("%d proposals were replayed, though a snapshot covers most", got)
	}
	c.serves("a", 7, append(want, c.write(7, 80, 5)...))
}

// The log is compacted by itself, when it has grown enough.
func TestSnapshotsAreTakenInTime(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.TrailingLogBytes, o.SnapshotLogBytes = -1, 8<<10 })
	c.create(7)
	g := c.nodes["a"].groups.get(1)
	next := ledger.EntryID(0)
	c.eventually("the log does not begin with its first entry any more", func() bool {
		c.write(7, next, 1)
		next++
		return g.store.group.FirstIndex() > 1
	})
	if next < 10 {
		t.Errorf("%d entries of a kilobyte were enough", next)
	}
}
