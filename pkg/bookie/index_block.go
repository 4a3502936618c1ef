package bookie

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"geminga/pkg/ledger"
)

// A block is a piece of a layer: some runs, by ledger and first entry.
//
//	┌──────────────────────────────────────────────┬────────────┐
//	│ run, run, …                                  │ crc32c u32 │
//	└──────────────────────────────────────────────┴────────────┘
//	run:  2 × count (+ 1: ledger less that of the run before | first) | index less that of the run before, zigzag | offset | length
//
// All numbers of a run are varints. Without the ledger a run belongs to that of the run before and goes on where that
// ended. So most runs take 6 to 8 bytes. A block stands for itself: before its first run all is 0.
const (
	blockSize    = 4 << 10 // about; a block ends with the run that reaches it
	blockTrailer = 4
)

// key is where a run stands in a layer.
type key struct {
	ledger ledger.ID
	first  ledger.EntryID
}

func (k key) less(than key) bool {
	return k.ledger < than.ledger || k.ledger == than.ledger && k.first < than.first
}

// blockEncoder makes blocks.
type blockEncoder struct {
	b      []byte
	ledger ledger.ID
	next   ledger.EntryID // that the run before would be followed by; -1 at the beginning
	index  uint64
}

func (e *blockEncoder) reset() { *e = blockEncoder{b: e.b[:0], next: -1} }

func (e *blockEncoder) add(id ledger.ID, r run) {
	v := uint64(r.count) << 1
	if e.next == r.first && e.ledger == id {
		e.b = binary.AppendUvarint(e.b, v)
	} else {
		e.b = binary.AppendUvarint(e.b, v|1)
		e.b = binary.AppendUvarint(e.b, uint64(id-e.ledger))
		e.b = binary.AppendUvarint(e.b, uint64(r.first))
	}
	e.b = binary.AppendVarint(e.b, int64(r.index-e.index))
	e.b = binary.AppendUvarint(e.b, uint64(r.offset))
	e.b = binary.AppendUvarint(e.b, uint64(r.length))
	e.ledger, e.next, e.index = id, r.end()+1, r.index
}

// finish ends the block with its checksum.
func (e *blockEncoder) finish() []byte {
	return binary.BigEndian.AppendUint32(e.b, crc32.Checksum(e.b, castagnoli))
}

// blockDecoder reads the runs of a block whose checksum was compared. It does not trust what it reads nevertheless.
type blockDecoder struct {
	b      []byte
	ledger ledger.ID
	run    run
	bad    bool
}

func decodeBlock(b []byte) blockDecoder { return blockDecoder{b: b} }

// next steps to the next run. False: there is none, or bad says that it makes no sense.
func (d *blockDecoder) next() bool {
	if len(d.b) == 0 || d.bad {
		return false
	}
	v := d.number(2*math.MaxUint32 + 1)
	d.run.first = d.run.end() + 1
	if v&1 != 0 {
		d.ledger += ledger.ID(d.number(math.MaxUint64))
		d.run.first = ledger.EntryID(d.number(math.MaxInt64))
	}
	d.run.count = uint32(v >> 1)
	delta, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad = true
		return false
	}
	d.b = d.b[n:]
	d.run.index += uint64(delta)
	d.run.offset, d.run.length = uint32(d.number(math.MaxUint32)), uint32(d.number(math.MaxUint32))
	d.bad = d.bad || d.run.count == 0 || d.run.first < 0 || d.run.end() < d.run.first
	return !d.bad
}

func (d *blockDecoder) number(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// checkBlock compares the checksum and returns the runs.
func checkBlock(b []byte) ([]byte, error) {
	if len(b) < blockTrailer {
		return nil, fmt.Errorf("%w: block of an index of %d bytes", ErrDamaged, len(b))
	}
	body := b[:len(b)-blockTrailer]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return nil, fmt.Errorf("%w: block of an index: checksum", ErrDamaged)
	}
	return body, nil
}
