package bookieclient

import (
	"cmp"
	"math/bits"
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

// idleRate is how many bytes a second are as good as none.
const idleRate = 64 << 10

// busy grades how much is appended to a group, by all clients: a grade is twice the one before. What it tells is a few
// seconds old, so among groups of one grade the client counts its own ledgers, and does not heap all new ones on the group
// that was the idlest a moment ago.
func busy(rate uint64) int { return bits.Len64(rate / idleRate) }

// place orders the groups for a new ledger: healthy before doubtful before broken; among equals the one to avoid last;
// then by how busy they are; then the fewest open ledgers of this client; then spread by the ledger's id. A healthy group
// that is to be avoided comes before doubtful ones: avoiding is a wish, service is the point.
func (c *Client) place(id ledger.ID, avoid ledger.GroupID) []ledger.GroupID {
	v := c.topology.current()
	now := time.Now()
	type choice struct {
		group  ledger.GroupID
		health health
		avoid  int
		busy   int
		open   int64
		turn   int
	}
	choices := make([]choice, 0, len(v.ids))
	for i, group := range v.ids {
		ch := choice{group: group, health: doubtful, busy: busy(v.groups[group].rate), turn: (i + int(uint64(id)%uint64(len(v.ids)))) % len(v.ids)}
		g := v.groups[group]
		switch {
		case g.refuses, g.heard && g.ready.IsZero():
			ch.health = broken // its leader takes nothing, or its replicas speak and none leads
		case !g.ready.IsZero():
			ch.health = healthy
		}
		if s := c.streams.get(group); s != nil {
			ch.open = s.open.Load()
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
		return cmp.Or(cmp.Compare(a.health, b.health), a.avoid-b.avoid, a.busy-b.busy, cmp.Compare(a.open, b.open), a.turn-b.turn)
	})
	groups := make([]ledger.GroupID, len(choices))
	for i, ch := range choices {
		groups[i] = ch.group
	}
	return groups
}
