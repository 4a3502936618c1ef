package bookie

import (
	"errors"
	"io/fs"
	"log/slog"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/vfs"
)

// roomFS is a disk on which a certain space is free beside what is on it.
type roomFS struct {
	*vfs.Mem
	size uint64
}

func (f *roomFS) FreeSpace(dir string) (uint64, error) {
	used := uint64(0)
	names, err := f.List(dir)
	for _, name := range names {
		file, err := f.Open(dir + "/" + name)
		if err != nil {
			return 0, err
		}
		n, _ := file.Size()
		used += uint64(n)
		_ = file.Close()
	}
	return f.size - min(f.size, used), err
}

// fullStore is a log that finds the disk full unless the reserve was given up, if that helps.
type fullStore struct {
	*raft.InmemStore
	full func() bool
	err  error
}

func (s fullStore) StoreLogs(logs []*raft.Log) error {
	if s.full() {
		return s.err
	}
	return s.InmemStore.StoreLogs(logs)
}

// A full disk takes the reserve and no more; when that does not help, the write is refused and the process lives. When
// there is room the reserve is taken again.
func TestReserve(t *testing.T) {
	disk := &roomFS{vfs.NewMem(), 100 << 10}
	if err := disk.MkdirAll("/m"); err != nil {
		t.Fatal(err)
	}
	o := &Options{FS: disk, DataDir: "/m", Reserve: 16 << 10, MinFreeSpace: 10 << 10}
	r := openReserve(o, slog.New(slog.DiscardHandler))
	if free, _ := disk.FreeSpace("/m"); !r.held || free != 84<<10 || r.exhausted() {
		t.Fatalf("held %t, %d bytes free", r.held, free)
	}

	h := newHealth(nil)
	helps := true
	bolt := fullStore{raft.NewInmemStore(), func() bool { return r.held || !helps }, &fs.PathError{Op: "write", Path: "raft.db", Err: syscall.ENOSPC}}
	s := &guardedStore{store: reservedStore{bolt, r}, health: h, stop: make(chan struct{})}
	disk.size = 16 << 10 // somebody else has filled it
	if err := s.StoreLogs(testLogs(1, 1, 1)); err != nil || r.held {
		t.Fatalf("with the reserve: %v, held %t", err, r.held)
	}
	if r.exhausted() {
		t.Error("nothing of it is used yet")
	}
	r.take()
	if r.held {
		t.Error("taken again though there is no room beside it")
	}
	disk.size, helps = 3<<10, false
	if err := s.StoreLogs(testLogs(2, 2, 1)); !errors.Is(err, journal.ErrNoSpace) {
		t.Errorf("without space: %v", err)
	}
	if !r.exhausted() || !h.ok() {
		t.Errorf("exhausted %t, alive %t", r.exhausted(), h.ok())
	}
	disk.size, helps = 26<<10, true
	r.take()
	if !r.held {
		t.Error("there is room, and it is not taken")
	}

	// It is there after a restart, and given up at once when the disk is full.
	if again := openReserve(o, slog.New(slog.DiscardHandler)); !again.held {
		t.Error("not found after a restart")
	}
	disk.size = 17 << 10
	if full := openReserve(o, slog.New(slog.DiscardHandler)); full.held {
		t.Error("kept though the disk is full at the start")
	}

	// A sync that fails for want of space may have lost what was written: that is fatal.
	bolt.err, helps = &fs.PathError{Op: "sync", Path: "raft.db", Err: syscall.ENOSPC}, false
	s.store = reservedStore{bolt, r}
	if err := s.StoreLogs(testLogs(3, 3, 1)); err == nil || h.ok() {
		t.Errorf("after a failed sync: %v, alive %t", err, h.ok())
	}
}
