package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
)

// memFile is a handle; all handles of a file share its memData, which the Mem's lock protects.
type memFile struct {
	m      *Mem
	name   string
	d      *memData
	closed bool
}

func (f *memFile) checkLocked() error {
	if f.closed {
		return &fs.PathError{Op: "use", Path: f.name, Err: fs.ErrClosed}
	}
	return nil
}

// ReadAt implements File.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.checkLocked(); err != nil {
		return 0, err
	}
	if err := f.m.readLocked(); err != nil {
		return 0, err
	}
	if off >= int64(len(f.d.seen)) {
		return 0, io.EOF
	}
	n := copy(p, f.d.seen[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.changeLocked(off + int64(len(p))); err != nil {
		return 0, err
	}
	f.d.resize(max(int64(len(f.d.seen)), off+int64(len(p))))
	copy(f.d.seen[off:], p)
	f.d.mark(off, off+int64(len(p)))
	return len(p), nil
}

// changeLocked is the entry check of everything that may make the file size bytes long.
func (f *memFile) changeLocked(size int64) error {
	if err := f.checkLocked(); err != nil {
		return err
	}
	if grow := size - int64(len(f.d.seen)); grow > 0 && grow > f.m.capacity-f.m.usedLocked() {
		return fmt.Errorf("%s: %w", f.name, ErrNoSpace)
	}
	return f.m.changeLocked()
}

// WriteDirect implements File.
func (f *memFile) WriteDirect(p []byte, off int64) (int, error) { return f.WriteAt(p, off) }

// SyncData implements File.
func (f *memFile) SyncData() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.changeLocked(0); err != nil {
		return err
	}
	f.d.sync()
	return nil
}

// Sync implements File.
func (f *memFile) Sync() error { return f.SyncData() }

// Preallocate implements File.
func (f *memFile) Preallocate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.changeLocked(size); err != nil {
		return err
	}
	f.d.resize(max(size, int64(len(f.d.seen))))
	return nil
}

// Truncate implements File.
func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.changeLocked(size); err != nil {
		return err
	}
	f.d.resize(size)
	return nil
}

// Size implements File.
func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.d.seen)), f.checkLocked()
}

// Close implements File.
func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	err := f.checkLocked()
	f.closed = true
	return err
}

func (d *memData) mark(from, to int64) {
	for b := from / blockSize; b*blockSize < to; b++ {
		d.dirty[b] = struct{}{}
	}
}

// resize changes the length that is seen. New bytes are zero, and so are the bytes behind a cut on the platter once
// the cut got there.
func (d *memData) resize(size int64) {
	have := int64(len(d.seen))
	switch {
	case size > have:
		d.seen = slices.Grow(d.seen, int(size-have))[:size]
		clear(d.seen[have:])
	case size < have:
		d.seen = d.seen[:size]
		d.mark(size, have)
	}
}

func (d *memData) sync() {
	if len(d.durable) != len(d.seen) {
		d.durable = slices.Clone(d.seen)
	} else {
		for b := range d.dirty {
			d.copyBlock(b)
		}
	}
	clear(d.dirty)
}

func (d *memData) copyBlock(b int64) {
	from := b * blockSize
	if from < int64(len(d.seen)) {
		copy(d.durable[from:min(from+blockSize, int64(len(d.durable)))], d.seen[from:])
	}
}

// crash returns the content found after a power cut. A torn block is a leading part of the new bytes before the rest
// of the old ones, or the reverse.
func (d *memData) crash(rng *rand.Rand) *memData {
	size := len(d.durable)
	if len(d.seen) != size && rng.IntN(2) == 0 {
		size = len(d.seen)
	}
	found := make([]byte, size)
	copy(found, d.durable)
	blocks := make([]int64, 0, len(d.dirty))
	for b := range d.dirty {
		blocks = append(blocks, b)
	}
	slices.Sort(blocks)
	for _, b := range blocks {
		from, to := int(b*blockSize), min(int((b+1)*blockSize), size, len(d.seen))
		if from >= to {
			continue
		}
		cut := from + rng.IntN(to-from)
		switch rng.IntN(8) {
		case 0, 1, 2:
			copy(found[from:to], d.seen[from:to])
		case 3:
			copy(found[from:cut], d.seen[from:cut])
		case 4:
			copy(found[cut:to], d.seen[cut:to])
		}
	}
	return &memData{seen: found, durable: slices.Clone(found), dirty: map[int64]struct{}{}}
}
