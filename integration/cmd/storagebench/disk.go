package main

import (
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	"geminga/pkg/vfs"
)

// disk is a file that has been written in full, so that overwriting it needs nothing but the bytes: the best that the
// disk can do for a log, with the page cache or past it, whichever is faster. A log that grows writes into files that are
// only allocated, where the file system has to note in addition what has been written: freshRate.
type disk struct {
	file  vfs.File
	dir   string
	write func([]byte, int64) (int, error)
	once  bool // each byte is written once
	at    int64
	buf   []byte
}

const diskFile = 256 << 20

func openDisk(dir string) (*disk, error) {
	f, err := vfs.Disk{}.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return nil, err
	}
	d := &disk{file: f, dir: dir, write: f.WriteDirect, buf: vfs.Aligned(4 << 20)}
	for i := range d.buf {
		d.buf[i] = byte(i * 7)
	}
	if err := fill(f.WriteAt, d.buf, diskFile); err != nil {
		return nil, err
	}
	return d, f.Sync()
}

// fill writes a file in full, the same bytes again and again.
func fill(write func([]byte, int64) (int, error), b []byte, size int64) error {
	for at := int64(0); at < size; at += int64(len(b)) {
		if _, err := write(b, at); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) close() { _ = d.file.Close() }

// put puts one batch behind the one before and makes it durable.
func (d *disk) put(batch int) error {
	if d.at+int64(batch) > diskFile {
		d.at = 0
	}
	if _, err := d.write(d.buf[:batch], d.at); err != nil {
		return err
	}
	d.at += int64(batch)
	return d.file.SyncData()
}

// rate is how many bytes a second the disk takes in batches of a size, each synced before the next.
func (d *disk) rate(batch int, during time.Duration) (best float64, err error) {
	for _, d.write = range []func([]byte, int64) (int, error){d.file.WriteAt, d.file.WriteDirect} {
		rate, err := d.rateOf(batch, during/2)
		if err != nil {
			return 0, err
		}
		best = max(best, rate)
	}
	return best, nil
}

// limits are rate and freshRate.
func (d *disk) limits(batch int, during time.Duration) (written, fresh float64, err error) {
	if written, err = d.rate(batch, during); err == nil {
		fresh, err = d.freshRate(batch, during)
	}
	return written, fresh, err
}

// freshRate is the same for files that are allocated and were never written.
func (d *disk) freshRate(batch int, during time.Duration) (best float64, err error) {
	for _, direct := range []bool{false, true} {
		f, err := (vfs.Disk{}).Create(filepath.Join(d.dir, "fresh"))
		if err != nil {
			return 0, err
		}
		fresh := &disk{file: f, write: f.WriteAt, once: true, buf: d.buf}
		if direct {
			fresh.write = f.WriteDirect
		}
		if err = f.Preallocate(diskFile); err == nil {
			err = f.Sync()
		}
		var rate float64
		if err == nil {
			rate, err = fresh.rateOf(batch, during/2)
		}
		if err = errors.Join(err, f.Close(), vfs.Disk{}.Remove(filepath.Join(d.dir, "fresh"))); err != nil {
			return 0, err
		}
		best = max(best, rate)
	}
	return best, nil
}

func (d *disk) rateOf(batch int, during time.Duration) (float64, error) {
	batch = min((batch+511)/512*512, len(d.buf))
	written, start := 0, time.Now()
	for time.Since(start) < during && (!d.once || d.at+int64(batch) <= diskFile) {
		if err := d.put(batch); err != nil {
			return 0, err
		}
		written += batch
	}
	return float64(written) / time.Since(start).Seconds(), nil
}

// countingFS counts what is written to journals.
type countingFS struct {
	vfs.FS
	writes, bytes, syncs *atomic.Int64
}

func newCountingFS() countingFS {
	return countingFS{vfs.Disk{}, &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}}
}

// look returns what was counted so far.
func (c countingFS) look() written { return written{c.writes.Load(), c.bytes.Load(), c.syncs.Load()} }

// written is what was written to logs: calls, bytes, syncs.
type written struct{ writes, bytes, syncs int64 }

func (w written) minus(v written) written {
	return written{w.writes - v.writes, w.bytes - v.bytes, w.syncs - v.syncs}
}

// Create implements vfs.FS.
func (c countingFS) Create(name string) (vfs.File, error) { return c.open(name, c.FS.Create) }

// Open implements vfs.FS.
func (c countingFS) Open(name string) (vfs.File, error) { return c.open(name, c.FS.Open) }

func (c countingFS) open(name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	f, err := open(name)
	if err != nil || filepath.Ext(name) != ".seg" {
		return f, err
	}
	return countingFile{f, c}, nil
}

type countingFile struct {
	vfs.File
	c countingFS
}

var _ io.WriterAt = countingFile{}

// WriteAt implements vfs.File.
func (f countingFile) WriteAt(p []byte, at int64) (int, error) {
	f.c.count(p)
	return f.File.WriteAt(p, at)
}

// WriteDirect implements vfs.File.
func (f countingFile) WriteDirect(p []byte, at int64) (int, error) {
	f.c.count(p)
	return f.File.WriteDirect(p, at)
}

func (c countingFS) count(p []byte) {
	c.writes.Add(1)
	c.bytes.Add(int64(len(p)))
}

// SyncData implements vfs.File.
func (f countingFile) SyncData() error {
	f.c.syncs.Add(1)
	return f.File.SyncData()
}
