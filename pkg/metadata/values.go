package metadata

import (
	"slices"

	"geminga/pkg/ledger"
)

// ClusterInfo is the value of ClusterKey, written once.
type ClusterInfo struct {
	ID string `json:"id"`
}

// BookieInfo is the value of a BookieKey. A bookie writes its own at every start.
type BookieInfo struct {
	ID       string `json:"id"`
	Address  string `json:"address"`            // host:port of its gRPC services
	Instance string `json:"instance,omitempty"` // drawn when its data directory was made
	Rack     string `json:"rack,omitempty"`
}

// BookieMode is the value of a BookieModeKey: what an operator has ordered of a bookie. An absent record orders nothing.
type BookieMode struct {
	// Decommission: its replicas move to other bookies, and it gets no new ones.
	Decommission bool `json:"decommission,omitempty"`
	// ReadOnly: the groups that it leads take no entries. It still stores what other leaders send it.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// GroupInfo is the value of a GroupKey: who holds a ledger group, and who is to hold it. The placement of the metadata
// leader writes Replicas and adds to Former; only the group's leader takes out of Former, when the group's committed Raft
// configuration is Replicas exactly. So whoever is in neither list is surely in no configuration that counts, and may
// forget the group's data.
type GroupInfo struct {
	ID       ledger.GroupID `json:"id"`
	Replicas []string       `json:"replicas"`         // bookie ids; the first is the preferred leader
	Former   []string       `json:"former,omitempty"` // on their way out: may still vote, and hold data that others lack
	// Founders are the members that the group's log began with, once Replicas are others. They are never changed.
	Founders []string `json:"founders,omitempty"`
	// Left are those of the Founders that have been replicas no more at some time: they never found the group again.
	Left []string `json:"left,omitempty"`
}

// Members are all bookies that may hold a replica.
func (g *GroupInfo) Members() []string { return append(slices.Clone(g.Replicas), g.Former...) }

// Founding returns the members of the group's first configuration if the bookie is to write it, should it have nothing of
// the group yet; nil when it gets everything from the group's leader.
func (g *GroupInfo) Founding(bookie string) []string {
	founders := g.Founders
	if len(founders) == 0 {
		founders = g.Replicas
	}
	if !slices.Contains(founders, bookie) || slices.Contains(g.Left, bookie) {
		return nil
	}
	return founders
}

// Replaced returns the record in which another bookie takes the place of one replica.
func (g *GroupInfo) Replaced(out, in string) GroupInfo {
	next := GroupInfo{ID: g.ID, Replicas: slices.Clone(g.Replicas), Former: slices.Clone(g.Former), Founders: g.Founders, Left: g.Left}
	if len(next.Founders) == 0 {
		next.Founders = g.Replicas
	}
	if at := slices.Index(next.Replicas, out); at >= 0 {
		next.Replicas[at] = in
		next.Former = append(next.Former, out)
	}
	return next
}

// Settled returns the record after the group's configuration has become Replicas.
func (g *GroupInfo) Settled() GroupInfo {
	next := GroupInfo{ID: g.ID, Replicas: g.Replicas, Founders: g.Founders, Left: slices.Clone(g.Left)}
	for _, id := range g.Former {
		if slices.Contains(g.Founders, id) && !slices.Contains(next.Left, id) {
			next.Left = append(next.Left, id)
		}
	}
	return next
}

// OwnerInfo is the value of an OwnerKey. Whoever takes the bundle over raises Epoch by compare-and-set.
type OwnerInfo struct {
	Broker      string       `json:"broker"`      // id of the broker, empty when released
	Incarnation string       `json:"incarnation"` // drawn at each start of the broker
	Epoch       ledger.Epoch `json:"epoch"`
	ServiceURL  string       `json:"serviceUrl,omitempty"`
	TLSURL      string       `json:"tlsUrl,omitempty"`
	WebURL      string       `json:"webUrl,omitempty"`
}

// SettingInfo is the value of a SettingKey.
type SettingInfo struct {
	Value string `json:"value"` // as in broker.conf
}
