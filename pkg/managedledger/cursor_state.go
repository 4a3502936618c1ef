package managedledger

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"geminga/pkg/ledger"
)

// cursorInfo is the value of a durable cursor's metadata key. The state is the last record of the ledger, if one is
// named, else the one in here.
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

// A state record, all numbers uvarint:
//
//	version u8 │ ledger │ entry+1 │ ranges n │ n × ( ledgers on from the last one │ first │ length-1 )
//	            mark-delete position                  first counts from the end of the range before, in one ledger
const stateVersion = 1

// appendState encodes a mark-delete position and at most most ranges; it reports whether there were more.
func appendState(b []byte, mark ledger.Position, acks *ackSet, most int) (_ []byte, truncated bool) {
	b = append(b, stateVersion)
	b = binary.AppendUvarint(b, uint64(mark.Ledger))
	b = binary.AppendUvarint(b, uint64(mark.Entry+1))
	n := 0
	for range acks.ranges() {
		if n == most {
			truncated = true
			break
		}
		n++
	}
	b = binary.AppendUvarint(b, uint64(n))
	var id ledger.ID
	var end ledger.EntryID
	for r := range acks.ranges() {
		if n == 0 {
			break
		}
		n--
		if r.ledger != id {
			end = 0
		}
		b = binary.AppendUvarint(b, uint64(r.ledger-id))
		b = binary.AppendUvarint(b, uint64(r.first-end))
		b = binary.AppendUvarint(b, uint64(r.last-r.first))
		id, end = r.ledger, r.last+1
	}
	return b, truncated
}

// decodeState is the reverse. The sizes of the ledgers bound what it takes: ranges beyond them are cut.
func decodeState(b []byte, s snapshot) (mark ledger.Position, acks ackSet, err error) {
	d := stateReader{b: b}
	if v := d.byte(); v != stateVersion {
		return mark, acks, fmt.Errorf("%w: cursor state of version %d", ErrCorrupt, v)
	}
	mark.Ledger = ledger.ID(d.uvarint())
	mark.Entry = ledger.EntryID(d.uvarint()) - 1
	var id ledger.ID
	var end ledger.EntryID
	for n := d.uvarint(); n > 0 && !d.bad; n-- {
		if delta := d.uvarint(); delta > 0 {
			id, end = id+ledger.ID(delta), 0
		}
		first := end + ledger.EntryID(d.uvarint())
		last := first + ledger.EntryID(d.uvarint())
		if d.bad || first < end || last < first {
			d.bad = true
			break
		}
		end = last + 1
		if i := s.find(id); i < len(s.segments) && s.segments[i].ref.ID == id {
			acks.addRange(id, first, min(last, ledger.EntryID(s.size(i)-1)))
		}
	}
	if d.bad || len(d.b) > 0 {
		return mark, ackSet{}, fmt.Errorf("%w: cursor state of %d bytes", ErrCorrupt, len(b))
	}
	return mark, acks, nil
}

// stateReader takes numbers off a state.
type stateReader struct {
	b   []byte
	bad bool
}

func (d *stateReader) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *stateReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > 1<<62 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}
