package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is the operating system's file system.
type Disk struct{}

var _ FS = Disk{}

// Create implements FS.
func (Disk) Create(name string) (File, error) {
	return openDisk(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open implements FS.
func (Disk) Open(name string) (File, error) { return openDisk(name, os.O_RDWR) }

func openDisk(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, 0o640)
	if err != nil {
		return nil, noSpace(err)
	}
	return &diskFile{f: f}, nil
}

// Rename implements FS.
func (Disk) Rename(from, to string) error { return noSpace(os.Rename(from, to)) }

// Remove implements FS.
func (Disk) Remove(name string) error { return os.Remove(name) }

// List implements FS.
func (Disk) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// MkdirAll implements FS.
func (d Disk) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := d.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return noSpace(err)
	}
	return d.SyncDir(parent)
}

// SyncDir implements FS.
func (Disk) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return noSpace(err)
}

// Lock implements FS.
func (Disk) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, noSpace(err)
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// FreeSpace implements FS.
func (Disk) FreeSpace(dir string) (uint64, error) { return freeSpace(dir) }

// diskFile is an *os.File with the calls that os does not have.
type diskFile struct {
	f      *os.File
	direct directFile
}

func (d *diskFile) ReadAt(p []byte, off int64) (int, error) { return d.f.ReadAt(p, off) }
func (d *diskFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := d.f.WriteAt(p, off)
	return n, noSpace(err)
}
func (d *diskFile) WriteDirect(p []byte, off int64) (int, error) {
	if n, err, done := d.direct.write(d.f, p, off); done {
		return n, noSpace(err)
	}
	return d.WriteAt(p, off)
}
func (d *diskFile) SyncData() error           { return noSpace(syncData(d.f)) }
func (d *diskFile) Sync() error               { return noSpace(d.f.Sync()) }
func (d *diskFile) Truncate(size int64) error { return noSpace(d.f.Truncate(size)) }
func (d *diskFile) Close() error              { return errors.Join(d.f.Close(), d.direct.close()) }

func (d *diskFile) Size() (int64, error) {
	info, err := d.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (d *diskFile) Preallocate(size int64) error {
	have, err := d.Size()
	if err != nil {
		return err
	}
	if have >= size {
		return nil
	}
	err = allocate(d.f, have, size)
	if errors.Is(err, errors.ErrUnsupported) {
		err = writeZeros(d.f, have, size)
	}
	return noSpace(err)
}

// writeZeros is the portable way to get blocks behind the bytes from..to.
func writeZeros(w io.WriterAt, from, to int64) error {
	zeros := make([]byte, min(1<<20, to-from))
	for from < to {
		n, err := w.WriteAt(zeros[:min(int64(len(zeros)), to-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// noSpace wraps ErrNoSpace around what the system says when a device or a quota is full.
func noSpace(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
