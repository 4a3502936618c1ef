package ledger

import (
	"fmt"
	"math"
)

// ID names a ledger. Ids are given out by the metadata group, never reused, and grow over the life of a cluster, so
// that positions of one topic are ordered by (ledger, entry).
type ID uint64

// EntryID is the place of an entry in its ledger: 0, 1, 2… without gaps.
type EntryID int64

// NoEntry is the last entry of an empty ledger.
const NoEntry EntryID = -1

// Epoch orders the owners of a ledger. A larger one has fenced all smaller ones.
type Epoch uint64

// GroupID names a Raft group that stores ledgers. 0 is the metadata group and holds none.
type GroupID uint32

// MetadataGroup is the id of the group that replicates the metadata.
const MetadataGroup GroupID = 0

// Ref is all a client needs to reach a ledger.
type Ref struct {
	ID    ID
	Group GroupID
}

// String returns "ledger 12 in group 3".
func (r Ref) String() string { return fmt.Sprintf("ledger %d in group %d", r.ID, r.Group) }

// Position is a place in a topic: an entry of a ledger. Positions are ordered by ledger, then entry.
type Position struct {
	Ledger ID
	Entry  EntryID
}

// Earliest is before, and Latest after, every position that can exist.
var (
	Earliest = Position{0, NoEntry}
	Latest   = Position{math.MaxInt64, math.MaxInt64}
)

// Compare returns -1, 0 or 1.
func (p Position) Compare(q Position) int {
	switch {
	case p.Ledger < q.Ledger:
		return -1
	case p.Ledger > q.Ledger:
		return 1
	case p.Entry < q.Entry:
		return -1
	case p.Entry > q.Entry:
		return 1
	}
	return 0
}

// Less reports p < q.
func (p Position) Less(q Position) bool { return p.Compare(q) < 0 }

// String returns "12:7".
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Ledger, p.Entry) }
