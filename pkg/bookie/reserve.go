package bookie

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/vfs"
)

// reserveFile, in the data directory, holds space.
const reserveFile = "reserve"

// reserve is a file that takes up space, so that there is some to be had when a disk is full. The ledgers stop taking
// entries long before that (MinFreeSpace), but others may fill the disk. The log of the metadata group, in bbolt, has no space
// of its own to write to, and a journal that is opened begins a new segment. It is given up when bbolt meets a full disk, or
// when a bookie starts on one, and taken again when there is room. It helps what is on the disk of the data directory.
//
//	held ──bbolt met a full disk, or a start──▶ given up ──room for it and MinFreeSpace──▶ held
type reserve struct {
	fs    vfs.FS
	dir   string
	size  int64  // 0: there is none
	spare uint64 // what has to be free beside it before it is taken
	log   *slog.Logger

	mu   sync.Mutex
	held bool
}

// openReserve finds the reserve of an earlier run or takes one. A disk that is full right now gets it back at once.
func openReserve(o *Options, log *slog.Logger) *reserve {
	r := &reserve{fs: o.FS, dir: o.DataDir, size: max(0, o.Reserve), spare: o.MinFreeSpace, log: log}
	if f, err := r.fs.Open(r.path()); err == nil {
		_ = f.Close() // nothing was written
		r.held = true
	}
	if free, err := r.fs.FreeSpace(r.dir); err == nil && free < uint64(r.size) {
		r.release()
	}
	r.take()
	return r
}

func (r *reserve) path() string { return filepath.Join(r.dir, reserveFile) }

// release gives the space up. It returns whether there was any.
func (r *reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return false
	}
	if err := r.fs.Remove(r.path()); err != nil {
		r.log.Error("cannot give up the reserved space", "file", r.path(), "error", err)
		return false
	}
	r.held = false
	r.log.Warn("disk is full: the reserved space is given up", "bytes", r.size)
	return true
}

// take makes the reserve if it is not there and there is room for it.
func (r *reserve) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held || r.size == 0 {
		return
	}
	free, err := r.fs.FreeSpace(r.dir)
	if err != nil || free < uint64(r.size)+r.spare {
		return
	}
	if err := r.make(); err != nil {
		r.log.Warn("cannot reserve space", "file", r.path(), "error", err)
		return
	}
	r.held = true
}

// missing is what the reserve takes when there is room again: others are not to have that first.
func (r *reserve) missing() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return 0
	}
	return uint64(r.size)
}

func (r *reserve) make() error {
	f, err := r.fs.Create(r.path())
	if err != nil {
		return err
	}
	err = f.Preallocate(r.size)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, r.fs.Remove(r.path()))
	}
	return nil
}

// leastSpace is what proposals of the metadata leave over of a reserve: it is for what raft itself has to write.
const leastSpace = 4 << 20

// exhausted says whether the reserve is given up and nearly used up.
func (r *reserve) exhausted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held || r.size == 0 {
		return false
	}
	free, err := r.fs.FreeSpace(r.dir)
	return err == nil && free < uint64(min(leastSpace, r.size/4))
}

// reservedStore gives the reserve up when a write finds the disk full, and tries once more. If that does not help it says
// so in the journal's way: nothing was written, and it may pass.
type reservedStore struct {
	store
	reserve *reserve
}

// StoreLog implements raft.LogStore.
func (s reservedStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (s reservedStore) StoreLogs(logs []*raft.Log) error {
	return s.write(func() error { return s.store.StoreLogs(logs) })
}

// DeleteRange implements raft.LogStore.
func (s reservedStore) DeleteRange(lo, hi uint64) error {
	return s.write(func() error { return s.store.DeleteRange(lo, hi) })
}

// Set implements raft.StableStore.
func (s reservedStore) Set(key, val []byte) error {
	return s.write(func() error { return s.store.Set(key, val) })
}

// SetUint64 implements raft.StableStore.
func (s reservedStore) SetUint64(key []byte, val uint64) error {
	return s.write(func() error { return s.store.SetUint64(key, val) })
}

func (s reservedStore) write(f func() error) error {
	err := f()
	if foundNoSpace(err) && s.reserve.release() {
		err = f()
	}
	if foundNoSpace(err) {
		return fmt.Errorf("%w: %w", journal.ErrNoSpace, err)
	}
	return err
}

// foundNoSpace says whether a write was refused because the disk is full. bbolt has then changed nothing: it writes what is
// new to pages that nothing refers to yet. A sync that fails is another matter, whatever its reason: what it leaves behind
// is not known.
func foundNoSpace(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && path.Op == "write" && errors.Is(path.Err, syscall.ENOSPC)
}
