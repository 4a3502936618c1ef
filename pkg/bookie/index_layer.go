package bookie

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"sync/atomic"

	"geminga/pkg/ledger"
)

// layer is an immutable part of an index: the runs of a stretch of the log, sorted. Of it only the directory is in memory,
// 24 bytes for some hundred runs. Any number of goroutines may use it.
//
//	┌─────────┬─────────┬───┬──────────────────────────────────────────────┬─────────────────────────────────────────────┐
//	│ block 0 │ block 1 │ … │ directory, of each block:                    │ footer: magic "GBX1" | blocks u32 | runs u64│
//	│         │         │   │ ledger u64 | first entry u64 | where it ends │ lowest index u64 | highest u64 | crc32c u32 │
//	└─────────┴─────────┴───┴──────────────────────────────────────────────┴─────────────────────────────────────────────┘
//
// Numbers are big endian. The checksum covers directory and footer; blocks have their own. So to open a layer reads its
// directory, and to find a run reads one block.
type layer struct {
	name string // of its file; empty when it is in memory only
	src  io.ReaderAt
	size int64
	sum  uint32 // the footer's, which no other layer of the group has
	runs uint64
	low  uint64 // lowest index that it names
	high uint64
	dir  []blockRef
	last atomic.Pointer[block] // that was read last: who reads a ledger asks for neighbours
}

// blockRef says where a block is, and the key of its first run.
type blockRef struct {
	key
	end int64 // where it ends; it begins where the one before ended
}

// block is the content of a block.
type block struct {
	number int
	b      []byte
}

const (
	layerMagic  = "GBX1"
	layerRef    = 24
	layerFooter = 4 + 4 + 8 + 8 + 8 + 4
	// maxBlock bounds what is read at once, whatever a directory says. A run has 60 bytes at most.
	maxBlock = blockSize + 128
)

// layerWriter writes a layer. Runs come by ledger and first entry.
type layerWriter struct {
	w     *bufio.Writer
	size  int64
	block blockEncoder
	first key
	dir   []blockRef
	runs  uint64
	low   uint64
	high  uint64
}

func newLayerWriter(to io.Writer) *layerWriter {
	w := &layerWriter{w: bufio.NewWriterSize(to, 64<<10), low: ^uint64(0)}
	w.block.reset()
	return w
}

func (w *layerWriter) add(id ledger.ID, r run) error {
	if len(w.block.b) == 0 {
		w.first = key{id, r.first}
	}
	w.block.add(id, r)
	w.runs++
	w.low, w.high = min(w.low, r.index), max(w.high, r.index)
	if len(w.block.b) >= blockSize {
		return w.endBlock()
	}
	return nil
}

func (w *layerWriter) endBlock() error {
	n, err := w.w.Write(w.block.finish())
	w.size += int64(n)
	w.dir = append(w.dir, blockRef{w.first, w.size})
	w.block.reset()
	return err
}

// finish writes what comes after the blocks.
func (w *layerWriter) finish() error {
	if len(w.block.b) > 0 {
		if err := w.endBlock(); err != nil {
			return err
		}
	}
	b := make([]byte, 0, len(w.dir)*layerRef+layerFooter)
	for _, d := range w.dir {
		b = binary.BigEndian.AppendUint64(b, uint64(d.ledger))
		b = binary.BigEndian.AppendUint64(b, uint64(d.first))
		b = binary.BigEndian.AppendUint64(b, uint64(d.end))
	}
	b = append(b, layerMagic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(w.dir)))
	for _, v := range [...]uint64{w.runs, w.low, w.high} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := w.w.Write(b); err != nil {
		return err
	}
	return w.w.Flush()
}

// openLayer reads the directory of a layer. Errors that are not of reading are ErrDamaged.
func openLayer(name string, src io.ReaderAt, size int64) (*layer, error) {
	bad := func(what string) (*layer, error) { return nil, fmt.Errorf("%w: index %s: %s", ErrDamaged, name, what) }
	if size < layerFooter {
		return bad("too short")
	}
	footer := make([]byte, layerFooter)
	if _, err := src.ReadAt(footer, size-layerFooter); err != nil {
		return nil, err
	}
	be := binary.BigEndian
	blocks := int64(be.Uint32(footer[4:]))
	at := size - layerFooter - blocks*layerRef
	if string(footer[:4]) != layerMagic || at < 0 {
		return bad("footer")
	}
	b := make([]byte, size-at)
	if _, err := src.ReadAt(b, at); err != nil {
		return nil, err
	}
	l := &layer{name: name, src: src, size: size, sum: be.Uint32(b[len(b)-4:])}
	if crc32.Checksum(b[:len(b)-4], castagnoli) != l.sum {
		return bad("checksum of the directory")
	}
	l.runs, l.low, l.high = be.Uint64(footer[8:]), be.Uint64(footer[16:]), be.Uint64(footer[24:])
	l.dir = make([]blockRef, blocks)
	end := int64(0)
	for i := range l.dir {
		d := blockRef{key{ledger.ID(be.Uint64(b)), ledger.EntryID(be.Uint64(b[8:]))}, int64(be.Uint64(b[16:]))}
		if d.end <= end || d.end-end > maxBlock || d.end > at || i > 0 && !l.dir[i-1].less(d.key) {
			return bad("directory")
		}
		l.dir[i], end, b = d, d.end, b[layerRef:]
	}
	if end != at {
		return bad("directory")
	}
	return l, nil
}

// read returns the runs of a block, checked. It uses buf if it is large enough.
func (l *layer) read(number int, buf []byte) ([]byte, error) {
	from := int64(0)
	if number > 0 {
		from = l.dir[number-1].end
	}
	n := int(l.dir[number].end - from)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := l.src.ReadAt(buf, from); err != nil {
		return nil, fmt.Errorf("%w: index %s: %w", ErrDamaged, l.name, err)
	}
	b, err := checkBlock(buf)
	if err != nil {
		return nil, fmt.Errorf("index %s, offset %d: %w", l.name, from, err)
	}
	return b, nil
}

// find returns the run that holds an entry.
func (l *layer) find(id ledger.ID, entry ledger.EntryID) (run, bool, error) {
	want := key{id, entry}
	number := sort.Search(len(l.dir), func(i int) bool { return want.less(l.dir[i].key) }) - 1
	if number < 0 {
		return run{}, false, nil
	}
	at := l.last.Load()
	if at == nil || at.number != number {
		b, err := l.read(number, nil)
		if err != nil {
			return run{}, false, err
		}
		at = &block{number, b}
		l.last.Store(at)
	}
	found, ok := run{}, false
	d := decodeBlock(at.b)
	for d.next() && !want.less(key{d.ledger, d.run.first}) {
		if found, ok = d.run, d.ledger == id && d.run.end() >= entry; ok {
			break
		}
	}
	if d.bad {
		return run{}, false, fmt.Errorf("%w: index %s, block %d", ErrDamaged, l.name, number)
	}
	return found, ok, nil
}

// verify compares all checksums, and says what is wrong first.
func (l *layer) verify() error {
	c := l.cursor()
	before, runs := key{}, uint64(0)
	for ; c.valid(); c.next() {
		at := key{c.id, c.at.first}
		if runs > 0 && !before.less(at) {
			return fmt.Errorf("%w: index %s: order", ErrDamaged, l.name)
		}
		if c.at.index < l.low || c.at.index > l.high {
			return fmt.Errorf("%w: index %s: proposal %d", ErrDamaged, l.name, c.at.index)
		}
		before = at
		runs++
	}
	if c.err == nil && runs != l.runs {
		return fmt.Errorf("%w: index %s: %d runs of %d", ErrDamaged, l.name, runs, l.runs)
	}
	return c.err
}
