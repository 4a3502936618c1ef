package vfs

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
)

// OpKind is what an operation does.
type OpKind uint8

// The kinds of operations that Inject tells apart.
const (
	OpCreate OpKind = iota
	OpOpen
	OpRename
	OpRemove
	OpList
	OpMkdir
	OpSyncDir
	OpLock
	OpFreeSpace
	OpRead
	OpWrite
	OpSync // SyncData and Sync
	OpPreallocate
	OpTruncate
	OpSize
	OpClose
)

// Op is an operation that is about to happen.
type Op struct {
	Kind OpKind
	Name string // base name of the file or directory
	N    int64  // 1 for the first operation that passed through this Inject
}

// Inject passes operations on to another FS, except where a rule says otherwise. Rules are asked in the order in which
// they were added; the first that matches decides.
type Inject struct {
	fs FS

	mu    sync.Mutex
	n     int64
	count map[OpKind]int64
	rules []*Fault
}

var _ FS = (*Inject)(nil)

// NewInject wraps fs.
func NewInject(fs FS) *Inject { return &Inject{fs: fs, count: map[OpKind]int64{}} }

// Fault is a rule in force.
type Fault struct {
	match   func(Op) bool
	err     error
	hang    bool
	tear    bool
	reached chan struct{}
	release chan struct{}
	once    sync.Once
	freed   sync.Once
}

// Reached is closed when the fault has hit for the first time.
func (f *Fault) Reached() <-chan struct{} { return f.reached }

// Release lets hanging operations, and all later ones that match, go on. They then happen as if nothing had been.
func (f *Fault) Release() { f.freed.Do(func() { close(f.release) }) }

// FailIf makes operations that match fail with err (ErrInjected if nil) without touching the FS below.
func (i *Inject) FailIf(match func(Op) bool, err error) *Fault {
	if err == nil {
		err = ErrInjected
	}
	return i.add(&Fault{match: match, err: err})
}

// HangIf makes operations that match wait for Release.
func (i *Inject) HangIf(match func(Op) bool) *Fault {
	return i.add(&Fault{match: match, hang: true})
}

// TearIf makes writes that match fail with ErrInjected after their first half reached the FS below.
func (i *Inject) TearIf(match func(Op) bool) *Fault {
	writes := func(op Op) bool { return op.Kind == OpWrite && match(op) }
	return i.add(&Fault{match: writes, err: ErrInjected, tear: true})
}

func (i *Inject) add(f *Fault) *Fault {
	f.reached, f.release = make(chan struct{}), make(chan struct{})
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rules = append(i.rules, f)
	return f
}

// Nth matches only the n-th operation of those that match (all of them if match is nil).
func Nth(n int64, match func(Op) bool) func(Op) bool {
	var seen int64 // the rules are asked under one lock
	return func(op Op) bool {
		if match != nil && !match(op) {
			return false
		}
		seen++
		return seen == n
	}
}

// Kinds matches operations by kind.
func Kinds(kinds ...OpKind) func(Op) bool {
	return func(op Op) bool {
		for _, k := range kinds {
			if op.Kind == k {
				return true
			}
		}
		return false
	}
}

// Heal removes all rules. Operations that hang go on hanging until their Release.
func (i *Inject) Heal() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rules = nil
}

// Count returns how many operations of the kinds were asked for (of all kinds if none is named).
func (i *Inject) Count(kinds ...OpKind) int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(kinds) == 0 {
		return i.n
	}
	var n int64
	for _, k := range kinds {
		n += i.count[k]
	}
	return n
}

// before counts the operation and lets the rules act.
func (i *Inject) before(kind OpKind, name string) error {
	return i.decide(kind, filepath.Base(name)).act(name)
}

// act does to an operation what its rule says.
func (f *Fault) act(name string) error {
	if f == nil {
		return nil
	}
	f.once.Do(func() { close(f.reached) })
	if f.hang {
		<-f.release
		return nil
	}
	return fmt.Errorf("%s: %w", name, f.err)
}

func (i *Inject) decide(kind OpKind, name string) *Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	i.count[kind]++
	op := Op{Kind: kind, Name: name, N: i.n}
	for _, f := range i.rules {
		if f.match(op) {
			return f
		}
	}
	return nil
}

// Create implements FS.
func (i *Inject) Create(name string) (File, error) { return i.open(OpCreate, name, i.fs.Create) }

// Open implements FS.
func (i *Inject) Open(name string) (File, error) { return i.open(OpOpen, name, i.fs.Open) }

func (i *Inject) open(kind OpKind, name string, open func(string) (File, error)) (File, error) {
	if err := i.before(kind, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &injectFile{i: i, f: f, name: name}, nil
}

// Rename implements FS.
func (i *Inject) Rename(from, to string) error {
	if err := i.before(OpRename, from); err != nil {
		return err
	}
	return i.fs.Rename(from, to)
}

// Remove implements FS.
func (i *Inject) Remove(name string) error {
	if err := i.before(OpRemove, name); err != nil {
		return err
	}
	return i.fs.Remove(name)
}

// List implements FS.
func (i *Inject) List(dir string) ([]string, error) {
	if err := i.before(OpList, dir); err != nil {
		return nil, err
	}
	return i.fs.List(dir)
}

// MkdirAll implements FS.
func (i *Inject) MkdirAll(dir string) error {
	if err := i.before(OpMkdir, dir); err != nil {
		return err
	}
	return i.fs.MkdirAll(dir)
}

// SyncDir implements FS.
func (i *Inject) SyncDir(dir string) error {
	if err := i.before(OpSyncDir, dir); err != nil {
		return err
	}
	return i.fs.SyncDir(dir)
}

// Lock implements FS.
func (i *Inject) Lock(name string) (io.Closer, error) {
	if err := i.before(OpLock, name); err != nil {
		return nil, err
	}
	return i.fs.Lock(name)
}

// FreeSpace implements FS.
func (i *Inject) FreeSpace(dir string) (uint64, error) {
	if err := i.before(OpFreeSpace, dir); err != nil {
		return 0, err
	}
	return i.fs.FreeSpace(dir)
}

type injectFile struct {
	i    *Inject
	f    File
	name string
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.i.before(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) { return f.write(f.f.WriteAt, p, off) }

func (f *injectFile) WriteDirect(p []byte, off int64) (int, error) {
	return f.write(f.f.WriteDirect, p, off)
}

func (f *injectFile) write(to func([]byte, int64) (int, error), p []byte, off int64) (int, error) {
	fault := f.i.decide(OpWrite, filepath.Base(f.name))
	if err := fault.act(f.name); err != nil {
		if fault.tear {
			n, werr := to(p[:len(p)/2], off)
			return n, errors.Join(err, werr)
		}
		return 0, err
	}
	return to(p, off)
}

func (f *injectFile) SyncData() error {
	if err := f.i.before(OpSync, f.name); err != nil {
		return err
	}
	return f.f.SyncData()
}

func (f *injectFile) Sync() error {
	if err := f.i.before(OpSync, f.name); err != nil {
		return err
	}
	return f.f.Sync()
}

func (f *injectFile) Preallocate(size int64) error {
	if err := f.i.before(OpPreallocate, f.name); err != nil {
		return err
	}
	return f.f.Preallocate(size)
}

func (f *injectFile) Truncate(size int64) error {
	if err := f.i.before(OpTruncate, f.name); err != nil {
		return err
	}
	return f.f.Truncate(size)
}

func (f *injectFile) Size() (int64, error) {
	if err := f.i.before(OpSize, f.name); err != nil {
		return 0, err
	}
	return f.f.Size()
}

func (f *injectFile) Close() error {
	if err := f.i.before(OpClose, f.name); err != nil {
		return err
	}
	return f.f.Close()
}
