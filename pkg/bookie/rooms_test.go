package bookie

import (
	"fmt"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// What a bookie said counts for a while, and how many are full is never counted twice.
func TestRooms(t *testing.T) {
	var r rooms
	now := time.Now()
	for i, step := range []struct {
		peer string
		full bool
		want int64
	}{{"b", false, 0}, {"b", true, 1}, {"b", true, 1}, {"c", true, 2}, {"b", false, 1}, {"b", false, 1}, {"c", false, 0}} {
		if r.heard(step.peer, step.full, now); r.full.Load() != step.want {
			t.Errorf("step %d: %d are full, want %d", i, r.full.Load(), step.want)
		}
	}
	r.heard("b", true, now)
	if said, ok := r.of("b", now.Add(-time.Second)); !ok || !said.full {
		t.Errorf("%+v, fresh %t", said, ok)
	}
	if said, ok := r.of("b", now); ok {
		t.Errorf("%+v is old and counts", said)
	}
	if said, ok := r.of("nobody", time.Time{}); ok {
		t.Errorf("%+v was never heard", said)
	}
}

// setFree makes that many bytes free on a bookie's disk, as far as nobody else writes.
func (b *testBookie) setFree(n int64) {
	b.disk.SetCapacity(1 << 50)
	free, _ := b.disk.FreeSpace(b.data) // is never an error
	b.disk.SetCapacity(1<<50 - int64(free) + n)
}

func (b *testBookie) group(id ledger.GroupID) *bookiepb.GroupStatus {
	return groupStatus(b.Status(), id)
}

// smallMarks are limits that a test reaches, and no reserve that moves them.
func smallMarks(o *Options) {
	o.MinFreeSpace, o.MinFreeSpaceLwm, o.Reserve = 8<<20, 16<<20, -1
	o.ReclaimInterval, o.Journal.SegmentSize = time.Hour, 1<<20
}

// Between the marks a bookie goes on as before, whichever side it came from.
func TestMarksOfFreeSpace(t *testing.T) {
	c := newCluster(t, 1, smallMarks)
	b := c.nodes["a"]
	for i, step := range []struct {
		free int64
		full bool
	}{{32 << 20, false}, {12 << 20, false}, {7 << 20, true}, {12 << 20, true}, {15 << 20, true}, {17 << 20, false}, {12 << 20, false}} {
		b.setFree(step.free)
		if b.checkSpace(); b.intake.full.Load() != step.full {
			t.Errorf("step %d, %d bytes free: full %t", i, step.free, !step.full)
		}
	}
}

// A reserve that was given up comes first when there is room again: taking it does not close the intake a second time.
func TestReserveComesBeforeEntries(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { smallMarks(o); o.Reserve = 10 << 20 })
	b := c.nodes["a"]
	b.setFree(1 << 20)
	b.checkSpace()
	if !b.reserve.release() {
		t.Fatal("there was no reserve")
	}
	b.setFree(17 << 20) // not enough for both
	if b.checkSpace(); !b.intake.full.Load() {
		t.Error("entries are taken out of what is the reserve's")
	}
	b.setFree(27 << 20)
	c.eventually("the reserve is back", func() bool { return b.reserve.missing() == 0 })
	if b.checkSpace(); b.intake.full.Load() {
		t.Error("there is room for both, and no entries are taken")
	}
}

// A leader goes on while most replicas have room, and refuses when what it takes could only go to disks that are nearly
// full. Deletes go on, and so do entries when one of the disks has room again.
func TestRefusesWhenMostDisksAreFull(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { patientElections(o); smallMarks(o) })
	c.fill(1, 7, 1)
	c.fill(1, 8, 1)
	lead := c.leader(1)
	var others []*testBookie
	for id, b := range c.nodes {
		if id != lead {
			others = append(others, b)
		}
	}
	knows := func(full int64) {
		t.Helper()
		c.eventually(fmt.Sprintf("the leader knows of %d full disks", full), func() bool {
			return c.nodes[lead].links.rooms.full.Load() == full
		})
	}
	others[0].setFree(7 << 20)
	knows(1)
	c.want(c.executeAt(lead, 1, command(testAppend(7, 1, 1, "1"))), bookiepb.Code_OK, 1)
	others[1].setFree(7 << 20)
	knows(2)
	c.want(c.executeAt(lead, 1, command(testAppend(7, 1, 2, "2"))), bookiepb.Code_READ_ONLY, -1)
	if b := c.nodes[lead]; !b.group(1).GetReadOnly() || b.Status().GetReadOnly() {
		t.Errorf("status says %v of the group, %t of the bookie", b.group(1), b.Status().GetReadOnly())
	}
	if got := c.executeAt(others[0].id, 1, command(testAppend(7, 1, 2, "2"))); got.GetCode() != bookiepb.Code_NOT_LEADER || got.GetLeader() == "" {
		t.Errorf("a full follower says %v, not who leads", got)
	}
	c.want(c.executeAt(lead, 1, ledger.Command{Op: ledger.OpDelete, Ledger: 8}), bookiepb.Code_OK, -1)
	others[1].setFree(100 << 20)
	knows(1)
	c.want(c.executeAt(lead, 1, command(testAppend(7, 1, 2, "2"))), bookiepb.Code_OK, 2)
	if c.nodes[lead].group(1).GetReadOnly() {
		t.Error("entries are taken, and the status says that they are not")
	}

	// Who is gone has no room either: the full one would be what makes the majority.
	c.stop(others[1].id)
	next := ledger.EntryID(3)
	c.eventually("entries are refused again", func() bool {
		got := c.executeAt(lead, 1, command(testAppend(7, 1, next, "x")))
		if got.GetCode() == bookiepb.Code_OK {
			next++
		}
		return got.GetCode() == bookiepb.Code_READ_ONLY
	})
}

// A full leader gives the lead at once to a replica with room, however long it would wait to give it back to the preferred
// one. When most are full there is nobody to be better off with.
func TestFullLeaderGivesTheLeadAway(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { patientElections(o); smallMarks(o); o.LeadAfter = time.Hour })
	c.fill(1, 7, 1)
	first := c.leader(1)
	c.nodes[first].setFree(7 << 20)
	next := c.leader(1, first)
	c.eventually("the full one knows that it does not lead", func() bool { return !c.nodes[first].groups.get(1).leads() })
	c.want(c.execute(1, command(testAppend(7, 1, 1, "1"))), bookiepb.Code_OK, 1)

	c.nodes[next].setFree(7 << 20)
	c.eventually("the leader is full", c.nodes[next].intake.full.Load)
	if !c.nodes[next].groups.get(1).crowded() {
		t.Error("two of three are full, and the group thinks that the third would do")
	}
}

// Writing goes on by itself when ledgers are deleted on a full disk, long before the next round of reclaim is due, and
// though the journal would keep some of the files for itself.
func TestDeletesMakeRoom(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) {
		smallMarks(o)
		o.SnapshotLogBytes, o.TrailingLogBytes, o.MinFreeSpaceLwm = 1<<20, -1, 10<<20
	})
	b := c.nodes["a"]
	big := string(make([]byte, 1<<20-1000))
	for _, id := range []ledger.ID{7, 8} {
		c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: id, Epoch: 1}), bookiepb.Code_OK, -1)
		for i := range 4 {
			c.want(c.execute(1, command(testAppend(id, 1, ledger.EntryID(i), big))), bookiepb.Code_OK, int64(i))
		}
	}
	b.setFree(7 << 20)
	b.checkSpace()
	c.want(c.execute(1, command(testAppend(7, 1, 4, "x"))), bookiepb.Code_READ_ONLY, -1)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpDelete, Ledger: 8}), bookiepb.Code_OK, -1)
	c.eventually("entries are taken again", func() bool {
		return c.executeAt("a", 1, command(testAppend(7, 1, 4, "x"))).GetCode() == bookiepb.Code_OK
	})
}
