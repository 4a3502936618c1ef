package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"geminga/pkg/vfs"
)

const (
	segmentSuffix = ".seg"
	spareSuffix   = ".spare"
	lockName      = "LOCK"

	maxSpares = 4   // recycled files kept for use
	maxOpen   = 128 // files kept open for reading
)

// SegmentName is the name of a segment's file.
func SegmentName(segment uint64) string { return segmentName(segment) }

func segmentName(segment uint64) string { return fmt.Sprintf("%012d%s", segment, segmentSuffix) }
func spareName(n uint64) string         { return fmt.Sprintf("%012d%s", n, spareSuffix) }

// parseName returns the number in a name made by segmentName or spareName.
func parseName(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return n, err == nil && n > 0
}

// segments is the table of files. It hands out handles to readers and takes files back for reuse.
type segments struct {
	fs   vfs.FS
	dir  string
	size int64 // of a file worth recycling

	mu     sync.Mutex
	table  map[uint64]*segment
	leaves map[uint64]struct{} // out of the table, but a crash may bring their files back
	spares []string            // paths, ready to be renamed
	open   int
}

// segment is a file of the table.
type segment struct {
	number uint64
	file   vfs.File // nil while nobody needs it
	refs   int      // readers and the writer; the file stays open and is not reused while > 0
	gone   bool     // recycled: close with the last reference
}

func newSegments(o *Options) *segments {
	return &segments{fs: o.FS, dir: o.Dir, size: o.SegmentSize, table: map[uint64]*segment{}, leaves: map[uint64]struct{}{}}
}

func (s *segments) path(segment uint64) string { return filepath.Join(s.dir, segmentName(segment)) }

// add puts a segment into the table; the file, if there is one, is the writer's and has its reference.
func (s *segments) add(number uint64, file vfs.File) *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := &segment{number: number, file: file}
	if file != nil {
		seg.refs = 1
		s.open++
	}
	s.table[number] = seg
	s.shrinkLocked()
	return seg
}

// acquire returns a segment whose file is open until release. The error is ErrNotFound if there is no such segment.
func (s *segments) acquire(number uint64) (*segment, error) {
	s.mu.Lock()
	seg := s.table[number]
	if seg == nil {
		s.mu.Unlock()
		return nil, ErrNotFound
	}
	seg.refs++
	ready := seg.file != nil
	s.mu.Unlock()
	if ready {
		return seg, nil
	}
	file, err := s.fs.Open(s.path(number))
	if err != nil {
		gone := s.release(seg)
		if gone {
			return nil, ErrNotFound
		}
		return nil, fmt.Errorf("journal: open segment %d: %w", number, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg.file != nil { // another reader was faster
		_ = file.Close()
		return seg, nil
	}
	seg.file = file
	s.open++
	s.shrinkLocked()
	return seg, nil
}

// shrinkLocked closes files that nobody reads until few enough are open.
func (s *segments) shrinkLocked() {
	if s.open <= maxOpen {
		return
	}
	for _, seg := range s.table {
		if seg.refs == 0 && seg.file != nil {
			s.closeLocked(seg)
			if s.open <= maxOpen/2 {
				return
			}
		}
	}
}

func (s *segments) closeLocked(seg *segment) {
	_ = seg.file.Close() // read only, or synced before
	seg.file = nil
	s.open--
}

// release gives a reference back, and reports whether the segment was recycled meanwhile.
func (s *segments) release(seg *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.refs--
	if seg.refs == 0 && seg.gone && seg.file != nil {
		s.closeLocked(seg)
	}
	return seg.gone
}

// numbers returns all segments, oldest first.
func (s *segments) numbers() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ns := make([]uint64, 0, len(s.table))
	for n := range s.table {
		ns = append(ns, n)
	}
	slices.Sort(ns)
	return ns
}

// recycle takes a segment out of the table. A file that has its full length and no reader is renamed to a spare, any
// other is removed: a reader goes on with its open file, which nobody writes again.
func (s *segments) recycle(number uint64) error {
	keep, err := s.drop(number)
	if err != nil {
		return err
	}
	path, spare := s.path(number), filepath.Join(s.dir, spareName(number))
	keep = keep && s.fullLength(path)
	if keep {
		err = s.fs.Rename(path, spare)
	} else {
		err = s.fs.Remove(path)
	}
	err = errors.Join(err, s.removeSummary(number))
	// The old name must be gone for good before the file is written under another one.
	if err = errors.Join(err, s.fs.SyncDir(s.dir)); err != nil {
		return fmt.Errorf("journal: recycle segment %d: %w", number, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leaves, number)
	if keep {
		s.spares = append(s.spares, spare)
	}
	return nil
}

// oldest returns the oldest segment that a recovery might find.
func (s *segments) oldest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := noIndex
	for n := range s.table {
		oldest = min(oldest, n)
	}
	for n := range s.leaves {
		oldest = min(oldest, n)
	}
	return oldest
}

// drop takes a segment out of the table and reports whether its file may be written again.
func (s *segments) drop(number uint64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.table[number]
	if seg == nil {
		return false, ErrNotFound
	}
	delete(s.table, number)
	s.leaves[number] = struct{}{}
	seg.gone = true
	if seg.refs > 0 {
		return false, nil
	}
	if seg.file != nil {
		s.closeLocked(seg)
	}
	return len(s.spares) < maxSpares, nil
}

func (s *segments) fullLength(path string) bool {
	f, err := s.fs.Open(path)
	if err != nil {
		return false
	}
	size, err := f.Size()
	return f.Close() == nil && err == nil && size == s.size
}

// shed removes spare files until there are no more than keep.
func (s *segments) shed(keep int) (removed int, err error) {
	for {
		spare, ok := s.spareBeyond(keep)
		if !ok {
			return removed, nil
		}
		if err := s.fs.Remove(spare); err != nil {
			return removed, fmt.Errorf("journal: remove a spare file: %w", err)
		}
		removed++
	}
}

func (s *segments) takeSpare() (string, bool) { return s.spareBeyond(0) }

// spareBeyond takes one out of the list of spare files if there are more than keep.
func (s *segments) spareBeyond(keep int) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spares) <= keep {
		return "", false
	}
	spare := s.spares[len(s.spares)-1]
	s.spares = s.spares[:len(s.spares)-1]
	return spare, true
}

// prepare makes the file of a segment that is yet to come: the name durable, the blocks there, the content whatever a
// spare held before.
func (s *segments) prepare(number uint64) (vfs.File, error) {
	path := s.path(number)
	if spare, ok := s.takeSpare(); ok {
		if err := s.fs.Rename(spare, path); err != nil {
			return nil, err
		}
		if err := s.fs.SyncDir(s.dir); err != nil {
			return nil, err
		}
		return s.fs.Open(path)
	}
	file, err := s.fs.Create(path)
	if err != nil {
		return nil, err
	}
	if err = file.Preallocate(s.size); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), s.fs.Remove(path))
	}
	return file, nil
}

// closeAll closes every file.
func (s *segments) closeAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range s.table {
		if seg.file != nil {
			errs = append(errs, seg.file.Close())
			seg.file = nil
		}
	}
	clear(s.table)
	s.open = 0
	return errors.Join(errs...)
}
