package journal

import (
	"cmp"
	"slices"
)

// table is what a group holds: the log, and the records that outlived it. It is pure: callers see to the locking.
//
//		        kept, with gaps            log, without
//		  ··▪▪▪··▪▪▪▪▪▪▪··▪▪▪▪▪▪▪▪▪▪▪▪├────────────────┤
//		                         compact ──▶┊   ┊◀── truncate, for good
//
//	 1. Everything kept lies below the beginning of the log, if there is a log.
//	 2. uses counts, by segment, the places in both, holes aside.
//	 3. What was written before a cut under an index of the cut is in neither: see cuts.
type table struct {
	log   view
	kept  kept
	uses  tally
	cuts  cuts
	doubt position // what was written before and is still held may be out of date, because records were lost; 0: nothing
}

// at returns the place of an index, and whether it is the log's.
func (t *table) at(index uint64) (p place, inLog, ok bool) {
	if p, ok = t.log.at(index); ok {
		return p, true, true
	}
	p, ok = t.kept.at(index)
	return p, false, ok
}

// append adds an entry to the log. Recovery may meet one that does not follow the last: what is beyond it goes, what is
// missing before it becomes holes; it reports whether the entry did follow.
func (t *table) append(index uint64, p place) bool {
	follows := true
	switch next := t.log.last() + 1; {
	case t.log.first == 0:
		t.drop(index)
		t.cuts.add(p.position(), index)
	case index < next:
		t.truncate(index, p.position())
		follows = false
	case index > next:
		t.extend(index - 1)
		follows = false
	}
	t.log.put(index, p)
	t.uses.add(p, 1)
	return follows
}

// extend makes holes up to last, or empties the log if that would be too many.
func (t *table) extend(last uint64) bool {
	if last-t.log.last() > maxHoles {
		t.untally(t.log.clear())
		return false
	}
	t.log.extend(last)
	return true
}

// drop forgets what is kept from index on.
func (t *table) drop(index uint64) {
	t.kept.edit(index, func(_ uint64, p *place) bool {
		t.uses.add(*p, -1)
		return false
	})
}

func (t *table) untally(gone []place) {
	for _, p := range gone {
		t.uses.add(p, -1)
	}
}

// truncate removes index >= from from the log; at is where that was written.
func (t *table) truncate(from uint64, at position) {
	if t.log.first == 0 || from > t.log.last() {
		return
	}
	t.cuts.add(at, max(from, t.log.first))
	t.untally(t.log.truncate(from))
}

// compact keeps index <= to instead of having it in the log. Holes are not kept: where they are is not known.
func (t *table) compact(to uint64) {
	index := t.log.first
	for _, p := range t.log.compact(to) {
		if p.segment != 0 {
			t.kept.set(index, p)
		}
		index++
	}
}

// reset empties the log, and keeps what is held up to keep.
func (t *table) reset(keep uint64, at position) {
	t.compact(keep)
	t.untally(t.log.clear())
	t.drop(keep + 1)
	t.cuts.add(at, keep+1)
}

// forget drops what concerns only segments that are gone: oldest is the oldest there is.
func (t *table) forget(oldest uint64) {
	t.cuts.forget(oldest)
	if t.doubt.segment() < oldest {
		t.doubt = 0
	}
}

// clear forgets everything.
func (t *table) clear() { *t = table{} }

// move gives a record another place, whether the log or kept has it. Recovery may meet one that it does not know, since
// the segment it was moved from is gone: then it is kept.
func (t *table) move(index uint64, p place) {
	if old, ok := t.log.at(index); ok {
		t.uses.add(old, -1)
		t.log.set(index, p)
		t.uses.add(p, 1)
		return
	}
	t.keep(index, p)
}

// keep sets the place of an index that is not in the log.
func (t *table) keep(index uint64, p place) {
	if old, replaced := t.kept.set(index, p); replaced {
		t.uses.add(old, -1)
	}
	t.uses.add(p, 1)
}

// release forgets that an index is kept.
func (t *table) release(index uint64) {
	if old, ok := t.kept.remove(index); ok {
		t.uses.add(old, -1)
	}
}

// adopt makes the log exactly [first, last], as a head says. What is not there becomes holes. It reports false if that
// would be too many.
func (t *table) adopt(first, last uint64) bool {
	if first == 0 {
		t.compact(t.log.last())
		return true
	}
	t.untally(t.log.truncate(last + 1))
	t.compact(first - 1)
	t.drop(first)
	if last < first || !t.log.prepend(first) || !t.extend(last) {
		t.untally(t.log.clear())
		return false
	}
	return true
}

// bury takes away what the cuts say is dead.
func (t *table) bury(c cuts) {
	if len(c) == 0 {
		return
	}
	from := c[0].from
	t.kept.edit(from, func(index uint64, p *place) bool {
		dead := c.dead(index, p.position())
		if dead {
			t.uses.add(*p, -1)
		}
		return !dead
	})
	for i := range t.log.places {
		p := &t.log.places[i]
		if c.dead(t.log.first+uint64(i), p.position()) {
			t.uses.add(*p, -1)
			*p = place{}
		}
	}
}

// distrust marks what was written before a position as damaged: it may be out of date.
func (t *table) distrust(before position) {
	t.doubt = max(t.doubt, before)
	mark := func(_ uint64, p *place) bool {
		if p.segment != 0 && p.position() < before {
			p.length |= damagedBit
		}
		return true
	}
	t.kept.edit(0, mark)
	for i := range t.log.places {
		mark(0, &t.log.places[i])
	}
}

// appendTo appends up to about limit held records from index on; holes of the log are left out.
func (t *table) appendTo(list []held, index uint64, limit int) []held {
	list = t.kept.appendTo(list, index, limit)
	if t.log.first == 0 {
		return list
	}
	for i := max(index, t.log.first); i <= t.log.last() && len(list) < limit; i++ {
		if p, _ := t.log.at(i); p.segment != 0 {
			list = append(list, held{i, p})
		}
	}
	return list
}

// tally counts places by segment, ascending.
type tally []use

type use struct{ segment, n uint32 }

// add counts a place, or takes it off. Appends and moves go to the newest segment.
func (u *tally) add(p place, n int) {
	if p.segment == 0 {
		return
	}
	s := *u
	i := len(s) - 1
	if i < 0 || s[i].segment != p.segment {
		var ok bool
		i, ok = slices.BinarySearchFunc(s, p.segment, func(a use, b uint32) int { return cmp.Compare(a.segment, b) })
		if !ok {
			s = slices.Insert(s, i, use{segment: p.segment})
		}
	}
	s[i].n = uint32(int(s[i].n) + n)
	if s[i].n == 0 {
		s = slices.Delete(s, i, i+1)
	}
	*u = s
}

func (u tally) of(segment uint64) int {
	i, ok := slices.BinarySearchFunc(u, uint32(segment), func(a use, b uint32) int { return cmp.Compare(a.segment, b) })
	if !ok {
		return 0
	}
	return int(u[i].n)
}
