package bookie

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// An entry is damaged on all replicas. It is unreadable, for ever and everywhere, and nobody says that it does not exist or hands
// out other bytes. Status, readiness and a metric of each bookie name it; all else is served, and writing goes on. When its
// ledger is deleted, nothing is lost any more.
func TestEntryIsLostEverywhere(t *testing.T) {
	var mu sync.Mutex
	var readers []metric.Reader
	c := newCluster(t, 3, func(o *Options) {
		o.TrailingLogBytes, o.RecentBytes = -1, 1
		r := metric.NewManualReader()
		o.MeterProvider = metric.NewMeterProvider(metric.WithReader(r))
		mu.Lock()
		defer mu.Unlock()
		readers = append(readers, r)
	})
	ids := []string{"a", "b", "c"}
	c.create(7)
	c.create(8)
	want, other := c.write(7, 0, 20), c.write(8, 0, 3)
	for _, id := range ids {
		c.serves(id, 7, want)
		c.serves(id, 8, other)
		c.compact(id)
	}
	c.stopAll()
	readers = nil
	for _, id := range ids {
		damage(t, c.nodes[id].disk, "ledger 7, entry 5: ")
	}
	for _, id := range ids {
		c.start(id, nil)
	}
	lost := func(id string) (named bool) {
		got, res := c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 5, Confirmed: 19})
		switch res.GetCode() {
		case bookiepb.Code_UNREADABLE, bookiepb.Code_BEHIND, bookiepb.Code_NO_GROUP:
		default:
			t.Fatalf("%s says of the entry: %v", id, res)
		}
		if len(got) > 0 {
			t.Fatalf("%s has read %.30q", id, got[0])
		}
		st := groupStatus(c.nodes[id].Status(), 1)
		return strings.Contains(st.GetUnreadable(), "1 entries cannot be read, and no other replica has them: 7:5-5") && st.GetMissing() == 1
	}
	for _, id := range ids {
		c.eventually(id+" says what is lost", func() bool { return lost(id) })
		if err := c.nodes[id].Unreadable(); !errors.Is(err, ledger.ErrUnreadable) || !strings.Contains(err.Error(), "group 1") {
			t.Errorf("%s: %v", id, err)
		}
		c.ready(id) // it serves
	}
	for _, r := range readers {
		if n := counted(t, r, "geminga.bookie.unreadable.groups"); n != 1 {
			t.Errorf("the metric says %d", n)
		}
	}
	want = append(want, c.write(7, 20, 5)...)
	for _, id := range ids {
		c.serves(id, 8, other)
		c.eventually(id+" serves all else", func() bool {
			lost(id)
			before, _ := c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: 7, Confirmed: 24})
			behind, _ := c.read(id, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 6, Confirmed: 24})
			return slices.Equal(before, want[:5]) && slices.Equal(behind, want[6:])
		})
	}
	c.want(c.execute(1, ledger.Command{Op: ledger.OpDelete, Ledger: 7}), bookiepb.Code_OK, -1)
	for _, id := range ids {
		c.eventually(id+" lacks nothing any more", func() bool { return c.nodes[id].Unreadable() == nil })
	}
}

// The only replica of a group, without any snapshot that can be read, is lost with the group's state: the bookie says so,
// also after another start, takes nothing for the group, and begins no empty one.
func TestGroupIsLost(t *testing.T) {
	c, _ := lonely(t)
	c.stop("a")
	if n := c.rot("a", fileSuffix, -1); n != snapshotKept {
		t.Fatalf("%d snapshots", n)
	}
	for range 2 {
		c.start("a", nil)
		c.eventually("it is known", func() bool { return c.nodes["a"].Unreadable() != nil })
		if err := c.nodes["a"].Unreadable(); !errors.Is(err, ledger.ErrUnreadable) || !strings.Contains(err.Error(), "group 1 cannot be opened: there is no other replica") {
			t.Error(err)
		}
		if n := c.nodes["a"].groups.unreadableGroups(); n != 1 {
			t.Errorf("%d groups", n)
		}
		if _, res := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 0, Confirmed: 39}); res.GetCode() != bookiepb.Code_NO_GROUP {
			t.Errorf("a read says %v", res)
		}
		c.want(c.executeAt("a", 1, ledger.Command{Op: ledger.OpCreate, Ledger: 10, Epoch: 1}), bookiepb.Code_NO_GROUP, -1)
		c.stop("a")
	}
}
