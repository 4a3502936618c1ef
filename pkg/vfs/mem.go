package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
)

// blockSize is the unit in which a disk keeps or loses bytes.
const blockSize = 512

// Mem is a file system in memory that remembers what was synced.
//
// Each file has two images, what a reader sees and what the platter surely holds, and the set of 512-byte blocks in
// which they may differ. Each directory has the names that are seen, those that are durable, and the list of
// operations between the two. Crash draws for every block and every operation whether it had reached the platter.
//
// Power can be cut after the n-th operation that changes anything (PowerOffAfter), at which point every call fails and
// nothing changes any more. One run of a workload can so be crashed at every n, and examined under many seeds each.
type Mem struct {
	mu       sync.Mutex
	dirs     map[string]*memDir
	locks    map[string]struct{}
	ops      int64 // operations that change something, so far
	cutAfter int64 // power is off once ops would exceed this
	capacity int64 // bytes all files together may have
}

type memDir struct {
	seen    map[string]*memData
	durable map[string]*memData
	pending []nameOp // what turns durable into seen, in order
}

// nameOp is one unsynced change: a new name (from empty), a removed one (to empty), or a rename (both).
type nameOp struct {
	from, to string
	file     *memData
}

// memData is what an inode holds.
type memData struct {
	seen    []byte
	durable []byte
	dirty   map[int64]struct{} // blocks that may differ
}

var _ FS = (*Mem)(nil)

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{dirs: map[string]*memDir{}, locks: map[string]struct{}{}, cutAfter: math.MaxInt64, capacity: math.MaxInt64}
}

// Ops returns how many operations have changed something so far: writes, syncs, lengths and names.
func (m *Mem) Ops() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// PowerOffAfter lets n more operations happen and then answers ErrPowerOff to everything.
func (m *Mem) PowerOffAfter(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutAfter = m.ops + n
}

// SetCapacity makes allocations beyond a total of n bytes fail with ErrNoSpace.
func (m *Mem) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

// change counts an operation that changes something, and refuses it when power is off.
func (m *Mem) changeLocked() error {
	if m.ops >= m.cutAfter {
		return ErrPowerOff
	}
	m.ops++
	return nil
}

func (m *Mem) readLocked() error {
	if m.ops >= m.cutAfter && m.cutAfter != math.MaxInt64 {
		return ErrPowerOff
	}
	return nil
}

func (m *Mem) dirLocked(op, name string) (*memDir, string, error) {
	dir, base := filepath.Split(filepath.Clean(name))
	if d := m.dirs[filepath.Clean(dir)]; d != nil {
		return d, base, nil
	}
	return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.dirLocked("create", name)
	if err != nil {
		return nil, err
	}
	if d.seen[base] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	if err := m.changeLocked(); err != nil {
		return nil, err
	}
	data := &memData{dirty: map[int64]struct{}{}}
	d.seen[base] = data
	d.pending = append(d.pending, nameOp{to: base, file: data})
	return &memFile{m: m, name: name, d: data}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readLocked(); err != nil {
		return nil, err
	}
	d, base, err := m.dirLocked("open", name)
	if err != nil {
		return nil, err
	}
	if d.seen[base] == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{m: m, name: name, d: d.seen[base]}, nil
}

// Rename implements FS.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.dirLocked("rename", from)
	if err != nil {
		return err
	}
	if filepath.Dir(filepath.Clean(from)) != filepath.Dir(filepath.Clean(to)) {
		return fmt.Errorf("rename %s to another directory: %w", from, errors.ErrUnsupported)
	}
	file := d.seen[base]
	if file == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if err := m.changeLocked(); err != nil {
		return err
	}
	op := nameOp{from: base, to: filepath.Base(to), file: file}
	op.applyTo(d.seen)
	d.pending = append(d.pending, op)
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.dirLocked("remove", name)
	if err != nil {
		return err
	}
	if d.seen[base] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if err := m.changeLocked(); err != nil {
		return err
	}
	op := nameOp{from: base}
	op.applyTo(d.seen)
	d.pending = append(d.pending, op)
	return nil
}

func (op nameOp) applyTo(names map[string]*memData) {
	if op.from != "" {
		delete(names, op.from)
	}
	if op.to != "" {
		names[op.to] = op.file
	}
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readLocked(); err != nil {
		return nil, err
	}
	d := m.dirs[filepath.Clean(dir)]
	if d == nil {
		return nil, &fs.PathError{Op: "list", Path: dir, Err: fs.ErrNotExist}
	}
	names := make([]string, 0, len(d.seen))
	for name := range d.seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll implements FS. Subdirectories do not show in List.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readLocked(); err != nil {
		return err
	}
	for dir = filepath.Clean(dir); m.dirs[dir] == nil; dir = filepath.Dir(dir) {
		m.dirs[dir] = &memDir{seen: map[string]*memData{}, durable: map[string]*memData{}}
	}
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dirs[filepath.Clean(dir)]
	if d == nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: fs.ErrNotExist}
	}
	if err := m.changeLocked(); err != nil {
		return err
	}
	for _, op := range d.pending {
		op.applyTo(d.durable)
	}
	d.pending = nil
	return nil
}

// Lock implements FS. Locks do not survive Crash.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readLocked(); err != nil {
		return nil, err
	}
	if _, held := m.locks[name]; held {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	m.locks[name] = struct{}{}
	return &memLock{m: m, name: name}, nil
}

type memLock struct {
	m    *Mem
	name string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

// FreeSpace implements FS.
func (m *Mem) FreeSpace(string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(max(0, m.capacity-m.usedLocked())), nil
}

func (m *Mem) usedLocked() int64 {
	var used int64
	for _, d := range m.dirs {
		for _, f := range d.seen {
			used += int64(len(f.seen))
		}
	}
	return used
}

// Crash returns the file system as it would be found after power was lost now: whatever was synced, and of the rest
// what the seed says. The receiver is not changed.
func (m *Mem) Crash(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 0x5bd1e995))
	after := NewMem()
	after.capacity = m.capacity
	crashed := map[*memData]*memData{}
	for _, dir := range sortedKeys(m.dirs) {
		d := m.dirs[dir]
		names := make(map[string]*memData, len(d.seen))
		for name, f := range d.durable {
			names[name] = f
		}
		for _, op := range d.pending {
			if op.from != "" && names[op.from] == nil {
				continue // its creation was lost
			}
			if rng.IntN(2) == 0 {
				op.applyTo(names)
			}
		}
		nd := &memDir{seen: map[string]*memData{}, durable: map[string]*memData{}}
		for _, name := range sortedKeys(names) {
			f := crashed[names[name]]
			if f == nil {
				f = names[name].crash(rng)
				crashed[names[name]] = f
			}
			nd.seen[name], nd.durable[name] = f, f
		}
		after.dirs[dir] = nd
	}
	return after
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
