package journal

// place is a Place in 12 bytes: a log of a million entries costs 12 MB.
type place struct {
	segment uint32 // 0: unknown, a hole
	offset  uint32
	length  uint32 // with the top bit set when the record there is known to be damaged
}

const damagedBit = 1 << 31

func (p place) whole() bool { return p.segment != 0 && p.length&damagedBit == 0 }

func (p place) public() Place {
	return Place{Segment: uint64(p.segment), Offset: int64(p.offset), Length: int32(p.length &^ damagedBit)}
}

// view says where the entries of one group's log are. It is pure: callers see to the locking.
//
//  1. The log is the indexes first … first+len(places)-1, or nothing; first is 0 exactly then.
//  2. places[i].segment never falls along the log, holes aside, because entries are written in order.
//  3. A hole, or a damaged place, is an entry that was stored once. It is never taken for absent.
type view struct {
	first  uint64
	places []place
}

func (v *view) last() uint64 {
	if len(v.places) == 0 {
		return 0
	}
	return v.first + uint64(len(v.places)) - 1
}

func (v *view) at(index uint64) (place, bool) {
	if v.first == 0 || index < v.first || index > v.last() {
		return place{}, false
	}
	return v.places[index-v.first], true
}

// put sets the place of an entry. Recovery may meet one that does not follow the last: what is beyond it goes, what is
// missing before it becomes holes; it reports whether the entry did follow.
func (v *view) put(index uint64, p place) bool {
	next := v.last() + 1
	switch {
	case len(v.places) == 0:
		v.first, v.places = index, append(v.places, p)
		return true
	case index == next:
		v.places = append(v.places, p)
		return true
	case index < next:
		v.truncate(index)
	default:
		v.extend(index - 1)
	}
	if len(v.places) == 0 {
		v.first = index
	}
	v.places = append(v.places, p)
	return false
}

// maxHoles bounds what a damaged record can make recovery allocate.
const maxHoles = 1 << 24

// extend adds holes up to last, or starts again behind a gap that cannot be true.
func (v *view) extend(last uint64) {
	if last-v.last() > maxHoles {
		v.clear()
		return
	}
	for v.last() < last {
		v.places = append(v.places, place{})
	}
}

// truncate removes index >= from.
//
//	first ├────────────────┤ last
//	            from ┊▒▒▒▒▒▒       removed
func (v *view) truncate(from uint64) {
	switch {
	case from > v.last():
	case from <= v.first:
		v.clear()
	default:
		v.places = v.places[:from-v.first]
	}
}

// compact removes index <= to.
//
//	first ├────────────────┤ last
//	       ▒▒▒▒▒▒┊ to              removed
func (v *view) compact(to uint64) {
	switch {
	case to < v.first:
	case to >= v.last():
		v.clear()
	default:
		v.places = v.places[to-v.first+1:]
		v.first = to + 1
	}
}

func (v *view) clear() { v.first, v.places = 0, nil }

// adopt makes the log exactly [first, last], as a head says. What is not there becomes holes, and so does everything
// if trust is false. It reports false if that would be too many.
func (v *view) adopt(first, last uint64, trust bool) bool {
	if !trust || first == 0 || v.first > first {
		v.clear()
	}
	if first == 0 {
		return true
	}
	if last < first {
		v.clear()
		return false
	}
	v.truncate(last + 1)
	v.compact(first - 1)
	if last-max(v.last(), first-1) > maxHoles {
		v.clear()
		return false
	}
	if len(v.places) == 0 {
		v.first, v.places = first, append(v.places, place{})
	}
	v.extend(last)
	return true
}

// hole returns the first index that cannot be read.
func (v *view) hole() (uint64, place, bool) {
	for i, p := range v.places {
		if !p.whole() {
			return v.first + uint64(i), p, true
		}
	}
	return 0, place{}, false
}

// uses reports whether an entry lies in the segment.
func (v *view) uses(segment uint64) bool {
	for _, p := range v.places {
		if uint64(p.segment) > segment {
			return false
		}
		if uint64(p.segment) == segment {
			return true
		}
	}
	return false
}
