package metadata

import "geminga/pkg/ledger"

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

// GroupInfo is the value of a GroupKey.
type GroupInfo struct {
	ID       ledger.GroupID `json:"id"`
	Replicas []string       `json:"replicas"` // bookie ids
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
