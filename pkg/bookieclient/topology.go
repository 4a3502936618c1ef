package bookieclient

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// topology is what the client knows of bookies and groups: from the metadata (watched), from the bookies' own status
// (polled), and from hints in answers. All of it may be stale; a wrong belief costs a retry, never correctness.
type topology struct {
	seeds []string
	fresh time.Duration // how long a status counts

	mu       sync.Mutex
	bookies  map[string]string           // id → address, from metadata
	groups   map[ledger.GroupID][]string // → bookie ids, from metadata: replicas, and those on their way out
	statuses map[string]statusReport     // by address asked
	leaders  map[ledger.GroupID]string   // address
	view     atomic.Pointer[view]
}

// statusReport is the last answer of a bookie.
type statusReport struct {
	at     time.Time
	status *bookiepb.StatusResponse
}

// view is an immutable picture of the topology.
type view struct {
	addresses []string // of all bookies, sorted
	groups    map[ledger.GroupID]groupView
	ids       []ledger.GroupID // of the groups that hold ledgers, sorted
}

// groupView is a group in the picture.
type groupView struct {
	replicas []string  // addresses
	ready    time.Time // when a leader last said that it is ready; zero: never, or gone since
	heard    bool      // some replica has spoken about the group lately
	rate     uint64    // bytes a second that are appended to it, by its leader's word
	refuses  bool      // its leader takes no entries: its disk is nearly full, or those of most replicas are
}

func newTopology(seeds []string, interval time.Duration) *topology {
	t := &topology{
		seeds: slices.Clone(seeds), fresh: 3 * interval,
		bookies: map[string]string{}, groups: map[ledger.GroupID][]string{},
		statuses: map[string]statusReport{}, leaders: map[ledger.GroupID]string{},
	}
	t.rebuildLocked(time.Now())
	return t
}

// current returns the latest picture.
func (t *topology) current() *view { return t.view.Load() }

// setBookie takes a bookie's record; an empty address forgets it.
func (t *topology) setBookie(id, address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if address == "" {
		delete(t.bookies, id)
	} else {
		t.bookies[id] = address
	}
	t.rebuildLocked(time.Now())
}

// setGroup takes a group's record; no replicas forget it.
func (t *topology) setGroup(id ledger.GroupID, replicas []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(replicas) == 0 {
		delete(t.groups, id)
	} else {
		t.groups[id] = replicas
	}
	t.rebuildLocked(time.Now())
}

// setStatuses takes the answers of one round.
func (t *topology) setStatuses(now time.Time, round map[string]*bookiepb.StatusResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for address, status := range round {
		if status != nil {
			t.statuses[address] = statusReport{now, status}
		}
	}
	maps.DeleteFunc(t.statuses, func(_ string, r statusReport) bool { return now.Sub(r.at) > t.fresh })
	terms := map[ledger.GroupID]uint64{}
	for address, report := range t.statuses {
		if report.at != now {
			continue
		}
		for _, g := range allGroups(report.status) {
			id := ledger.GroupID(g.Group)
			if g.Ready && g.Term >= terms[id] {
				terms[id] = g.Term
				t.leaders[id] = cmp.Or(report.status.Address, address)
			}
		}
	}
	t.rebuildLocked(now)
}

// allGroups lists the ledger groups and the metadata group of a status.
func allGroups(s *bookiepb.StatusResponse) []*bookiepb.GroupStatus {
	if s.Metadata == nil {
		return s.Groups
	}
	return append(slices.Clip(s.Groups), s.Metadata)
}

// addressesLocked maps bookie ids to addresses; what is registered in the metadata counts more than what bookies say.
func (t *topology) addressesLocked() map[string]string {
	addresses := map[string]string{}
	for _, r := range t.statuses {
		if r.status.BookieId != "" && r.status.Address != "" {
			addresses[r.status.BookieId] = r.status.Address
		}
	}
	maps.Copy(addresses, t.bookies)
	return addresses
}

func (t *topology) rebuildLocked(now time.Time) {
	addresses := t.addressesLocked()
	members := map[ledger.GroupID]map[string]bool{}
	join := func(group ledger.GroupID, ids []string) {
		if members[group] == nil {
			members[group] = map[string]bool{}
		}
		for _, id := range ids {
			if a := addresses[id]; a != "" {
				members[group][a] = true
			}
		}
	}
	for id, replicas := range t.groups {
		join(id, replicas)
	}
	next := &view{groups: map[ledger.GroupID]groupView{}}
	spoken := map[ledger.GroupID]groupView{}
	for _, r := range t.statuses {
		for _, g := range allGroups(r.status) {
			id := ledger.GroupID(g.Group)
			if t.groups[id] == nil {
				join(id, append(slices.Clip(g.Replicas), r.status.BookieId))
			}
			if now.Sub(r.at) > t.fresh {
				continue
			}
			said := spoken[id]
			said.heard = true
			if g.Ready && r.at.After(said.ready) {
				said.ready, said.rate, said.refuses = r.at, g.AppendRate, r.status.ReadOnly || g.ReadOnly
			}
			spoken[id] = said
		}
	}
	for id, set := range members {
		g := spoken[id]
		g.replicas = slices.Sorted(maps.Keys(set))
		next.groups[id] = g
		if id != ledger.MetadataGroup {
			next.ids = append(next.ids, id)
		}
	}
	slices.Sort(next.ids)
	next.addresses = slices.Compact(slices.Sorted(maps.Values(addresses)))
	t.view.Store(next)
}

// targets lists whom to ask for their status: every known bookie, and the seeds that are none of them as far as known.
func (t *topology) targets() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.view.Load().addresses)
	for _, seed := range t.seeds {
		report, asked := t.statuses[seed]
		if slices.Contains(out, seed) || asked && report.status.Address != seed && slices.Contains(out, report.status.Address) &&
			time.Since(report.at) < t.fresh {
			continue
		}
		out = append(out, seed)
	}
	return out
}

// leader returns the believed leader's address, "" when unknown.
func (t *topology) leader(group ledger.GroupID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaders[group]
}

// setLeader takes a hint.
func (t *topology) setLeader(group ledger.GroupID, address string) {
	if address == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaders[group] = address
}

// notLeader forgets the belief that address leads the group.
func (t *topology) notLeader(group ledger.GroupID, address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leaders[group] == address {
		delete(t.leaders, group)
	}
}

// pick says whom to ask for the leader's service in attempt n: the believed leader, else the replicas in turn.
func (t *topology) pick(group ledger.GroupID, attempt int) string {
	if address := t.leader(group); address != "" {
		return address
	}
	candidates := t.replicas(group)
	return candidates[attempt%len(candidates)]
}

// replicas lists who may hold the group, never nobody.
func (t *topology) replicas(group ledger.GroupID) []string {
	v := t.current()
	if g := v.groups[group]; len(g.replicas) > 0 {
		return g.replicas
	}
	if len(v.addresses) > 0 {
		return v.addresses
	}
	return t.seeds
}

// applyItem takes one item below /bookies/ or /groups/; version 0 is a deletion.
func (t *topology) applyItem(it metadata.Item) error {
	if isBookie(it.Key) {
		return t.applyBookie(it)
	}
	return t.applyGroup(it)
}
