package journal

import "fmt"

// replay rebuilds the groups from segments, in order.
//
// Three things can be wrong with a batch that was synced once, and they cost differently:
//
//	record header good, bytes bad      that entry is a damaged place in its group's log
//	record header bad                  the groups of the batch (its header names them) are suspects
//	batch header bad, or batches gone  the groups that the next batch names are, or all groups
//
// A suspect is cleared by the next head: it tells how many records each group had written by then, and the bounds of
// its log. If the count agrees, the group lost nothing. If not, its whole log becomes holes, because a lost truncation
// may have left old entries in the place of new ones. Holes that later are compacted away did no harm. A group that is
// still a suspect at the end has lost records.
//
// Segments that were recycled are simply not there. Nothing that a log still holds was in them, so the head after the
// gap is believed where it differs.
type replay struct {
	scanner
	groups map[uint32]*Group
	new    func(id uint32) *Group

	prev    uint64 // the segment before
	chained bool   // the current segment follows it without a gap
	batch   uint64 // number of the last batch applied
	before  uint64 // its groups, as bits
	end     int64  // where the last batch ends in its segment
	ended   bool   // the segment has its end mark

	suspects map[uint32]*CorruptError
	unsure   bool // groups not seen yet may have lost records
	list     []found
	damage   int
	first    *CorruptError
	watch    watch
}

// watch is told what replay meets. Recovery listens to nothing; a Reader reports it.
type watch struct {
	batch  func(r *replay, h *batchHeader, off int64) error // it is about to be applied; r.list has its records
	torn   func(segment uint64, off int64)                  // it is cut: damaged, and not proved to have been synced
	damage func(why *CorruptError)
}

// file is a segment as it was found in the directory.
type file struct {
	number uint64
	size   int64
	header segmentHeader
	valid  bool // the header is
}

// bounds say how far a segment's batches must go.
type bounds struct {
	sealed bool   // a later segment exists: every batch was synced
	last   uint64 // number of the last batch, 0 if that is not known
}

// segment applies what is in the scanner's file.
func (r *replay) segment(f *file, b bounds) error {
	r.chained = r.prev == f.number-1
	r.prev = f.number
	off, expected := int64(segmentHeaderLen), f.header.first
	if !f.valid {
		r.suspectAll(r.corrupt(0, "header of the segment"))
		first, _, _, err := r.next(off, 0)
		if err != nil {
			return err
		}
		expected = first.number
	}
	r.end, r.ended = off, false
	for !r.ended {
		next, ok, err := r.step(f, b, off, expected)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		off, expected = next, r.batch+1
	}
	if b.sealed && !r.ended && r.batch != b.last {
		r.suspectAll(r.corrupt(r.end, fmt.Sprintf("batches from %d on are missing", expected)))
	}
	return nil
}

// step applies the batch that is expected at off, or finds the one to go on with. False: the segment ends here.
func (r *replay) step(f *file, b bounds, off int64, expected uint64) (int64, bool, error) {
	h, ok, err := r.scanner.batch(off)
	if err != nil {
		return 0, false, err
	}
	if !ok || h.number != expected {
		return r.skip(f, b, off, expected)
	}
	list, whole, known, err := r.records(&h, off, r.list[:0])
	r.list = list
	if err != nil {
		return 0, false, err
	}
	end := off + padded(batchHeaderLen+int64(h.length))
	if !whole && !b.sealed {
		if later, err := r.proof(f, end, expected+1); err != nil || !later {
			if err == nil && r.watch.torn != nil {
				r.watch.torn(f.number, off)
			}
			return 0, false, err
		}
	}
	if r.watch.batch != nil {
		if err := r.watch.batch(r, &h, off); err != nil {
			return 0, false, err
		}
	}
	r.apply(&h, whole, known, off)
	r.batch, r.before, r.end, r.ended = h.number, h.groups, end, h.flags&flagEnd != 0
	return end, true, nil
}

// proof reports whether a batch from off on shows that those before it were synced.
func (r *replay) proof(f *file, off int64, min uint64) (bool, error) {
	if f.valid && f.header.flags&segmentSynced == 0 {
		return false, nil
	}
	_, _, ok, err := r.next(off, min)
	return ok, err
}

// skip handles a place where a batch should be and is not: the end, a torn write, or damage.
func (r *replay) skip(f *file, b bounds, off int64, expected uint64) (int64, bool, error) {
	h, at, ok, err := r.next(off, expected)
	if err != nil {
		return 0, false, err
	}
	if !b.sealed && f.valid && f.header.flags&segmentSynced == 0 {
		ok = false
	}
	if ok && b.last != 0 && h.number > b.last {
		ok = false
	}
	if !ok {
		return 0, false, nil
	}
	why := r.corrupt(off, fmt.Sprintf("batches %d to %d cannot be read", expected, h.number-1))
	switch {
	case h.number == expected:
	case h.number == expected+1 && (r.chained || expected != f.header.first):
		r.suspectBits(h.before, why)
	default:
		r.suspectAll(why)
	}
	r.batch = h.number - 1
	return at, true, nil
}

func (r *replay) corrupt(off int64, reason string) *CorruptError {
	return &CorruptError{Segment: r.scanner.segment, Offset: off, Reason: reason}
}

func (r *replay) note(why *CorruptError) {
	r.damage++
	if r.first == nil {
		r.first = why
	}
	if r.watch.damage != nil {
		r.watch.damage(why)
	}
}

func (r *replay) suspect(g *Group, why CorruptError) {
	if r.suspects[g.id] == nil {
		why.Group = g.id
		r.suspects[g.id] = &why
	}
}

func (r *replay) suspectAll(why *CorruptError) {
	r.note(why)
	r.unsure = true
	for _, g := range r.groups {
		r.suspect(g, *why)
	}
}

func (r *replay) suspectBits(bits uint64, why *CorruptError) {
	r.note(why)
	for bit := range uint32(64) {
		if bits&groupBit(bit) == 0 {
			continue
		}
		known := false
		for _, g := range r.groups {
			if g.id%64 == bit {
				known = true
				r.suspect(g, *why)
			}
		}
		r.unsure = r.unsure || !known // its only records may be the lost ones
	}
}

func (r *replay) group(id uint32) *Group {
	g := r.groups[id]
	if g == nil {
		g = r.new(id)
		r.groups[id] = g
		if r.unsure {
			r.suspect(g, *r.corrupt(0, "records of unknown groups were lost before"))
		}
	}
	return g
}

// apply takes over a batch. Whole and known are what scanner.records said of it.
func (r *replay) apply(h *batchHeader, whole, known bool, off int64) {
	head := h.flags&flagHead != 0
	if head && r.chained && !whole {
		r.note(r.corrupt(off, "state of the groups"))
		return // it only repeats what the segments before have told
	}
	for i := range r.list {
		r.record(&r.list[i], head)
	}
	switch {
	case head && known:
		r.headDone(h)
	case head:
		r.suspectAll(r.corrupt(off, "state of the groups"))
	case !known:
		r.suspectBits(h.groups, r.corrupt(off, "header of a record"))
	}
}

// headDone clears what a complete head settles: the groups it does not name are blank.
func (r *replay) headDone(h *batchHeader) {
	named := map[uint32]bool{}
	for i := range r.list {
		named[r.list[i].group] = true
	}
	for id, g := range r.groups {
		if !named[id] {
			g.log.clear()
			clear(g.stable)
			g.ops, g.lost = 0, nil
			delete(r.suspects, id)
		}
	}
	r.unsure = h.flags&flagUnsure != 0
}

// record applies one record.
func (r *replay) record(f *found, head bool) {
	g := r.group(f.group)
	if !f.good {
		r.note(&CorruptError{f.group, f.index, r.scanner.segment, f.off, "checksum of the record"})
	}
	switch f.kind {
	case kindState:
		r.state(g, f)
		return
	case kindStable:
		if f.good {
			g.stable[f.key] = f.val
		} else {
			r.suspect(g, *r.corrupt(f.off, "checksum of a stable value"))
		}
		if head {
			return
		}
	case kindEntry:
		p := place{segment: uint32(r.scanner.segment), offset: uint32(f.off), length: uint32(f.size())}
		if !f.good {
			p.length |= damagedBit
		}
		last := g.log.last()
		if !g.log.put(f.index, p) {
			r.suspect(g, *r.corrupt(f.off, fmt.Sprintf("index %d after %d", f.index, last)))
		}
	case kindReset:
		delete(r.suspects, f.group)
		g.ops, g.lost = 0, nil
		g.log.clear()
		clear(g.stable)
		return
	case kindTruncate:
		g.log.truncate(f.index)
	case kindCompact:
		g.log.compact(f.index)
	}
	g.ops++
}

// state applies what a head says about a group.
func (r *replay) state(g *Group, f *found) {
	first, last, ops := f.index, f.term, uint64(f.stamp)
	same := g.ops == ops && g.log.first == first && g.log.last() == last
	trust := same
	if !r.chained {
		trust = r.suspects[g.id] == nil
	}
	if r.chained && !same && r.suspects[g.id] == nil {
		r.note(r.corrupt(f.off, fmt.Sprintf("group %d had %d records, %d are left", g.id, ops, g.ops)))
	}
	enough := g.log.adopt(first, last, trust)
	g.ops, g.lost = ops, nil
	clear(g.stable)
	delete(r.suspects, g.id)
	if f.typ&stateLost != 0 || !enough {
		g.lost = &CorruptError{Group: g.id, Segment: r.scanner.segment, Reason: "records were lost before"}
	}
}

// finish turns what is left of suspicion into damage.
func (r *replay) finish() {
	for id, why := range r.suspects {
		if g := r.groups[id]; g.lost == nil {
			g.lost = why
		}
	}
	for _, g := range r.groups {
		if g.lost != nil {
			continue
		}
		seen := CorruptError{Reason: "records were lost"}
		if r.first != nil {
			seen.Segment, seen.Offset = r.first.Segment, r.first.Offset
		}
		g.findHolesLocked(seen)
	}
}
