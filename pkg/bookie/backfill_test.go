package bookie

import (
	"path/filepath"
	"testing"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// whole waits until a bookie has all entries of group 1.
func (c *cluster) whole(id string) {
	c.t.Helper()
	c.eventually(id+" lacks nothing", func() bool {
		g := c.nodes[id].groups.get(1)
		return g != nil && g.fill.whole.Load() && g.fill.missing.Load() == 0
	})
}

// follower returns a follower of group 1 and the other bookies.
func (c *cluster) follower() (id string, others []string) {
	lead := c.leader(1)
	for other := range c.nodes {
		if other != lead && id == "" {
			id = other
		} else {
			others = append(others, other)
		}
	}
	return id, others
}

// A bookie is away while the others write on and compact their logs. It comes back by a snapshot, and gets the entries
// that it missed from the others: it answers for none of them before it has it, goes on where it ended when it is stopped
// in between, and serves all of them in the end, with nobody else's help.
func TestBackfill(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.TrailingLogBytes, o.RecentBytes = -1, 1 })
	c.create(7)
	want := c.write(7, 0, 20)
	c.create(8)
	c.write(8, 0, 5)
	away, others := c.follower()
	c.serves(away, 7, want)
	c.stop(away)
	want = append(want, c.write(7, 20, 60)...)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpDelete, Ledger: 8}), bookiepb.Code_OK, -1)
	for _, id := range others {
		c.serves(id, 7, want)
		c.compact(id)
	}
	slow := c.change
	c.change = func(o *Options) { slow(o); o.BackfillBytesPerSecond = 1 } // one record, then a long pause
	c.start(away, nil)
	c.eventually(away+" has the snapshot", func() bool {
		g := c.nodes[away].groups.get(1)
		return g != nil && g.fsm.applied.Load() >= 60 && g.fill.missing.Load() > 0
	})
	if got, res := c.read(away, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 75, Confirmed: 79}); len(got) == 0 && res.Code != bookiepb.Code_UNREADABLE && res.Code != bookiepb.Code_BEHIND {
		t.Errorf("an entry that is not here yet: %v", res)
	}
	c.stop(away)
	c.change = slow
	c.start(away, nil)
	c.ready(away)
	c.whole(away)
	c.serves(away, 7, want)
	for _, id := range others {
		c.stop(id)
	}
	c.serves(away, 7, want)
	c.start(others[0], nil)
	c.serves(away, 7, append(want, c.write(7, 80, 3)...))
}

// A record that is damaged on one replica is noticed by who reads it, not served, and fetched from the others, whether it
// is still in the log or has left it.
func TestDamagedRecordIsFetched(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.TrailingLogBytes, o.RecentBytes = -1, 1 })
	c.create(7)
	want := c.write(7, 0, 40)
	victim, _ := c.follower()
	c.serves(victim, 7, want)
	hurt := func(entry ledger.EntryID) {
		t.Helper()
		g := c.nodes[victim].groups.get(1)
		var r run
		c.eventually("the entry is applied again", func() bool {
			at, err := g.fsm.find(7, entry)
			r = at.run
			return err == nil && at.found
		})
		var place journal.Place
		g.store.group.Held(func(h journal.Held) bool {
			place = h.Place
			return h.Index != r.index
		})
		f, err := c.nodes[victim].disk.Open(filepath.Join(c.nodes[victim].data, segmentFile(place.Segment)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("rotten"), place.DataOffset()+int64(r.offset)+20); err != nil {
			t.Fatal(err)
		}
	}
	restart := func() { // forget what is in memory
		c.stop(victim)
		c.start(victim, nil)
		c.ready(victim)
	}
	restart()
	hurt(3)
	hurt(17)
	c.serves(victim, 7, want)
	c.whole(victim)
	c.compact(victim)
	restart()
	hurt(25)
	hurt(26)
	c.serves(victim, 7, want)
	c.whole(victim)
	restart()
	c.serves(victim, 7, want)
	b, dead := c.nodes[victim], 0
	_, err := b.journal.Scrub(t.Context(), journal.ScrubOptions{BytesPerSecond: 1 << 40, Report: func(why *journal.CorruptError) {
		dead++
		d := Damage{Group: ledger.GroupID(why.Group), Index: why.Index, Segment: why.Segment, Offset: why.Offset}
		if b.groups.get(1).needs(d) || (&scrubber{b: b.Bookie}).found(d) {
			t.Errorf("what was replaced is to be repaired again: %v", why)
		}
	}})
	if err != nil || dead == 0 {
		t.Errorf("%d places are damaged on the disk: %v", dead, err)
	}
	c.stop(victim)
	d := c.offline(t, victim)
	r, err := d.Verify()
	if err != nil || !r.Clean || len(r.Damage) < dead || !r.Damage[0].Superseded {
		t.Errorf("offline: %+v, %v", r, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
