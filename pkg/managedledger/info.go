package managedledger

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"geminga/pkg/ledger"
)

// Info is the value of a topic's metadata key: the list of its ledgers, in order. Who puts it with a newer epoch owns
// the topic.
//
//	[ closed 50000 ] [ closed 17 ] [ open ]              usual
//	[ closed 50000 ] [ open ] [ open ]                   the successor is ready: it is empty until the one before is full
//
// A ledger that is open in the list may be closed or fenced in its group; the group then knows the last entry. A ledger
// that is closed in the list has exactly Entries entries, whatever its group still holds beyond: the list decides.
type Info struct {
	Epoch      ledger.Epoch      `json:"epoch"`
	Ledgers    []LedgerInfo      `json:"ledgers"`
	Properties map[string]string `json:"properties,omitempty"`
	// Deleting are ledgers that were in the list and that the bookies may still have.
	Deleting []DeletingLedger `json:"deleting,omitempty"`
}

// DeletingLedger is a ledger that nobody needs any more.
type DeletingLedger struct {
	ID    ledger.ID      `json:"id"`
	Group ledger.GroupID `json:"group"`
}

func (d DeletingLedger) ref() ledger.Ref { return ledger.Ref{ID: d.ID, Group: d.Group} }

// LedgerInfo is one ledger of the list. Entries, Bytes and ClosedAt, in Unix milliseconds, count once it is closed; Bytes
// is 0 where nobody knew.
type LedgerInfo struct {
	ID      ledger.ID      `json:"id"`
	Group   ledger.GroupID `json:"group"`
	Entries int64          `json:"entries"`
	Bytes   int64          `json:"bytes"`
	Closed  bool           `json:"closed"`

	ClosedAt int64 `json:"closedAt,omitempty"`
}

func (l *LedgerInfo) ref() ledger.Ref { return ledger.Ref{ID: l.ID, Group: l.Group} }

// DecodeInfo reads the value of a topic's key.
func DecodeInfo(b []byte) (Info, error) {
	var info Info
	if err := json.Unmarshal(b, &info); err != nil {
		return Info{}, fmt.Errorf("%w: ledger list: %w", ErrCorrupt, err)
	}
	for i, l := range info.Ledgers {
		if i > 0 && (l.ID <= info.Ledgers[i-1].ID || l.Closed && !info.Ledgers[i-1].Closed) || l.Entries < 0 {
			return Info{}, fmt.Errorf("%w: ledger list: ledger %d out of place", ErrCorrupt, l.ID)
		}
	}
	return info, nil
}

// Encode is the reverse of DecodeInfo.
func (i *Info) Encode() ([]byte, error) { return json.Marshal(i) }

func (i *Info) clone() Info {
	c := *i
	c.Ledgers = slices.Clone(i.Ledgers)
	c.Deleting = slices.Clone(i.Deleting)
	return c
}

// closeAt closes a ledger after its last entry; an empty one is to be deleted, which the result says.
func (i *Info) closeAt(id ledger.ID, last ledger.EntryID, bytes int64) (empty bool) {
	at := slices.IndexFunc(i.Ledgers, func(l LedgerInfo) bool { return l.ID == id })
	if at < 0 {
		return false
	}
	if last == ledger.NoEntry {
		i.remove(func(l LedgerInfo) bool { return l.ID == id })
		return true
	}
	l := &i.Ledgers[at]
	l.Entries, l.Bytes, l.Closed, l.ClosedAt = int64(last)+1, bytes, true, time.Now().UnixMilli()
	return false
}

// dropOpen removes all open ledgers but keep: they were prepared and are empty.
func (i *Info) dropOpen(keep ledger.ID) {
	i.remove(func(l LedgerInfo) bool { return !l.Closed && l.ID != keep })
}

// trim removes closed ledgers.
func (i *Info) trim(ids []ledger.ID) {
	i.remove(func(l LedgerInfo) bool { return l.Closed && slices.Contains(ids, l.ID) })
}

// remove takes ledgers out of the list; the bookies are to delete them.
func (i *Info) remove(is func(LedgerInfo) bool) {
	i.Ledgers = slices.DeleteFunc(i.Ledgers, func(l LedgerInfo) bool {
		if !is(l) {
			return false
		}
		i.Deleting = append(i.Deleting, DeletingLedger{ID: l.ID, Group: l.Group})
		return true
	})
}

// newest returns the last ledger's id, 0 for an empty list.
func (i *Info) newest() ledger.ID {
	if len(i.Ledgers) == 0 {
		return 0
	}
	return i.Ledgers[len(i.Ledgers)-1].ID
}

// ensure appends an open ledger unless it is there.
func (i *Info) ensure(ref ledger.Ref) {
	for _, l := range i.Ledgers {
		if l.ID == ref.ID {
			return
		}
	}
	i.Ledgers = append(i.Ledgers, LedgerInfo{ID: ref.ID, Group: ref.Group})
}
