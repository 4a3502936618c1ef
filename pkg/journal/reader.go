package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"geminga/pkg/vfs"
)

// Reader is a journal that no process writes, opened by OpenReader: what recovery would make of it, without the
// recovery. Not one byte of the directory changes. One goroutine uses it at a time.
//
// It shares the code that finds and checks segments, batches and records with Open, so the two agree on what is there
// and what is damaged. It does not do what Open does then: seal the newest segment, trim it, begin another, keep or
// remove spares.
type Reader struct {
	j        *Journal
	segments []SegmentInfo
	damage   []CorruptError
	visit    visitor
	ctx      context.Context // of OpenReader, while it runs
}

// ReadOptions say what to read.
type ReadOptions struct {
	// Dir is the directory of the journal.
	Dir string
	// FS is where Dir is. Default: vfs.Disk. It is used through vfs.ReadOnly.
	FS vfs.FS
	// Visit is called for every intact entry of every group, in the order of the journal, where it was appended and where
	// it was moved to, those included that were truncated or released later. The slices of rec are valid during the
	// call. An error ends OpenReader.
	Visit func(group uint32, rec *Record, p Place) error
	// VisitKept is the same for everything that Keep wrote.
	VisitKept func(group uint32, k *Kept, p Place) error
}

// SegmentState says what a segment's file is good for.
type SegmentState string

// The states of a segment.
const (
	SegmentLive       SegmentState = "live"       // a group holds an entry in it, in its log or kept
	SegmentRecyclable SegmentState = "recyclable" // no group does: Recycle would take it
	SegmentNewest     SegmentState = "newest"     // what was written last
	SegmentUnused     SegmentState = "unused"     // prepared, never begun
	SegmentSpare      SegmentState = "spare"      // a recycled file; Number is its own
)

// SegmentInfo describes one file of a journal.
type SegmentInfo struct {
	Number      uint64
	State       SegmentState
	Size        int64  // of the file
	Used        int64  // bytes from its beginning to the end of its last batch
	Batches     int    // head and end mark included
	FirstBatch  uint64 // number
	Entries     int    // records of entries: appended, moved, kept
	First, Last EntryRef
	LiveEntries int   // entries that a group holds here; what was released counts, that is not on the disk
	LiveBytes   int64 // of their records
	Ended       bool  // by an end mark: it was followed by another segment, or the journal was closed
	TornAt      int64 // offset of a last batch that was cut because it is torn and was never answered; 0: none
}

// EntryRef names an entry. Group 0 and index 0: none.
type EntryRef struct {
	Group uint32
	Index uint64
	Term  uint64
}

// GroupInfo describes the log of one group.
type GroupInfo struct {
	ID          uint32
	First, Last uint64 // 0, 0 when the log is empty
	LastTerm    uint64 // of the last entry; 0 when it cannot be read
	Bytes       int64  // of the records
	Unreadable  int    // entries of the log that are damaged or lost
	Kept        int    // records that outlived the log; what was released counts, that is not on the disk
	KeptBytes   int64  // of these records
	KeptDamaged int    // of them, how many cannot be read
	Damage      error  // what would stop the group: a *CorruptError, or nil
}

// OpenReader locks the directory against a process that writes it, and reads every byte of the journal once. The error
// is about what could not be read at all; damage is what Damage returns.
func OpenReader(ctx context.Context, o ReadOptions) (*Reader, error) {
	jo := Options{Dir: o.Dir, FS: o.FS}
	jo.EnsureDefaults()
	jo.FS = vfs.NewReadOnly(jo.FS)
	m, err := newMetrics(jo.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("journal: instruments: %w", err)
	}
	r := &Reader{visit: visitor{o.Visit, o.VisitKept}, ctx: ctx, j: &Journal{
		opts: jo, metrics: m, segs: newSegments(&jo), tail: newTail(0),
		fate: fate{groups: map[uint32]*Group{}},
	}}
	if err := r.read(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.visit, r.ctx = visitor{}, nil
	return r, nil
}

// Close lets go of the directory.
func (r *Reader) Close() error { return errors.Join(r.j.segs.closeAll(), r.j.unlock()) }

func (r *Reader) read() (err error) {
	j := r.j
	if j.lock, err = j.opts.FS.Lock(filepath.Join(j.opts.Dir, lockName)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	files, spares, err := j.survey()
	if err != nil {
		return err
	}
	used, err := j.used(files)
	var why *CorruptError
	if errors.As(err, &why) { // Open would refuse; what the segment holds is nevertheless looked at
		r.damage, used, err = append(r.damage, *why), len(files), nil
	}
	if err != nil {
		return err
	}
	if err := j.identify(files[:used]); err != nil {
		return err
	}
	for i, f := range files {
		s := SegmentInfo{Number: f.number, State: SegmentRecyclable, Size: f.size}
		if i >= used {
			s.State = SegmentUnused
		}
		r.segments = append(r.segments, s)
	}
	err = j.replay(files[:used], watch{
		batch: func(p *replay, h *batchHeader, off int64) error { return r.batch(&p.scanner, p.list, h, off) },
		torn:  r.torn, damage: r.damaged, scan: r.scan,
	})
	if err != nil {
		return err
	}
	r.mark()
	r.assess(used)
	return r.addSpares(spares)
}

// segment returns what is known of a segment: there are few, and the newest is asked for.
func (r *Reader) segment(number uint64) *SegmentInfo {
	for i := len(r.segments) - 1; i >= 0; i-- {
		if r.segments[i].Number == number {
			return &r.segments[i]
		}
	}
	return nil
}

func (r *Reader) damaged(why *CorruptError) { r.damage = append(r.damage, *why) }

// mark makes damage that only the bytes show, beside an intact summary, the groups' own.
func (r *Reader) mark() {
	for i := range r.damage {
		why := &r.damage[i]
		g := r.j.groups[why.Group]
		if g == nil {
			continue
		}
		p, inLog, ok := g.at(why.Index)
		if !ok || !p.whole() || p.position() != positionOf(why.Segment, why.Offset) {
			continue
		}
		p.length |= damagedBit
		if !inLog {
			g.kept.set(why.Index, p)
			continue
		}
		g.log.set(why.Index, p)
		if g.lost == nil {
			g.findHolesLocked(*why)
		}
	}
}

// scan looks at the bytes of a segment that recovery takes from its summary.
func (r *Reader) scan(segment uint64) error {
	s := &scrub{j: r.j, opts: ScrubOptions{Report: r.damaged}, pace: pace{ctx: r.ctx, metrics: r.j.metrics}}
	s.each = func(h *batchHeader, off int64) error { return r.batch(&s.scanner, s.list, h, off) }
	return s.segment(segment)
}

func (r *Reader) torn(segment uint64, off int64) { r.segment(segment).TornAt = off }

// batch takes note of a batch, and shows its entries to the visitor.
func (r *Reader) batch(sc *scanner, list []found, h *batchHeader, off int64) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	s := r.segment(sc.segment)
	if s.Batches == 0 {
		s.FirstBatch = h.number
	}
	s.Batches++
	s.Used = h.end(off)
	s.Ended = h.flags&flagEnd != 0
	for i := range list {
		f := &list[i]
		if !isEntry(f.kind) {
			continue
		}
		s.Entries++
		s.Last = EntryRef{Group: f.group, Index: f.index, Term: f.term}
		if s.Entries == 1 {
			s.First = s.Last
		}
		if err := sc.show(f, &r.visit); err != nil {
			return err
		}
	}
	return nil
}

// assess counts what the groups still hold in each segment.
func (r *Reader) assess(used int) {
	bySegment := map[uint32]*SegmentInfo{}
	for i := range r.segments[:used] {
		bySegment[uint32(r.segments[i].Number)] = &r.segments[i]
	}
	for _, g := range r.j.groups {
		g.Held(func(h Held) bool {
			if s := bySegment[uint32(h.Place.Segment)]; s != nil {
				s.State = SegmentLive
				s.LiveEntries++
				s.LiveBytes += int64(h.Place.Length)
			}
			return true
		})
	}
	if used > 0 {
		r.segments[used-1].State = SegmentNewest
	}
}

func (r *Reader) addSpares(names []string) error {
	for _, name := range names {
		number, _ := parseName(name, spareSuffix)
		f, err := r.j.opts.FS.Open(filepath.Join(r.j.opts.Dir, name))
		if err != nil {
			return fmt.Errorf("journal: spare %d: %w", number, err)
		}
		size, err := f.Size()
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("journal: spare %d: %w", number, err)
		}
		r.segments = append(r.segments, SegmentInfo{Number: number, State: SegmentSpare, Size: size})
	}
	return nil
}

// Segments returns the segments, oldest first, then the spares.
func (r *Reader) Segments() []SegmentInfo { return r.segments }

// Damage returns every damaged place in the order in which they were met, those included that do no harm because
// nothing needs what was there.
func (r *Reader) Damage() []CorruptError { return r.damage }

// Groups returns what is known of each group, ascending by id.
func (r *Reader) Groups() []GroupInfo {
	var infos []GroupInfo
	for _, id := range r.j.Groups() {
		g := r.j.Group(id)
		info := GroupInfo{ID: id, First: g.FirstIndex(), Last: g.LastIndex(), Damage: g.Damaged()}
		for _, p := range g.log.places {
			if !p.whole() {
				info.Unreadable++
			}
			info.Bytes += int64(p.public().Length)
		}
		g.kept.edit(0, func(_ uint64, p *place) bool {
			info.Kept++
			info.KeptBytes += int64(p.public().Length)
			if !p.whole() {
				info.KeptDamaged++
			}
			return true
		})
		var last Record
		if info.Last > 0 && r.Get(id, info.Last, &last) == nil {
			info.LastTerm = last.Term
		}
		infos = append(infos, info)
	}
	return infos
}

// Get reads a record into rec, whose slices are fresh memory. Other than Group.Get it also reads what is intact in the
// log of a damaged group; whether that is all that once was there, GroupInfo.Damage says.
func (r *Reader) Get(group uint32, index uint64, rec *Record) error {
	g := r.j.Group(group)
	p, ok := g.log.at(index)
	if !ok {
		return ErrNotFound
	}
	if !p.whole() {
		why := CorruptError{Group: group, Index: index, Segment: uint64(p.segment), Offset: int64(p.offset), Reason: "lost"}
		if p.segment != 0 {
			why.Reason = "checksum of the record"
		}
		return &why
	}
	return g.load(index, p.public(), rec)
}

// Place returns where a record is, in the log or kept, damaged or not; false when that is not known.
func (r *Reader) Place(group uint32, index uint64) (Place, bool) {
	p, _, ok := r.j.Group(group).at(index)
	return p.public(), ok && p.segment != 0
}

// ReadPiece is Group.ReadPiece.
func (r *Reader) ReadPiece(group uint32, index uint64, p Piece, buf []byte) ([]byte, error) {
	return r.j.Group(group).ReadPiece(index, p, buf)
}

// Held is Group.Held.
func (r *Reader) Held(group uint32, visit func(Held) bool) { r.j.Group(group).Held(visit) }

// GetStable returns a copy of the stable value of a key, ErrNotFound if it was never set.
func (r *Reader) GetStable(group uint32, key []byte) ([]byte, error) {
	return r.j.Group(group).GetStable(key)
}
