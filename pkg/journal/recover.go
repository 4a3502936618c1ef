package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"geminga/pkg/vfs"
)

// restore locks the directory and rebuilds the groups from what is in it.
func (j *Journal) restore() error {
	o := &j.opts
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return fmt.Errorf("journal: make %s: %w", o.Dir, err)
	}
	lock, err := o.FS.Lock(filepath.Join(o.Dir, lockName))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.lock = lock
	files, spares, err := j.survey()
	if err != nil {
		return err
	}
	if err := j.dropSummaries(files); err != nil {
		return err
	}
	for _, name := range spares {
		if err := j.keepSpare(filepath.Join(o.Dir, name)); err != nil {
			return err
		}
	}
	if files, err = j.dropUnused(files); err != nil {
		return err
	}
	if err := j.identify(files); err != nil {
		return err
	}
	return j.replay(files, watch{sealed: j.prep.keep})
}

// dropSummaries removes those whose segments are gone.
func (j *Journal) dropSummaries(files []*file) error {
	names, err := j.opts.FS.List(j.opts.Dir)
	if err != nil {
		return fmt.Errorf("journal: list %s: %w", j.opts.Dir, err)
	}
	for _, name := range names {
		number, ok := parseName(name, summarySuffix)
		if !ok || slices.ContainsFunc(files, func(f *file) bool { return f.number == number }) {
			continue
		}
		if err := j.discard(filepath.Join(j.opts.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// survey finds the segments and their headers, oldest first, and the names of the spares. It changes nothing.
func (j *Journal) survey() (files []*file, spares []string, err error) {
	names, err := j.opts.FS.List(j.opts.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("journal: list %s: %w", j.opts.Dir, err)
	}
	for _, name := range names {
		if number, ok := parseName(name, segmentSuffix); ok {
			f, err := j.inspect(number)
			if err != nil {
				return nil, nil, err
			}
			files = append(files, f)
		} else if _, ok := parseName(name, spareSuffix); ok {
			spares = append(spares, name)
		} else if _, ok := parseName(name, summarySuffix); !ok && name != lockName {
			j.opts.Logger.Warn("journal directory holds something else", "dir", j.opts.Dir, "name", name)
		}
	}
	slices.SortFunc(files, func(a, b *file) int { return int(int64(a.number) - int64(b.number)) })
	return files, spares, nil
}

// inspect reads the header of a segment.
func (j *Journal) inspect(number uint64) (*file, error) {
	handle, err := j.opts.FS.Open(j.segs.path(number))
	if err != nil {
		return nil, fmt.Errorf("journal: open segment %d: %w", number, err)
	}
	defer handle.Close()
	f := &file{number: number}
	if f.size, err = handle.Size(); err != nil {
		return nil, fmt.Errorf("journal: segment %d: %w", number, err)
	}
	if f.size > 1<<32 {
		return nil, fmt.Errorf("%w: segment %d has %d bytes", ErrForeign, number, f.size)
	}
	b := make([]byte, segmentHeaderLen)
	if _, err := handle.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("journal: read segment %d: %w", number, err)
	}
	f.valid, err = f.header.parse(b, number)
	return f, err
}

// keepSpare takes a recycled file over, or removes it if it does not fit.
func (j *Journal) keepSpare(path string) error {
	if len(j.segs.spares) < maxSpares && j.segs.fullLength(path) {
		j.segs.spares = append(j.segs.spares, path)
		return nil
	}
	return j.discard(path)
}

func (j *Journal) discard(path string) error {
	if err := j.opts.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: remove %s: %w", path, err)
	}
	return nil
}

// dropUnused takes away the segments at the end that were never in use.
func (j *Journal) dropUnused(files []*file) ([]*file, error) {
	used, err := j.used(files)
	if err != nil || used == len(files) {
		return files, err
	}
	for i := len(files) - 1; i >= used; i-- {
		if err := j.putAside(files[i]); err != nil {
			return nil, err
		}
	}
	if err := j.opts.FS.SyncDir(j.opts.Dir); err != nil {
		return nil, fmt.Errorf("journal: sync %s: %w", j.opts.Dir, err)
	}
	return files[:used], nil
}

// used returns how many of the files were in use. Those after them are segments whose beginning never became durable:
// prepared ones, and one whose head was torn. Nothing was ever answered for them, if they hold no batch behind the head.
//
// A damaged header on a segment that was in use must not pass for that. It shows by a batch behind the head, or by the
// segment before being gone: that is recycled only once this one's head is durable.
func (j *Journal) used(files []*file) (int, error) {
	n := len(files)
	for ; n > 0 && !files[n-1].valid; n-- {
		f := files[n-1]
		used, err := j.inUse(f)
		if err != nil {
			return n, err
		}
		if used {
			break
		}
		follows := f.number == 1 || n > 1 && files[n-2].number == f.number-1
		if !follows {
			return n, &CorruptError{0, 0, f.number, 0, "header of the newest segment, and the one before is gone"}
		}
	}
	return n, nil
}

// inUse reports whether a segment without a valid header has a batch behind its head.
func (j *Journal) inUse(f *file) (bool, error) {
	handle, err := j.opts.FS.Open(j.segs.path(f.number))
	if err != nil {
		return false, fmt.Errorf("journal: open segment %d: %w", f.number, err)
	}
	defer handle.Close()
	var s scanner
	s.reset(handle, f.number, f.size)
	for off := int64(segmentHeaderLen); ; off += sectorSize {
		h, at, ok, err := s.next(off, 0)
		if err != nil || !ok || h.flags&flagHead == 0 {
			return ok, err
		}
		off = at
	}
}

// putAside makes a spare of a file that was never begun.
func (j *Journal) putAside(f *file) error {
	path := j.segs.path(f.number)
	if f.size != j.opts.SegmentSize || len(j.segs.spares) >= maxSpares {
		return j.discard(path)
	}
	spare := filepath.Join(j.opts.Dir, spareName(f.number))
	if err := j.opts.FS.Rename(path, spare); err != nil {
		return fmt.Errorf("journal: put %s aside: %w", path, err)
	}
	j.segs.spares = append(j.segs.spares, spare)
	return nil
}

// identify checks that all segments belong to one journal.
func (j *Journal) identify(files []*file) error {
	for _, f := range files {
		switch {
		case !f.valid:
		case j.id == 0:
			j.id = f.header.id
		case j.id != f.header.id:
			return fmt.Errorf("%w: segment %d belongs to journal %016x, not %016x", ErrForeign, f.number, f.header.id, j.id)
		}
	}
	for j.id == 0 {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return fmt.Errorf("journal: draw an id: %w", err)
		}
		j.id = binary.LittleEndian.Uint64(b[:])
	}
	return nil
}

// replay reads all segments, each once from front to back, and leaves the writer where they end.
func (j *Journal) replay(files []*file, w watch) error {
	r := &replay{groups: j.groups, new: j.newGroup, suspects: map[uint32]*suspicion{}, watch: w}
	for i, f := range files {
		var b bounds
		if i+1 < len(files) {
			next := files[i+1]
			b.sealed = true
			if next.valid && next.number == f.number+1 {
				b.last = next.header.first - 1
			}
		}
		j.segs.add(f.number, nil)
		if err := j.replayFile(r, f, b); err != nil {
			return err
		}
	}
	r.finish()
	j.w.batch, j.w.groups, j.w.unsure = r.batch+1, r.before, r.unsure
	j.old = oldSegment{number: r.prev, end: r.end, ended: r.ended}
	if r.clean {
		j.old.sum = &r.sum
	}
	if r.damage > 0 {
		j.metrics.damaged(int64(r.damage))
		j.opts.Logger.Error("journal is damaged", "dir", j.opts.Dir, "places", r.damage, "first", r.first)
	}
	return nil
}

func (j *Journal) replayFile(r *replay, f *file, b bounds) error {
	if f.valid && b.sealed {
		sum, err := j.segs.readSummary(f.number, &f.header)
		if err != nil {
			j.opts.Logger.Warn("journal reads a segment whose summary it cannot read", "err", err)
		}
		if sum != nil && sum.fits(f, b) {
			return r.summarised(f, sum)
		}
	}
	handle, err := j.opts.FS.Open(j.segs.path(f.number))
	if err != nil {
		return fmt.Errorf("journal: open segment %d: %w", f.number, err)
	}
	r.reset(handle, f.number, f.size)
	err = r.segment(f, b)
	if cerr := handle.Close(); err == nil {
		err = cerr
	}
	if err == nil && r.clean && b.sealed && r.ended && r.watch.sealed != nil {
		r.watch.sealed(sealed{f.number, r.sum.whole()})
	}
	return err
}

// begin makes what recovery found durable, since it may have come from the page cache only, and begins a segment.
func (j *Journal) begin() error {
	w := &j.w
	if j.old.number > 0 {
		if err := j.withOld(j.sealOld); err != nil {
			return err
		}
	}
	groups := j.allGroups()
	head, number := headSize(groups), j.old.number+1
	size := max(j.opts.SegmentSize, head+2*sectorSize)
	if j.old.sum != nil {
		j.prep.summarise(sealed{j.old.number, j.old.sum.whole()})
		j.old.sum = nil
	}
	handle, err := j.nextFile(number, size)
	if err != nil {
		return err
	}
	w.seg, w.seed, w.size = j.segs.add(number, handle), seedOf(number), size
	if err := j.writeHead(groups, head); err != nil {
		return err
	}
	if j.old.number > 0 {
		// The rest of the old segment was never used. Failing to give it back costs room only.
		if err := j.withOld(func(f vfs.File) error { return f.Truncate(j.old.end) }); err != nil {
			j.opts.Logger.Warn("journal cannot trim a segment", "segment", j.old.number, "err", err)
		}
	}
	return nil
}

// sealOld ends the segment that was written last, over what is left of a torn batch, and syncs all of it.
func (j *Journal) sealOld(f vfs.File) error {
	if j.old.ended {
		return f.SyncData()
	}
	sum := j.old.sum
	if sum == nil {
		sum = new(summary)
	}
	mark := j.endMark(seedOf(j.old.number), sum, j.old.end)
	if err := j.writeSync(f, mark, j.old.end, true); err != nil {
		return err
	}
	j.old.end += sectorSize
	return nil
}

func (j *Journal) withOld(do func(vfs.File) error) error {
	seg, err := j.segs.acquire(j.old.number)
	if err != nil {
		return err
	}
	defer j.segs.release(seg)
	if err := do(seg.file); err != nil {
		return fmt.Errorf("journal: segment %d: %w", j.old.number, err)
	}
	return nil
}
