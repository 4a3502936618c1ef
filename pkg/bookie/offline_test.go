package bookie

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

func (c *cluster) offline(t *testing.T, id string) *Offline {
	t.Helper()
	b := c.nodes[id]
	d, err := OpenOffline(t.Context(), OfflineOptions{DataDir: b.data, MetadataDir: filepath.Join(c.dir, b.id), FS: b.fs})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What is read offline is what the bookies knew when they stopped, on every replica, and nothing was written for it.
func TestOfflineIsWhatRan(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.Journal.SegmentSize = 64 << 10 })
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	const n = 40
	for i := range n {
		c.want(c.execute(1, command(testAppend(7, 1, ledger.EntryID(2*i), fmt.Sprintf("entry %d", 2*i), fmt.Sprintf("entry %d", 2*i+1)))), bookiepb.Code_OK, int64(2*i+1))
	}
	c.want(c.execute(1, ledger.Command{Op: ledger.OpClose, Ledger: 7, Epoch: 1, Last: 2*n - 2}), bookiepb.Code_OK, 2*n-2)
	want := map[string]ledger.State{}
	for id, b := range c.nodes {
		c.eventually(id+" has applied all", func() bool {
			st, _ := b.groups.get(1).fsm.state(7)
			want[id] = st
			return st.Closed
		})
	}
	c.stopAll()
	for id, b := range c.nodes {
		ops := b.disk.Ops()
		d := c.offline(t, id)
		all, _, err := d.Ledgers(t.Context())
		if err != nil || len(all) != 1 || all[0].ID != 7 || all[0].State != want[id] || all[0].Applied.Err != nil {
			t.Errorf("%s: %+v %v, ran with %+v", id, all, err, want[id])
		}
		next := ledger.EntryID(3)
		_, err = d.Dump(t.Context(), DumpRange{Ledger: 7, First: 3, Last: 1 << 40}, func(e *DumpedEntry) error {
			at, _ := b.disk.Open(filepath.Join(b.data, segmentFile(e.Segment)))
			there := make([]byte, len(e.Payload))
			if _, err := at.ReadAt(there, e.Offset); err != nil || string(there) != string(e.Payload) {
				t.Errorf("%s: %+v, but there is %q, %v", id, e, there, err)
			}
			if e.Entry != next || string(e.Payload) != fmt.Sprintf("entry %d", next) || e.Err != nil {
				t.Errorf("%s: %+v, want entry %d", id, e, next)
			}
			next++
			return at.Close()
		})
		if err != nil || next != 2*n-1 {
			t.Errorf("%s: dumped up to %d: %v", id, next, err)
		}
		if r, err := d.Verify(); err != nil || !r.Clean || r.Entries < 2*n || r.Entries > 2*(n+c.retries) || r.Metadata == 0 {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
		if _, err := d.Dump(t.Context(), DumpRange{Ledger: 8, Last: 1}, nil); !errors.Is(err, ledger.ErrNoLedger) {
			t.Errorf("%s: %v", id, err)
		}
		if err := d.Close(); err != nil || b.disk.Ops() != ops {
			t.Errorf("%s: %v, %d operations changed something", id, err, b.disk.Ops()-ops)
		}
	}
}

// Damage in a block of an index, which no start reads, is found, and so are snapshots that are gone.
func TestOfflineVerifiesSnapshots(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	for i := range 10 {
		c.want(c.execute(1, command(testAppend(7, 1, ledger.EntryID(i), "entry"))), bookiepb.Code_OK, int64(i))
		if i%4 == 3 {
			if err := c.nodes["a"].groups.get(1).snapshotLeaving(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := c.nodes["a"]
	snaps := b.groups.get(1).snapshots
	newest, _ := snaps.newest()
	layers := snaps.info[newest.ID].layers
	c.stopAll()
	verify := func() []Damage {
		t.Helper()
		d := c.offline(t, "a")
		defer func() { _ = d.Close() }() // it was only read
		r, err := d.Verify()
		if err != nil || r.Clean != (len(r.Damage) == 0) {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Damage
	}
	if got := verify(); len(got) != 0 || len(layers) == 0 {
		t.Fatalf("before: %+v", got)
	}
	dir := snapshotDir(b.data, 1)
	f, err := b.disk.Open(filepath.Join(dir, layers[0]))
	if err != nil {
		t.Fatal(err)
	}
	flipByte(t, f, 1, 4)
	if got := verify(); len(got) != 1 || got[0].Group != 1 || filepath.Base(got[0].File) != layers[0] {
		t.Errorf("a block is damaged: %+v", got)
	}
	flipByte(t, f, 1, 4)
	if err := removeSnapshots(b.disk, dir); err != nil {
		t.Fatal(err)
	}
	if got := verify(); len(got) != 1 || got[0].Group != 1 {
		t.Errorf("snapshots are gone: %+v", got)
	}
}

// An entry that was damaged before the journal wrote it is found by its own checksum, and located.
func TestEntryCheckLocates(t *testing.T) {
	good := testAppend(7, 1, 0, "good", "spoilt", "good again")
	spoilt := append([]byte{}, good...)
	second := ledger.AppendHeaderLen + ledger.FramedLen(len("good"))
	spoilt[second+ledger.EntryHeaderLen] ^= 1
	broken := append([]byte{}, good...)
	broken[second] = 0xff // its length
	place := journal.Place{Segment: 3, Offset: 512, Length: 1000}
	for _, tc := range []struct {
		name    string
		data    []byte
		typ     raft.LogType
		entries int
		offset  int64 // of the damage in the data, -1: none
		entry   ledger.EntryID
	}{
		{"whole", append(good, good...), raft.LogCommand, 6, -1, 0},
		{"checksum", append(good[:len(good):len(good)], spoilt...), raft.LogCommand, 6, int64(len(good) + second), 1},
		{"frame", broken, raft.LogCommand, 1, int64(second), 1},
		{"no command", append(good[:len(good):len(good)], "junk"...), raft.LogCommand, 3, int64(len(good)), ledger.NoEntry},
		{"not of ours", []byte("junk"), raft.LogConfiguration, 0, -1, 0},
	} {
		var c entryCheck
		if err := c.visit(5, &journal.Record{Index: 9, Type: uint8(tc.typ), Data: tc.data}, place); err != nil {
			t.Fatal(err)
		}
		if c.entries != tc.entries || len(c.damage) > 0 != (tc.offset >= 0) {
			t.Errorf("%s: %d entries, damage %+v", tc.name, c.entries, c.damage)
			continue
		}
		for _, d := range c.damage {
			entry := ledger.NoEntry
			if d.Entry != nil {
				entry = *d.Entry
			}
			if d.Offset != place.DataOffset()+tc.offset || entry != tc.entry || d.Group != 5 || d.Index != 9 || d.Segment != 3 {
				t.Errorf("%s: %+v", tc.name, d)
			}
		}
	}
}
