package bookieclient

import (
	"cmp"
	"slices"
	"time"

	"geminga/pkg/ledger"
)

// health orders groups by how likely a new ledger finds service there.
type health uint8

const (
	healthy  health = iota
	doubtful        // nothing known against it, nothing for it
	broken
)

// place orders the groups for a new ledger: healthy before doubtful before broken; among equals the one to avoid last;
// then the fewest open ledgers of this client; then spread by the ledger's id. A healthy group that is to be avoided
// comes before doubtful ones: avoiding is a wish, service is the point.
func (c *Client) place(id ledger.ID, avoid ledger.GroupID) []ledger.GroupID {
	v := c.topology.current()
	now := time.Now()
	type choice struct {
		group  ledger.GroupID
		health health
		avoid  int
		load   int64
		turn   int
	}
	choices := make([]choice, 0, len(v.ids))
	for i, group := range v.ids {
		ch := choice{group: group, health: doubtful, turn: (i + int(uint64(id)%uint64(len(v.ids)))) % len(v.ids)}
		g := v.groups[group]
		switch {
		case !g.ready.IsZero():
			ch.health = healthy
		case g.heard:
			ch.health = broken // its replicas speak, and none leads
		}
		if s := c.streams.get(group); s != nil {
			ch.load = s.open.Load()
			if s.troubled(now, g.ready) {
				ch.health = broken
			}
		}
		if group == avoid {
			ch.avoid = 1
		}
		choices = append(choices, ch)
	}
	slices.SortFunc(choices, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.health, b.health), a.avoid-b.avoid, cmp.Compare(a.load, b.load), a.turn-b.turn)
	})
	groups := make([]ledger.GroupID, len(choices))
	for i, ch := range choices {
		groups[i] = ch.group
	}
	return groups
}
