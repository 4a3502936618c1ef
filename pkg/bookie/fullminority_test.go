package bookie

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// A bookie with a small disk is filled to the last byte by a group that goes on without it. However often it is started
// again, what it has left is enough: neither its leader nor back-fill fill the space that the reserve was. It follows by
// snapshots meanwhile, and when ledgers are deleted it is whole again, by itself.
func TestFullMinorityStartsAgain(t *testing.T) {
	const reserve, entries = 4 << 20, 56
	c := newCluster(t, 3, func(o *Options) {
		patientElections(o)
		smallMarks(o)
		o.Reserve, o.ReclaimInterval = reserve, 200*time.Millisecond
		o.SnapshotLogBytes, o.TrailingLogBytes = 2<<20, 1<<20
	})
	small, _ := c.follower()
	x := c.nodes[small]
	big := strings.Repeat("x", 256<<10)
	last := ledger.ID(9)
	write := func() {
		t.Helper()
		last++
		c.create(last)
		for i := range ledger.EntryID(entries) {
			c.want(c.execute(1, command(testAppend(last, 1, i, big))), bookiepb.Code_OK, int64(i))
		}
	}
	x.setFree(12 << 20)
	for full := 0; full < 3; {
		write()
		c.stop(small)
		c.start(small, nil)
		if !x.reserve.short.Load() {
			continue // what had not been committed for all it knew made way for a snapshot
		}
		full++
		write()
		// So many entries are more than the log that leaders keep: it goes on with a snapshot, and lacks what that names.
		var g *group
		c.eventually("it has followed by a snapshot", func() bool {
			g = x.groups.get(1)
			if g == nil {
				return false
			}
			st, ok := g.fsm.state(last)
			return ok && st.Last >= entries/2
		})
		_, err := g.makeWhole(t.Context())
		if !x.reserve.short.Load() {
			continue // space was given back meanwhile, and the reserve has it again
		}
		if !errors.Is(err, journal.ErrNoSpace) {
			t.Errorf("what is lacking was fetched into the space for the next start: %v", err)
		}
		if !x.Status().GetReadOnly() {
			t.Error("it says that it has room")
		}
	}
	c.stop(small)
	c.start(small, nil)
	for id := ledger.ID(10); id <= last; id++ {
		c.want(c.execute(1, ledger.Command{Op: ledger.OpDelete, Ledger: id}), bookiepb.Code_OK, -1)
	}
	c.fill(1, 99, 3)
	c.holds(small, 1, 99, 3)
	c.whole(small)
	c.eventually("the reserve is back", func() bool { return x.reserve.missing() == 0 })
}

// A full follower cannot store an entry, and so not the deletion behind it, which would give it room. The leader's log is
// short, and grows no more, so it is never cut for its size: it makes way all the same.
func TestIdleLogMakesWayForAFullFollower(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { patientElections(o); smallMarks(o); o.Reserve = 4 << 20 })
	c.fill(1, 7, 1)
	c.fill(1, 8, 1)
	id, _ := c.follower()
	x := c.nodes[id]
	c.holds(id, 1, 8, 1)
	before := x.groups.get(1).store.group.LastIndex()
	x.setFree(7 << 20)
	if !x.reserve.release() {
		t.Fatal("there was no reserve")
	}
	c.want(c.execute(1, command(testAppend(7, 1, 1, "1"))), bookiepb.Code_OK, 1)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpDelete, Ledger: 8}), bookiepb.Code_OK, -1)
	c.eventually("the full follower knows that the ledger is gone", func() bool {
		_, there := x.groups.get(1).fsm.state(8)
		return !there
	})
	if st, _ := x.groups.get(1).fsm.state(7); st.Last != 1 {
		t.Errorf("it knows of entry %d", st.Last)
	}
	if last := x.groups.get(1).store.group.LastIndex(); last > before {
		t.Errorf("its log has got from %d to %d", before, last)
	}
}

// A log makes way when there has been a full follower for a while, but for what has come in that time, and no more than once
// in it.
func TestEasing(t *testing.T) {
	var e easing
	now := time.Now()
	for i, step := range []struct {
		after       time.Duration
		full        bool
		first, last uint64
		newer       uint64
		due         bool
	}{
		{0, false, 1, 10, 0, false},
		{time.Hour, true, 1, 10, 0, false},
		{easeAfter / 2, true, 1, 12, 0, false},
		{easeAfter / 2, true, 1, 14, 4, true},
		{easeAfter / 2, true, 11, 14, 0, false},
		{easeAfter / 2, true, 11, 14, 0, true},
		{easeAfter, true, 0, 14, 0, false},  // it is empty
		{easeAfter, true, 15, 20, 6, false}, // all of it is new
		{easeAfter, false, 15, 20, 0, false},
		{easeAfter, true, 15, 20, 0, false}, // from the beginning
		{easeAfter, true, 15, 18, 0, true},  // its end was cut: it is another leader's now
	} {
		now = now.Add(step.after)
		if newer, due := e.due(now, step.full, step.first, step.last); due != step.due || due && newer != step.newer {
			t.Errorf("step %d: due %t, leaving %d", i, due, newer)
		}
	}
}

// Whom the log was kept for and who has not gone on for a while is given up if it is full; who is being sent a snapshot is not.
func TestLaggingLetsFullFollowersGo(t *testing.T) {
	var l lagging
	now := time.Now()
	l.sending("sending", 5, 10*time.Minute)
	l.sent("full", 3, true)
	l.sent("roomy", 4, true)
	full := []raft.ServerID{"sending", "full", "unknown"}
	if l.letGo(full, now.Add(easeAfter/2)); l.least(9) != 2 {
		t.Error("one was given up too soon")
	}
	if l.letGo(full, now.Add(easeAfter+time.Second)); l.least(9) != 3 {
		t.Errorf("the log is kept to %d, not to where the one with room is", l.least(9))
	}
}
