package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadOnly is another FS without the means to change it: for tools that look at what a stopped process left behind.
// Whatever would change a byte, a length or a name fails with ErrReadOnly, before the other FS is asked.
type ReadOnly struct{ fs FS }

var _ FS = ReadOnly{}

// NewReadOnly returns fs without the means to change it.
func NewReadOnly(fs FS) ReadOnly { return ReadOnly{fs} }

// readOpener is an FS that can open a file of which the caller may not write.
type readOpener interface {
	openRead(name string) (File, error)
	lockRead(name string) (io.Closer, error)
}

// Open implements FS. On a disk it needs no right to write.
func (r ReadOnly) Open(name string) (File, error) {
	open := r.fs.Open
	if o, ok := r.fs.(readOpener); ok {
		open = o.openRead
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return readOnlyFile{f, name}, nil
}

// List implements FS.
func (r ReadOnly) List(dir string) ([]string, error) { return r.fs.List(dir) }

// FreeSpace implements FS.
func (r ReadOnly) FreeSpace(dir string) (uint64, error) { return r.fs.FreeSpace(dir) }

// Lock implements FS, without making the file: a lock that nobody ever took has no file, and then nothing is held. On
// a disk several readers may hold it at once, and none together with a holder that writes.
func (r ReadOnly) Lock(name string) (io.Closer, error) {
	o, ok := r.fs.(readOpener)
	if !ok {
		return r.fs.Lock(name)
	}
	lock, err := o.lockRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	return lock, err
}

// Create implements FS.
func (ReadOnly) Create(name string) (File, error) { return nil, refuse("create", name) }

// Rename implements FS.
func (ReadOnly) Rename(from, _ string) error { return refuse("rename", from) }

// Remove implements FS.
func (ReadOnly) Remove(name string) error { return refuse("remove", name) }

// MkdirAll implements FS.
func (ReadOnly) MkdirAll(dir string) error { return refuse("mkdir", dir) }

// SyncDir implements FS.
func (ReadOnly) SyncDir(dir string) error { return refuse("sync", dir) }

func refuse(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: ErrReadOnly} }

// readOnlyFile hides what changes a File.
type readOnlyFile struct {
	File
	name string
}

func (f readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, refuse("write", f.name) }
func (f readOnlyFile) WriteDirect([]byte, int64) (int, error) {
	return 0, refuse("write", f.name)
}
func (f readOnlyFile) SyncData() error         { return refuse("sync", f.name) }
func (f readOnlyFile) Sync() error             { return refuse("sync", f.name) }
func (f readOnlyFile) Preallocate(int64) error { return refuse("allocate", f.name) }
func (f readOnlyFile) Truncate(int64) error    { return refuse("truncate", f.name) }

func (Disk) openRead(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{f: f}, nil
}

func (Disk) lockRead(name string) (io.Closer, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if err := shareLock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}
