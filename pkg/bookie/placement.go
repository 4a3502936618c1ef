package bookie

import (
	"cmp"
	"slices"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// host is a bookie as placement sees it.
type host struct {
	id, rack string
	dead     bool // it has been silent for longer than the grace time
	leaving  bool // it is being decommissioned
	full     bool // it takes no entries
	silent   bool // it does not answer just now
	doubtful bool // it has not answered the last time, but may be well: a new leader of the metadata has asked only once
}

// takes says whether the host may get replicas.
func (h *host) takes() bool { return !h.dead && !h.leaving && !h.full && !h.silent && !h.doubtful }

// board is what placement decides from. What it does is pure.
type board struct {
	hosts  []host // sorted by id
	groups []metadata.GroupInfo
	load   map[string]int // replicas of a bookie
	firsts map[string]int // groups that prefer it as their leader
}

func newBoard(hosts []host, groups []metadata.GroupInfo) *board {
	b := &board{hosts: slices.Clone(hosts), groups: slices.Clone(groups), load: map[string]int{}, firsts: map[string]int{}}
	slices.SortFunc(b.hosts, func(x, y host) int { return cmp.Compare(x.id, y.id) })
	slices.SortFunc(b.groups, func(x, y metadata.GroupInfo) int { return cmp.Compare(x.ID, y.ID) })
	for _, g := range groups {
		for i, r := range g.Replicas {
			b.load[r]++
			if i == 0 {
				b.firsts[r]++
			}
		}
	}
	return b
}

func (b *board) host(id string) *host {
	for i := range b.hosts {
		if b.hosts[i].id == id {
			return &b.hosts[i]
		}
	}
	return nil
}

// create says which ledger groups are to be created.
//
// Every bookie is the first replica, and so the preferred leader, of perBookie groups; the others are taken from the
// rest: of racks that the group does not use yet, of those the ones that held the fewest replicas before, else round
// robin. Nothing is created before all members of the metadata group have registered, so that the first groups get all
// their replicas, nor while it is open whether a bookie lives: a group without it may have too few replicas, and one that
// begins with most of its replicas on dead bookies has no leader, ever, who could replace them.
func (b *board) create(members []string, perBookie, factor int) []metadata.GroupInfo {
	if slices.ContainsFunc(b.hosts, func(h host) bool { return h.doubtful && !h.leaving }) {
		return nil
	}
	for _, m := range members {
		if b.host(m) == nil {
			return nil
		}
	}
	next := ledger.GroupID(1)
	for _, g := range b.groups {
		next = max(next, g.ID+1)
	}
	firsts := map[string]int{}
	var out []metadata.GroupInfo
	for range perBookie {
		for i := range b.hosts {
			h := &b.hosts[i]
			if !h.takes() || b.firsts[h.id]+firsts[h.id] >= perBookie {
				continue
			}
			out = append(out, metadata.GroupInfo{ID: next, Replicas: b.fill([]string{h.id}, i, factor)})
			firsts[h.id]++
			next++
		}
	}
	return out
}

// fill adds bookies to the chosen ones until there are factor of them, or no more.
func (b *board) fill(chosen []string, from, factor int) []string {
	for len(chosen) < factor {
		id := b.best(chosen, nil, from)
		if id == "" {
			break
		}
		chosen = append(chosen, id)
	}
	return chosen
}

// best is the bookie that goes best with those chosen: of a rack that few of them are in, with few replicas, and the next
// one in ring order after the from-th. It is empty when nobody is left.
func (b *board) best(chosen, barred []string, from int) string {
	best, rank := "", [2]int{}
	for i := range b.hosts {
		h := &b.hosts[(from+1+i)%len(b.hosts)]
		if !h.takes() || slices.Contains(chosen, h.id) || slices.Contains(barred, h.id) {
			continue
		}
		r := [2]int{b.sharing(h.rack, chosen), b.load[h.id]}
		if best == "" || slices.Compare(r[:], rank[:]) < 0 {
			best, rank = h.id, r
		}
	}
	return best
}

// sharing counts those of a rack. Bookies whose rack is not known share none.
func (b *board) sharing(rack string, ids []string) int {
	n := 0
	for _, id := range ids {
		if h := b.host(id); h != nil && rack != "" && h.rack == rack {
			n++
		}
	}
	return n
}

// move is a change of a group's replicas.
type move struct {
	info    metadata.GroupInfo // as it is to become
	out, in string
}

// replace says which replicas are to move: those of dead bookies, and of ones that are being decommissioned.
//
// Few groups change at a time, one for every two bookies that live, because each change copies a group's data. A group
// changes one replica at a time, but for a bookie that dies before it has got everything: then another takes its place.
// When more than half of the bookies are silent nobody is replaced: that is a network, or a site, and comes back.
func (b *board) replace() []move {
	live, changing := b.live(), 0
	for _, g := range b.groups {
		if len(g.Former) > 0 {
			changing++
		}
	}
	if !b.mostHoldersLive() {
		return nil
	}
	var out []move
	for _, g := range b.groups {
		began := len(g.Former) > 0
		if !began && changing >= max(1, live/2) {
			continue
		}
		if m, ok := b.replaceIn(&g); ok {
			out = append(out, m)
			if !began {
				changing++
			}
		}
	}
	return out
}

func (b *board) live() int {
	n := 0
	for i := range b.hosts {
		if !b.hosts[i].dead {
			n++
		}
	}
	return n
}

// mostHoldersLive says whether replicas may be moved. Bookies that are gone, hold none, and are no members of the metadata
// group that is to change, do not count: they stay registered for good, and when enough have come and gone nobody would be
// replaced any more.
func (b *board) mostHoldersLive(members ...string) bool {
	live, holders := b.live(), 0
	for i := range b.hosts {
		if h := &b.hosts[i]; !h.dead || b.load[h.id] > 0 || slices.Contains(members, h.id) {
			holders++
		}
	}
	return 2*live >= holders
}

// replaceIn moves one replica of a group, if one is to move and somebody can take it.
func (b *board) replaceIn(g *metadata.GroupInfo) (move, bool) {
	out := b.leaver(g)
	if out == "" {
		return move{}, false
	}
	stay := slices.DeleteFunc(slices.Clone(g.Replicas), func(id string) bool { return id == out })
	in := b.best(stay, g.Members(), slices.IndexFunc(b.hosts, func(h host) bool { return h.id == out }))
	if in == "" {
		return move{}, false
	}
	m := move{info: g.Replaced(out, in), out: out, in: in}
	b.load[out]--
	b.load[in]++
	b.lead(&m.info, g.Replicas[0])
	return m, true
}

// leaver is the replica of a group that is to move next: a dead one first.
func (b *board) leaver(g *metadata.GroupInfo) string {
	for _, id := range g.Replicas {
		if h := b.host(id); h != nil && h.dead {
			return id
		}
	}
	if len(g.Former) > 0 {
		return ""
	}
	for _, id := range g.Replicas {
		if h := b.host(id); h != nil && h.leaving {
			return id
		}
	}
	return ""
}

// lead makes the replica that is preferred by the fewest groups the first one, if the first one was replaced.
func (b *board) lead(g *metadata.GroupInfo, was string) {
	if g.Replicas[0] == was {
		return
	}
	first := slices.MinFunc(g.Replicas, func(x, y string) int { return cmp.Compare(b.firsts[x], b.firsts[y]) })
	at := slices.Index(g.Replicas, first)
	g.Replicas[0], g.Replicas[at] = g.Replicas[at], g.Replicas[0]
	b.firsts[was]--
	b.firsts[first]++
}

// stuck lists the groups that a bookie has a replica in and no other bookie could take.
func (b *board) stuck(id string) []ledger.GroupID {
	var out []ledger.GroupID
	for _, g := range b.groups {
		stay := slices.DeleteFunc(slices.Clone(g.Replicas), func(r string) bool { return r == id })
		if len(stay) < len(g.Replicas) && b.best(stay, g.Members(), 0) == "" {
			out = append(out, g.ID)
		}
	}
	return out
}
