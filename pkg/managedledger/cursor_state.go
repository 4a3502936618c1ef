package managedledger

import (
	"encoding/json"
	"fmt"

	"geminga/pkg/ledger"
)

// cursorInfo is the value of a durable cursor's metadata key. The state is in the last records of the ledger, if one is
// named, else the one in here, a whole record.
type cursorInfo struct {
	Epoch  ledger.Epoch   `json:"epoch"`
	Ledger ledger.ID      `json:"ledger,omitempty"`
	Group  ledger.GroupID `json:"group,omitempty"`
	State  []byte         `json:"state,omitempty"`
}

func (i *cursorInfo) ref() ledger.Ref { return ledger.Ref{ID: i.Ledger, Group: i.Group} }

func (i *cursorInfo) encode() ([]byte, error) { return json.Marshal(i) }

func decodeCursorInfo(b []byte) (cursorInfo, error) {
	var info cursorInfo
	if err := json.Unmarshal(b, &info); err != nil {
		return cursorInfo{}, fmt.Errorf("%w: cursor: %w", ErrCorrupt, err)
	}
	return info, nil
}

// deletions are what a cursor has deleted: everything up to mark, the entries of acks, and of the batches in parts some
// messages.
//
// INVARIANT: nothing at mark or before it is in acks or parts, and no entry is in both.
type deletions struct {
	mark  ledger.Position
	acks  ackSet
	parts parts
}

// content is all of it.
func (d *deletions) content() content {
	return content{mark: d.mark, ranges: d.acks.ranges(), parts: d.parts.all()}
}

// tidy restores the invariant after records were applied.
func (d *deletions) tidy() {
	d.acks.removeTo(d.mark)
	for p := range d.parts.sets {
		if p.Compare(d.mark) <= 0 || d.acks.has(p) {
			d.parts.remove(p)
		}
	}
}
