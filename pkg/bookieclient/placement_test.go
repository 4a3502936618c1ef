package bookieclient

import (
	"fmt"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// A new ledger goes to a group that serves, and among those to one that is not busy.
func TestPlaceByLoad(t *testing.T) {
	for _, c := range []struct {
		name  string
		rates map[ledger.GroupID]uint64 // of groups with a ready leader
		full  ledger.GroupID            // its leader takes no entries
		tight ledger.GroupID            // its leader could, but most of its replicas could not
		avoid ledger.GroupID
		first ledger.GroupID
		last  ledger.GroupID
	}{
		{"all idle: by the ledger's id", map[ledger.GroupID]uint64{1: 0, 2: 100, 3: idleRate - 1}, 0, 0, 0, 1, 3},
		{"the busy one last", map[ledger.GroupID]uint64{1: 50 << 20, 2: 3 << 20, 3: 0}, 0, 0, 0, 3, 1},
		{"a little more is as good as equal", map[ledger.GroupID]uint64{1: 100 << 20, 2: 90 << 20, 3: 70 << 20}, 0, 0, 0, 1, 3},
		{"one that must wait before one that is to be avoided", map[ledger.GroupID]uint64{1: 0, 2: 1 << 30, 3: 1 << 30}, 0, 0, 1, 2, 1},
		{"one that takes nothing last", map[ledger.GroupID]uint64{1: 0, 2: 1 << 30, 3: 1 << 30}, 1, 0, 0, 2, 1},
		{"one whose replicas have no room last", map[ledger.GroupID]uint64{1: 0, 2: 1 << 30, 3: 1 << 30}, 0, 1, 0, 2, 1},
		{"one without leader last", map[ledger.GroupID]uint64{2: 1 << 30, 3: 1 << 30}, 0, 0, 0, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := &Client{topology: newTopology(nil, time.Second)}
			round := map[string]*bookiepb.StatusResponse{}
			for id := ledger.GroupID(1); id <= 3; id++ {
				address := fmt.Sprint("b", id)
				client.topology.setBookie(address, address)
				client.topology.setGroup(id, []string{"b1", "b2", "b3"})
				rate, ready := c.rates[id]
				round[address] = &bookiepb.StatusResponse{BookieId: address, Address: address, ReadOnly: id == c.full, Groups: []*bookiepb.GroupStatus{
					{Group: uint32(id), Ready: ready, AppendRate: rate, ReadOnly: id == c.tight}, {Group: uint32(id%3 + 1), AppendRate: 1 << 40}, // a follower's word does not count
				}}
			}
			client.topology.setStatuses(time.Now(), round)
			got := client.place(3, c.avoid)
			if len(got) != 3 || got[0] != c.first || got[2] != c.last {
				t.Errorf("%v, want %d first and %d last", got, c.first, c.last)
			}
		})
	}
}
