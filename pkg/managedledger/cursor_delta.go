package managedledger

import (
	"iter"
	"slices"

	"geminga/pkg/ledger"
)

// changes are what has been deleted one by one since the last record was made; the mark-delete position is in every
// record. They are listed in the order in which they came, and sorted when a record is made of them.
type changes struct {
	all   bool // more than is listed: only a whole record will do
	acks  []ledger.Position
	parts []ledger.Position
}

// mostChanges bounds the lists while a record is slow; a whole record will do as well then.
const mostChanges = 1 << 16

func (c *changes) ack(p ledger.Position)  { c.note(&c.acks, p) }
func (c *changes) part(p ledger.Position) { c.note(&c.parts, p) }

func (c *changes) note(list *[]ledger.Position, p ledger.Position) {
	switch {
	case c.all:
	case len(*list) >= mostChanges:
		c.everything()
	default:
		*list = append(*list, p)
	}
}

// everything makes the next record a whole one.
func (c *changes) everything() { *c = changes{all: true} }

// reset forgets what has become a record; the lists keep their memory.
func (c *changes) reset() { *c = changes{acks: c.acks[:0], parts: c.parts[:0]} }

// content is what has changed in d.
func (c *changes) content(d *deletions) content {
	return content{mark: d.mark, ranges: ranges(c.acks, d.mark), parts: changed(c.parts, d)}
}

// ranges joins the entries behind mark to the longest ranges there are. It sorts the list.
func ranges(list []ledger.Position, mark ledger.Position) iter.Seq[ackRange] {
	return func(yield func(ackRange) bool) {
		slices.SortFunc(list, ledger.Position.Compare)
		for i := 0; i < len(list); {
			r := ackRange{list[i].Ledger, list[i].Entry, list[i].Entry}
			for i++; i < len(list) && list[i].Ledger == r.ledger && list[i].Entry <= r.last+1; i++ {
				r.last = list[i].Entry
			}
			if mark.Compare(ledger.Position{Ledger: r.ledger, Entry: r.last}) < 0 && !yield(r) {
				return
			}
		}
	}
}

// changed goes over the batches of a list that are still parts. It sorts the list.
func changed(list []ledger.Position, d *deletions) iter.Seq2[ledger.Position, ackBits] {
	return func(yield func(ledger.Position, ackBits) bool) {
		slices.SortFunc(list, ledger.Position.Compare)
		for i, p := range list {
			if i > 0 && p == list[i-1] {
				continue
			}
			if b := d.parts.get(p); b != nil && !yield(p, b) {
				return
			}
		}
	}
}

// chain is the end of a cursor's ledger, which the next record is to follow.
//
// A delta is written as long as the deltas since the whole record take no more bytes than it does. So all records
// together take at most twice the deltas plus the growth of the state, whatever the number of holes, and recovery reads
// at most twice a state.
type chain struct {
	length uint64 // records from the whole one on; 0: there is none, and the next one must be whole
	sum    uint32 // of the last record
	whole  int    // bytes of the whole record
	deltas int    // bytes of the others
}

// mostRecordBytes is what a record may take: bookies take commands of 7 MiB.
const mostRecordBytes = 6 << 20

// next encodes the record at the entry of a ledger that covers the changes: a delta if it may be one.
func (c *chain) next(ref ledger.Ref, entry ledger.EntryID, d *deletions, new *changes, most bounds) (record []byte, over cut) {
	defer new.reset()
	if c.length > 0 && !new.all {
		l := link{ledger: ref.ID, entry: entry, distance: c.length, parent: c.sum}
		record, sum, over := appendRecord(nil, l, new.content(d), bounds{mostChanges, mostChanges, c.whole})
		if over == (cut{}) && c.deltas+len(record) <= c.whole {
			c.length, c.sum, c.deltas = c.length+1, sum, c.deltas+len(record)
			return record, cut{}
		}
	}
	record, sum, over := appendRecord(nil, link{ledger: ref.ID, entry: entry}, d.content(), most)
	*c = chain{length: 1, sum: sum, whole: len(record)}
	return record, over
}
