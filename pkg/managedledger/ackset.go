package managedledger

import (
	"iter"
	"math/bits"
	"slices"
	"sort"

	"geminga/pkg/ledger"
)

// ackSet is the set of entries behind a cursor's mark-delete position that are deleted one by one: a bitmap per ledger,
// from its first to its last deleted entry. A deletion costs a few instructions however many holes there are, where a
// sorted list of ranges moves memory; the price is one bit per entry of the span between the oldest entry that is not
// deleted and the newest that is, so a set is bounded by the entries of the log / 8 bytes.
//
// It knows nothing of the sizes of ledgers. The zero value is empty.
type ackSet struct {
	ledgers []ledgerAcks // ascending, none empty
	n       int64
}

// ledgerAcks: bit i of words[w] is entry base + 64*w + i.
type ledgerAcks struct {
	id    ledger.ID
	base  int64 // multiple of 64
	words []uint64
	n     int64
}

// count returns the number of entries in the set.
func (a *ackSet) count() int64 { return a.n }

func (a *ackSet) clear() { *a = ackSet{} }

// find returns the index of the first ledger that is id or later.
func (a *ackSet) find(id ledger.ID) int {
	return sort.Search(len(a.ledgers), func(i int) bool { return a.ledgers[i].id >= id })
}

func (a *ackSet) get(id ledger.ID) *ledgerAcks {
	if i := a.find(id); i < len(a.ledgers) && a.ledgers[i].id == id {
		return &a.ledgers[i]
	}
	return nil
}

func (a *ackSet) make(id ledger.ID, e ledger.EntryID) *ledgerAcks {
	i := a.find(id)
	if i == len(a.ledgers) || a.ledgers[i].id != id {
		a.ledgers = slices.Insert(a.ledgers, i, ledgerAcks{id: id, base: int64(e) &^ 63})
	}
	return &a.ledgers[i]
}

// has reports whether p is in the set.
func (a *ackSet) has(p ledger.Position) bool {
	l := a.get(p.Ledger)
	return l != nil && l.has(int64(p.Entry))
}

// add reports whether p is new.
func (a *ackSet) add(p ledger.Position) bool {
	l := a.make(p.Ledger, p.Entry)
	w := l.reach(int64(p.Entry))
	bit := uint64(1) << (p.Entry & 63)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	l.n++
	a.n++
	return true
}

// addRange adds first to last, both inclusive.
func (a *ackSet) addRange(id ledger.ID, first, last ledger.EntryID) {
	if last < first {
		return
	}
	l := a.make(id, first)
	l.reach(int64(first))
	l.reach(int64(last))
	for e := int64(first); e <= int64(last); {
		end := min(e|63, int64(last))
		w := &l.words[(e-l.base)>>6]
		mask := maskFrom(e) & maskTo(end)
		added := int64(bits.OnesCount64(mask &^ *w))
		*w |= mask
		l.n += added
		a.n += added
		e = end + 1
	}
}

// removeTo removes everything at p and before it.
func (a *ackSet) removeTo(p ledger.Position) {
	i := a.find(p.Ledger)
	if i < len(a.ledgers) && a.ledgers[i].id == p.Ledger {
		l := &a.ledgers[i]
		was := l.n
		l.removeTo(int64(p.Entry))
		a.n -= was - l.n
		if l.n == 0 {
			i++
		}
	}
	for j := range i {
		a.n -= a.ledgers[j].n
	}
	if i > 0 {
		a.ledgers = slices.Delete(a.ledgers, 0, i)
	}
}

// nextClear returns the first entry from e on that is not in the set.
func (a *ackSet) nextClear(id ledger.ID, e ledger.EntryID) ledger.EntryID {
	l := a.get(id)
	if l == nil || int64(e) < l.base {
		return e
	}
	for i := int64(e); (i-l.base)>>6 < int64(len(l.words)); i = i&^63 + 64 {
		if clear := ^l.words[(i-l.base)>>6] & maskFrom(i); clear != 0 {
			return ledger.EntryID(i&^63 + int64(bits.TrailingZeros64(clear)))
		}
	}
	return max(e, ledger.EntryID(l.end()))
}

// nextSet returns the first entry from e on that is in the set.
func (a *ackSet) nextSet(id ledger.ID, e ledger.EntryID) (ledger.EntryID, bool) {
	l := a.get(id)
	if l == nil {
		return 0, false
	}
	for i := max(int64(e), l.base); (i-l.base)>>6 < int64(len(l.words)); i = i&^63 + 64 {
		if set := l.words[(i-l.base)>>6] & maskFrom(i); set != 0 {
			return ledger.EntryID(i&^63 + int64(bits.TrailingZeros64(set))), true
		}
	}
	return 0, false
}

// ackRange is entries first to last of a ledger.
type ackRange struct {
	ledger      ledger.ID
	first, last ledger.EntryID
}

// ranges goes over the set, ascending, in the longest ranges there are.
func (a *ackSet) ranges() iter.Seq[ackRange] {
	return func(yield func(ackRange) bool) {
		for i := range a.ledgers {
			id := a.ledgers[i].id
			for e := ledger.EntryID(0); ; {
				first, ok := a.nextSet(id, e)
				if !ok {
					break
				}
				e = a.nextClear(id, first)
				if !yield(ackRange{id, first, e - 1}) {
					return
				}
			}
		}
	}
}

func (l *ledgerAcks) end() int64 { return l.base + 64*int64(len(l.words)) }

func (l *ledgerAcks) has(e int64) bool {
	return e >= l.base && e < l.end() && l.words[(e-l.base)>>6]&(1<<(e&63)) != 0
}

// reach returns the word of entry e, made if need be. Growth doubles in both directions, so it costs nothing in the mean.
func (l *ledgerAcks) reach(e int64) *uint64 {
	if e < l.base {
		more := max((l.base-e&^63)>>6, min(int64(len(l.words)), l.base>>6))
		l.words = append(make([]uint64, more, more+int64(len(l.words))), l.words...)
		l.base -= more << 6
	}
	w := int(e-l.base) >> 6
	if n := w + 1 - len(l.words); n > 0 {
		l.words = append(l.words, make([]uint64, n)...)
	}
	return &l.words[w]
}

func (l *ledgerAcks) removeTo(e int64) {
	if e < l.base {
		return
	}
	gone := min((e+1-l.base)>>6, int64(len(l.words))) // whole words
	for _, w := range l.words[:gone] {
		l.n -= int64(bits.OnesCount64(w))
	}
	l.words = l.words[gone:]
	l.base += gone << 6
	if len(l.words) > 0 && e >= l.base {
		cut := l.words[0] & maskTo(e)
		l.n -= int64(bits.OnesCount64(cut))
		l.words[0] &^= cut
	}
}

// maskFrom has the bits of e's word from e on, maskTo those up to e.
func maskFrom(e int64) uint64 { return ^uint64(0) << (e & 63) }
func maskTo(e int64) uint64   { return ^uint64(0) >> (63 - e&63) }
