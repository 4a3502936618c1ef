package bookie

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// lonely is the only replica of a group, with an index in a layer that both snapshots name. The journal's records are of
// three ledgers each; 8 is fenced and closed before its end, 9 is deleted.
func lonely(t *testing.T) (c *cluster, want map[ledger.ID][]string) {
	c = newCluster(t, 1, func(o *Options) {
		o.TrailingLogBytes, o.RecentBytes, o.Journal.SegmentSize = -1, 1, 64<<10
		o.ReclaimInterval = patience
	})
	want = map[ledger.ID][]string{}
	for id := ledger.ID(7); id <= 9; id++ {
		c.create(id)
	}
	g := c.nodes["a"].groups.get(1)
	for i := range ledger.EntryID(40) {
		var proposal []byte
		for id := ledger.ID(7); id <= 9; id++ {
			want[id] = append(want[id], fmt.Sprintf("ledger %d, entry %d: %01000d", id, i, i))
			proposal = append(proposal, testAppend(id, 1, i, want[id][i])...)
		}
		if i == 20 { // refused: one is of a writer that never owned the ledger, one comes too early
			proposal = append(proposal, testAppend(7, 5, i+1, "not written")...)
			proposal = append(proposal, testAppend(7, 1, i+2, fmt.Sprintf("ledger 7, entry %d: %01000d", i+2, i+2))...)
		}
		if err := g.raft.Apply(proposal, patience).Error(); err != nil {
			t.Fatal(err)
		}
	}
	c.want(c.execute(1, ledger.Command{Op: ledger.OpFence, Ledger: 8, Epoch: 2}), bookiepb.Code_OK, 39)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpClose, Ledger: 8, Epoch: 2, Last: 30}), bookiepb.Code_OK, 30)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpDelete, Ledger: 9}), bookiepb.Code_OK, -1)
	want[8] = want[8][:31]
	delete(want, 9)
	c.compact("a")
	return c, want
}

// The only replica of a group whose index is damaged, wherever, makes it anew from its journal: also from what reclaim has left
// of its records.
func TestIndexIsMadeAnewFromTheJournal(t *testing.T) {
	for _, reclaimed := range []bool{false, true} {
		for name, harm := range map[string]func(*cluster){
			"block":     func(c *cluster) { c.rot("a", layerSuffix, 2) },
			"directory": func(c *cluster) { c.rot("a", layerSuffix, -2) },
			"gone":      func(c *cluster) { c.removeLayers("a") },
			"all": func(c *cluster) {
				c.rot("a", layerSuffix, 2)
				c.rot("a", layerSuffix, -2)
			},
		} {
			t.Run(fmt.Sprintf("%s/reclaimed=%t", name, reclaimed), func(t *testing.T) {
				c, want := lonely(t)
				if reclaimed {
					if err := c.nodes["a"].reclaimOnce(t.Context(), false); err != nil {
						t.Fatal(err)
					}
					if n := c.pruned("a"); n < 10 {
						t.Fatalf("reclaim has left pieces of %d records", n)
					}
				}
				c.stop("a")
				harm(c)
				c.start("a", nil)
				c.ready("a")
				for id := range want {
					if want[id] = append(want[id], "more"); id == 7 {
						c.want(c.execute(1, command(testAppend(7, 1, 40, "more"))), bookiepb.Code_OK, 40)
					} else {
						want[id] = want[id][:31]
					}
					c.serves("a", id, want[id])
				}
				_, res := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 8, First: 31, Confirmed: 31})
				c.want(res, bookiepb.Code_NO_ENTRY, 30)
				c.whole("a")
				if err := c.nodes["a"].Unreadable(); err != nil {
					t.Error(err)
				}
				c.compact("a")
				c.stop("a") // what was made is durable
				c.start("a", nil)
				c.ready("a")
				c.serves("a", 7, want[7])
			})
		}
	}
}

// What the journal does not have is unreadable and never absent, and the bookie says so, also after another start; the rest is
// served, and writing goes on.
func TestIndexThatCannotBeMadeAnew(t *testing.T) {
	c, want := lonely(t)
	c.stop("a")
	c.removeLayers("a")
	damage(t, c.nodes["a"].disk, "ledger 7, entry 5: ")
	for range 2 {
		c.start("a", nil)
		c.ready("a")
		c.eventually("it is known", func() bool { return c.nodes["a"].Unreadable() != nil })
		if err := c.nodes["a"].Unreadable(); !errors.Is(err, ledger.ErrUnreadable) || !strings.Contains(err.Error(), "2 entries cannot be read, and no other replica has them: 7:5-5, 8:5-5") {
			t.Error(err)
		}
		_, res := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 5, Confirmed: int64(len(want[7]) - 1)})
		c.want(res, bookiepb.Code_UNREADABLE, int64(len(want[7])-1))
		got, _ := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 6, Confirmed: int64(len(want[7]) - 1)})
		if len(got) != len(want[7])-6 || got[0] != want[7][6] {
			t.Errorf("%d entries behind it", len(got))
		}
		if got, _ := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 8, First: 6, Confirmed: 30}); len(got) != 25 {
			t.Errorf("%d entries of another ledger", len(got))
		}
		want[7] = append(want[7], c.write(7, ledger.EntryID(len(want[7])), 1)...)
		c.compact("a")
		c.stop("a")
	}
}

// Blocks are found without the directory, up to the first that is damaged; with it, all that are whole.
func TestBlocksAreSalvaged(t *testing.T) {
	tail := map[ledger.ID][]run{}
	for id := range ledger.ID(100) {
		for e := range ledger.EntryID(100) {
			tail[id] = append(tail[id], run{first: 3 * e, count: 3, offset: uint32(e) * 7, length: 100, index: uint64(id)*1000 + uint64(e)})
		}
	}
	var b bytes.Buffer
	w := newLayerWriter(&b)
	always := func(ledger.ID) (ledger.EntryID, bool) { return 1 << 40, true }
	if err := errors.Join(merge([]*cursor{tailCursor(tail)}, always, w.add), w.finish()); err != nil {
		t.Fatal(err)
	}
	all := b.Bytes()
	whole, err := openLayer("", bytes.NewReader(all), int64(len(all)))
	if err != nil || len(whole.dir) < 10 {
		t.Fatal(err, len(whole.dir))
	}
	blocks := all[:whole.dir[len(whole.dir)-1].end]
	got, err := salvageFile(bytes.NewReader(blocks), int64(len(blocks)))
	if err != nil || got.verify() != nil || got.runs != 100*100 {
		t.Errorf("%+v, %v", got, err)
	}
	all[whole.dir[4].end+1] ^= 1 // in the sixth
	got, err = salvageFile(bytes.NewReader(blocks), int64(len(blocks)))
	if err != nil || got.verify() != nil || len(got.dir) != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	some, err := whole.salvaged()
	if err != nil || some.verify() != nil || some.runs <= got.runs || some.runs >= 100*100 {
		t.Errorf("%+v, %v", some, err)
	}
}

// pruned counts the records of which pieces are left.
func (c *cluster) pruned(id string) (n int) {
	c.nodes[id].groups.get(1).store.group.Held(func(h journal.Held) bool {
		if h.Pruned {
			n++
		}
		return true
	})
	return n
}

// removeLayers removes all layers of a bookie that is stopped.
func (c *cluster) removeLayers(id string) {
	c.t.Helper()
	b := c.nodes[id]
	dir := snapshotDir(b.data, 1)
	names, err := b.disk.List(dir)
	for _, name := range names {
		if strings.HasSuffix(name, layerSuffix) {
			err = errors.Join(err, b.disk.Remove(filepath.Join(dir, name)))
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
