package journal

// place is a Place in 12 bytes: a log of a million entries costs 12 MB.
type place struct {
	segment uint32 // 0: unknown, a hole
	offset  uint32
	length  uint32 // and two bits
}

const (
	damagedBit = 1 << 31 // the record there is known to be damaged
	prunedBit  = 1 << 30 // it has pieces of what was appended
)

func (p place) whole() bool { return p.segment != 0 && p.length&damagedBit == 0 }

func (p place) public() Place {
	return Place{Segment: uint64(p.segment), Offset: int64(p.offset), Length: int32(p.length &^ (damagedBit | prunedBit))}
}

// is reports whether p is the place that callers know as public.
func (p place) is(public Place) bool { return p.segment != 0 && p.public() == public }

// view says where the entries of one group's log are. It is pure: callers see to the locking.
//
//  1. The log is the indexes first … first+len(places)-1, or nothing; first is 0 exactly then.
//  2. A hole, or a damaged place, is an entry that was stored once. It is never taken for absent.
//
// Places do not ascend along the log: entries are moved.
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

// put adds the entry that follows the last, or the first one.
func (v *view) put(index uint64, p place) {
	if len(v.places) == 0 {
		v.first = index
	}
	v.places = append(v.places, p)
}

// set changes the place of an entry that is in the log.
func (v *view) set(index uint64, p place) { v.places[index-v.first] = p }

// maxHoles bounds what a damaged record can make recovery allocate.
const maxHoles = 1 << 24

// extend adds holes up to last.
func (v *view) extend(last uint64) {
	for v.last() < last {
		v.places = append(v.places, place{})
	}
}

// prepend makes the log begin at first, with holes, or with one if it is empty. It reports false if that would be too
// many. The log does not begin before.
func (v *view) prepend(first uint64) bool {
	switch {
	case v.first == 0:
		v.put(first, place{})
	case v.first-first > maxHoles:
		return false
	default:
		v.places = append(make([]place, v.first-first), v.places...)
		v.first = first
	}
	return true
}

// truncate removes index >= from, and returns the places.
//
//	first ├────────────────┤ last
//	            from ┊▒▒▒▒▒▒       removed
func (v *view) truncate(from uint64) []place {
	switch {
	case from > v.last():
		return nil
	case from <= v.first:
		return v.clear()
	}
	gone := v.places[from-v.first:]
	v.places = v.places[:from-v.first]
	return gone
}

// compact removes index <= to, and returns the places.
//
//	first ├────────────────┤ last
//	       ▒▒▒▒▒▒┊ to              removed
func (v *view) compact(to uint64) []place {
	switch {
	case v.first == 0 || to < v.first:
		return nil
	case to >= v.last():
		return v.clear()
	}
	gone := v.places[:to-v.first+1]
	v.places = v.places[to-v.first+1:]
	v.first = to + 1
	return gone
}

func (v *view) clear() []place {
	gone := v.places
	v.first, v.places = 0, nil
	return gone
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
