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
// A suspect is cleared by the next head: it tells how many records each group had written by then, the bounds of its
// log, and its cuts. So of what was lost nothing is left in doubt: truncated records are dead, compacted ones kept, and
// what is missing from the log becomes holes. Holes that later are compacted away did no harm. A group that is still a
// suspect at the end has lost records, and nobody knows which: what was written for it before may be out of date.
//
// Segments that were recycled are simply not there. Nothing that a group holds was in them, so the next head after the
// gap is believed where it differs; what was moved out of them follows. A segment whose head was torn has none: its
// batches, if it has more than the end mark, do not settle what the gap left open.
type replay struct {
	scanner
	groups map[uint32]*Group
	new    func(id uint32) *Group

	prev    uint64 // the present segment, once it was begun
	read    uint64 // the one up to which all was read that concerns what is there: the last before a gap
	chained bool   // nothing is missing between that and the present one
	gap     bool   // something is, and no head has yet told what
	batch   uint64 // number of the last batch applied
	before  uint64 // its groups, as bits
	end     int64  // where the last batch ends in its segment
	ended   bool   // the segment has its end mark

	suspects map[uint32]*suspicion
	unsure   bool // groups not seen yet may have lost records
	list     []found
	sum      summary // of the present segment
	clean    bool    // it was read, and nothing is wrong with it
	damage   int
	first    *CorruptError
	watch    watch
}

// suspicion says that records of a group may have been lost.
type suspicion struct {
	CorruptError
	doubt position // nothing was lost after it
}

const noEntries = int64(-1)

// watch is told what replay meets. Recovery listens to nothing; a Reader reports it.
type watch struct {
	batch  func(r *replay, h *batchHeader, off int64) error // it is about to be applied; r.list has its records
	torn   func(segment uint64, off int64)                  // it is cut: damaged, and not proved to have been synced
	damage func(why *CorruptError)
	sealed func(sum sealed)           // a segment that has no summary could have this one
	scan   func(segment uint64) error // a segment was taken from its summary, its bytes were not looked at
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
	r.follow(f.number)
	off, expected := int64(segmentHeaderLen), f.header.first
	if r.clean = f.valid; r.clean {
		b, err := r.at(0, segmentHeaderLen)
		if err != nil {
			return err
		}
		if r.clean = len(b) == segmentHeaderLen; r.clean { // or the file was cut off in its header
			r.sum.begin(b)
		}
	} else {
		r.suspectAll(r.corrupt(0, "header of the segment"), 0)
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
		r.suspectAll(r.corrupt(r.end, fmt.Sprintf("batches from %d on are missing", expected)), f.size)
	}
	return nil
}

// follow goes on to a segment.
func (r *replay) follow(number uint64) {
	if !r.gap {
		r.read = r.prev
	}
	r.gap = r.gap || r.prev != number-1
	r.chained = !r.gap
	r.prev = number
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
	end := h.end(off)
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
	r.summarise(&h)
	r.apply(&h, whole, known, off)
	r.batch, r.before, r.end, r.ended = h.number, h.groups, end, h.flags&flagEnd != 0
	return end, true, nil
}

// summarise adds the batch at hand to the segment's summary.
func (r *replay) summarise(h *batchHeader) {
	for i := range r.list {
		f := &r.list[i]
		r.sum.record(&f.recordHeader, f.val, []byte(f.key))
	}
	r.sum.batch(h.flags)
}

// summarised applies a segment's summary, which fits, instead of what is in the file.
func (r *replay) summarised(f *file, s *summaryReader) error {
	r.reset(nil, f.number, f.size)
	r.follow(f.number)
	r.clean, r.ended = false, false
	for !r.ended {
		h, off, list, _ := s.next(r.list[:0])
		r.list = list
		r.apply(&h, true, true, off)
		r.batch, r.before, r.end, r.ended = h.number, h.groups, h.end(off), h.flags&flagEnd != 0
	}
	if r.watch.scan != nil {
		return r.watch.scan(f.number)
	}
	return nil
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
	case h.number == expected: // nothing is missing, but a summary could not say where it is
		r.clean = false
	case h.number == expected+1 && (r.chained || expected != f.header.first):
		r.suspectBits(h.before, why, at)
	default:
		r.suspectAll(why, at)
	}
	r.batch = h.number - 1
	return at, true, nil
}

func (r *replay) corrupt(off int64, reason string) *CorruptError {
	return &CorruptError{Segment: r.scanner.segment, Offset: off, Reason: reason}
}

func (r *replay) note(why *CorruptError) {
	r.damage++
	r.clean = false
	if r.first == nil {
		r.first = why
	}
	if r.watch.damage != nil {
		r.watch.damage(why)
	}
}

// suspect says that records of a group may have been lost before the offset in the present segment; noEntries for a
// stable value.
func (r *replay) suspect(g *Group, why CorruptError, before int64) {
	s := r.suspects[g.id]
	if s == nil {
		why.Group = g.id
		s = &suspicion{CorruptError: why}
		r.suspects[g.id] = s
	}
	if before >= 0 {
		s.doubt = positionOf(r.scanner.segment, before)
	}
}

func (r *replay) suspectAll(why *CorruptError, before int64) {
	r.note(why)
	r.unsure = true
	for _, g := range r.groups {
		r.suspect(g, *why, before)
	}
}

func (r *replay) suspectBits(bits uint64, why *CorruptError, before int64) {
	r.note(why)
	for bit := range uint32(64) {
		if bits&groupBit(bit) == 0 {
			continue
		}
		known := false
		for _, g := range r.groups {
			if g.id%64 == bit {
				known = true
				r.suspect(g, *why, before)
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
			r.suspect(g, *r.corrupt(0, "records of unknown groups were lost before"), 0)
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
	r.gap = r.gap && !head // of a damaged one all groups are suspects, or those that it names
	switch {
	case head && known:
		r.headDone(h)
	case head:
		r.suspectAll(r.corrupt(off, "state of the groups"), h.end(off))
	case !known:
		r.suspectBits(h.groups, r.corrupt(off, "header of a record"), h.end(off))
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
			g.table.clear()
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
			r.suspect(g, *r.corrupt(f.off, "checksum of a stable value"), noEntries)
		}
		if head {
			return
		}
	case kindEntry:
		last := g.log.last()
		if !g.table.append(f.index, r.place(f)) {
			r.suspect(g, *r.corrupt(f.off, fmt.Sprintf("index %d after %d", f.index, last)), f.off)
		}
	case kindMove, kindKeep:
		r.copied(g, f)
	case kindReset:
		if s := r.suspects[f.group]; s != nil {
			g.distrust(s.doubt)
			delete(r.suspects, f.group)
		}
		g.applyLocked(f.kind, f.index, r.position(f))
		return
	default:
		g.applyLocked(f.kind, f.index, r.position(f))
	}
	g.ops++
}

func (r *replay) position(f *found) position { return positionOf(r.scanner.segment, f.off) }

// place is where a record is.
func (r *replay) place(f *found) place {
	p := place{segment: uint32(r.scanner.segment), offset: uint32(f.off), length: uint32(f.size())}
	if !f.good {
		p.length |= damagedBit
	}
	if f.kind == kindKeep && f.extra > 0 {
		p.length |= prunedBit
	}
	return p
}

// copied applies what was moved or kept. A damaged one does no harm as long as there is what it replaces. The index may
// tell of records that were lost.
func (r *replay) copied(g *Group, f *found) {
	switch last := g.log.last(); {
	case f.kind == kindKeep && g.log.first != 0 && f.index >= g.log.first:
		r.suspect(g, *r.corrupt(f.off, fmt.Sprintf("index %d is kept and in the log", f.index)), f.off)
		g.compact(f.index)
	case f.kind == kindMove && last != 0 && f.index > last:
		r.suspect(g, *r.corrupt(f.off, fmt.Sprintf("index %d is moved, the log ends at %d", f.index, last)), f.off)
		g.extend(f.index)
	}
	if old, _, ok := g.at(f.index); f.good || !ok || !old.whole() {
		g.move(f.index, r.place(f))
	}
}

// state applies what a head says about a group.
func (r *replay) state(g *Group, f *found) {
	first, last, ops := f.index, f.term, uint64(f.stamp)
	doubt, cuts, ok := decodeState(f.val)
	if !f.good || !ok {
		r.suspect(g, *r.corrupt(f.off, "state of the group"), f.off)
		return
	}
	same := g.ops == ops && g.log.first == first && g.log.last() == last
	suspect := r.suspects[g.id] != nil
	if r.chained && !same && !suspect {
		r.note(r.corrupt(f.off, fmt.Sprintf("group %d had %d records, %d are left", g.id, ops, g.ops)))
	}
	switch {
	case suspect || r.chained && !same:
		g.bury(cuts)
	case !r.chained: // what was cut before the gap has been read
		g.bury(cuts.since(r.read))
	}
	g.cuts = cuts
	if doubt > g.doubt {
		g.distrust(doubt)
	}
	enough := g.adopt(first, last)
	g.ops, g.lost = ops, nil
	clear(g.stable)
	delete(r.suspects, g.id)
	if f.typ&stateLost != 0 || !enough {
		g.lost = &CorruptError{Group: g.id, Segment: r.scanner.segment, Reason: "records were lost before"}
	}
}

// finish turns what is left of suspicion into damage.
func (r *replay) finish() {
	for id, s := range r.suspects {
		g := r.groups[id]
		if g.lost == nil {
			g.lost = &s.CorruptError
		}
		g.distrust(s.doubt)
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
