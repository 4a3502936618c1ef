package bookie

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

// Layers lie beside the snapshots, in <number>.idx. The snapshots name them; a file that none of them names is removed
// when another snapshot is added, or at the next start.
const layerSuffix = ".idx"

// layerNumber is the number in the name of a layer's file; 0: it is none.
func layerNumber(name string) uint64 {
	digits, ok := strings.CutSuffix(name, layerSuffix)
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return n
}

// stateInfo is what the store knows of a snapshot beside raft's description.
type stateInfo struct {
	layers []string
	bytes  int64 // of the file
}

// fileAt reads a file of which it is not said who uses it last: readers of an index that others have replaced meanwhile
// are not counted. The file is closed when nothing refers to it any more.
type fileAt struct{ file vfs.File }

func newFileAt(f vfs.File) *fileAt {
	at := &fileAt{f}
	runtime.AddCleanup(at, func(f vfs.File) { _ = f.Close() }, f) // it was only read
	return at
}

// ReadAt implements io.ReaderAt.
func (f *fileAt) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.file.ReadAt(b, off)
	runtime.KeepAlive(f)
	return n, err
}

// openLayer opens a layer that a snapshot names. What is wrong with it, that it is not there included, is ErrDamaged.
func (s *snapshotStore) openLayer(h layerHead) (*layer, error) {
	f, err := s.fs.Open(filepath.Join(s.dir, h.name))
	if isNotExist(err) {
		return nil, fmt.Errorf("%w: index %s: it is gone", ErrDamaged, h.name)
	}
	if err != nil {
		return nil, err
	}
	at := newFileAt(f)
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	l, err := openLayer(h.name, at, size)
	if err == nil && (l.sum != h.sum || l.size != h.size) {
		return nil, fmt.Errorf("%w: index %s is another one", ErrDamaged, h.name)
	}
	return l, err
}

// verifyLayer compares all checksums of a layer. What is wrong with it is ErrDamaged.
func (s *snapshotStore) verifyLayer(name string) error {
	f, err := s.fs.Open(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	at := newFileAt(f)
	size, err := f.Size()
	if err != nil {
		return err
	}
	l, err := openLayer(name, at, size)
	if err != nil {
		return err
	}
	return l.verify()
}

// writeLayer makes a layer durable, and reads it back. It stays for good if a snapshot names it before referred is called.
// A layer without runs is nil.
func (s *snapshotStore) writeLayer(fill func(*layerWriter) error) (*layer, error) {
	s.mu.Lock()
	s.number++
	name := fmt.Sprintf("%08d%s", s.number, layerSuffix)
	s.making = append(s.making, name)
	s.mu.Unlock()
	l, err := s.makeLayer(name, fill)
	if err != nil || l == nil {
		s.referred(name)
		return nil, errors.Join(err, s.sweep())
	}
	return l, nil
}

func (s *snapshotStore) makeLayer(name string, fill func(*layerWriter) error) (*layer, error) {
	f, err := s.fs.Create(filepath.Join(s.dir, name))
	if err != nil {
		return nil, err
	}
	at := newFileAt(f)
	w := newLayerWriter(&appender{file: f})
	if err := fill(w); err != nil || w.runs == 0 {
		return nil, err
	}
	if err := w.finish(); err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	l, err := openLayer(name, at, size)
	if err == nil {
		err = l.verify()
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir) // the name has to be there before a snapshot names it
	}
	return l, err
}

// appender writes a file from front to back.
type appender struct {
	file vfs.File
	size int64
}

// Write implements io.Writer.
func (a *appender) Write(b []byte) (int, error) {
	n, err := a.file.WriteAt(b, a.size)
	a.size += int64(n)
	return n, err
}

// referred says that a layer is in a snapshot, or will not be.
func (s *snapshotStore) referred(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making = slices.DeleteFunc(s.making, func(n string) bool { return n == name })
}

// sweep removes the layers that no snapshot names.
func (s *snapshotStore) sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweepLocked()
}

func (s *snapshotStore) sweepLocked() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, layerSuffix) || slices.Contains(s.making, name) || s.namedLocked(name) {
			continue
		}
		if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil && !isNotExist(err) {
			s.log.Warn("an old index stays", "file", name, "error", err)
		}
	}
	return nil
}

func (s *snapshotStore) namedLocked(layer string) bool {
	for _, m := range s.metas {
		if slices.Contains(s.info[m.ID].layers, layer) {
			return true
		}
	}
	return false
}

// checkLayers looks at the layers of a snapshot whose checksum was compared: those elsewhere are there, with a whole
// directory; those in it are whole.
func (s *snapshotStore) checkLayers(h *stateHead, state io.ReaderAt) error {
	at := h.length + h.machine
	for _, lh := range h.layers {
		if lh.name != "" {
			if _, err := s.openLayer(lh); err != nil {
				return err
			}
			continue
		}
		l, err := openLayer("", io.NewSectionReader(state, at, lh.size), lh.size)
		if err == nil {
			err = l.verify()
		}
		if err != nil {
			return err
		}
		at += lh.size
	}
	return nil
}

// namedState is an open snapshot whose layers are elsewhere. Restored here, it is read as it is; sent elsewhere, it reads
// as if all layers were inline.
type namedState struct {
	io.Reader
	file   vfs.File
	head   *stateHead
	at     io.ReaderAt // of the state in the file
	layers []*layer
}

// Close implements io.Closer.
func (n *namedState) Close() error { return n.file.Close() }

// openNamed opens the layers of a snapshot.
func (s *snapshotStore) openNamed(f vfs.File, h *stateHead, state io.ReaderAt) (*namedState, error) {
	n := &namedState{file: f, head: h, at: state}
	sum := crc32.New(castagnoli)
	parts := []io.Reader{bytes.NewReader(h.inline().encode()), io.NewSectionReader(state, h.length, h.machine)}
	for _, lh := range h.layers {
		l, err := s.openLayer(lh)
		if err != nil {
			return nil, err
		}
		n.layers = append(n.layers, l)
		parts = append(parts, &layerReader{layer: l})
	}
	n.Reader = io.MultiReader(io.TeeReader(io.MultiReader(parts...), sum), &sumReader{sum: sum})
	return n, nil
}

// restore makes the state, without reading the runs.
func (n *namedState) restore() (*fsmState, error) {
	b := make([]byte, n.head.machine)
	if _, err := n.at.ReadAt(b, n.head.length); err != nil {
		return nil, err
	}
	s := &fsmState{
		applied: n.head.applied, whole: n.head.flags&stateWhole != 0, machine: ledger.NewMachine(), index: newIndex(),
	}
	s.index.layers = n.layers
	if err := s.machine.Restore(b); err != nil {
		return nil, brokenState(err)
	}
	return s, nil
}

// sumReader reads a checksum when all before it was read.
type sumReader struct {
	sum  hash.Hash32
	rest []byte
	made bool
}

// Read implements io.Reader.
func (r *sumReader) Read(b []byte) (int, error) {
	if !r.made {
		r.rest, r.made = r.sum.Sum(nil), true
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// layerReader reads the bytes of a layer, every block compared with its checksum: what is damaged here is not to be sent.
type layerReader struct {
	layer *layer
	block int
	buf   []byte
	rest  []byte
	ended bool
}

// Read implements io.Reader.
func (r *layerReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *layerReader) more() error {
	l := r.layer
	if r.block < len(l.dir) {
		body, err := l.read(r.block, r.buf)
		if err != nil {
			return err
		}
		r.buf, r.rest = body[:0], body[:len(body)+blockTrailer]
		r.block++
		return nil
	}
	r.ended = true
	from := int64(0)
	if n := len(l.dir); n > 0 {
		from = l.dir[n-1].end
	}
	r.rest = make([]byte, l.size-from)
	_, err := l.src.ReadAt(r.rest, from)
	return err
}

// underneath returns the reader that the store opened, whatever raft has put around it.
func underneath(r io.Reader) io.Reader {
	for {
		w, ok := r.(raft.ReadCloserWrapper)
		if !ok {
			return r
		}
		r = w.WrappedReadCloser()
	}
}
