package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Sizes of the format drawn in doc.go.
const (
	sectorSize       = 512
	segmentHeaderLen = sectorSize
	batchHeaderLen   = 48
	recordHeaderLen  = 48

	segmentMagic  = uint64(0x314c4e524a474d47) // "GMGJRNL1"
	batchMagic    = uint32(0x54414247)         // "GBAT"
	formatVersion = 2
)

// Kinds of records.
const (
	kindEntry    = uint8(1) // an entry of a group's log
	kindTruncate = uint8(2) // the log ends before index
	kindCompact  = uint8(3) // the log begins after index
	kindReset    = uint8(4) // the group is as if it had never been, but that it keeps what is held up to index
	kindStable   = uint8(5) // extra = key, data = value
	kindState    = uint8(6) // in a head only: index = first, term = last, stamp = operations so far, data = cuts
	kindMove     = uint8(7) // a copy of an entry that is held: its place is here now
	kindKeep     = uint8(8) // data = what is kept of an entry, extra = which pieces that is, empty for all of it
)

// Flags of a batch.
const (
	flagHead   = uint32(1) // the first batch of a segment: the state of all groups
	flagEnd    = uint32(2) // the last batch of a journal that was closed
	flagUnsure = uint32(4) // with flagHead: groups that are not in the head may have lost records
)

// Flags of a segment.
const segmentSynced = uint32(1) // each batch was synced before the next was written

// stateLost in the type of a state record says that records of the group were lost for good.
const stateLost = uint8(1)

// seed is the start value of every checksum over a header in a segment. It makes what a recycled file held before, and
// what belongs to another place in the same file, invalid.
//
// Two segments never have the same seed: the steps below can all be undone, and numbers have 32 bits. A checksum that
// starts from another value always ends in another one, over the same bytes.
type seed uint32

func seedOf(segment uint64) seed {
	h := uint32(segment)
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return seed(h ^ h>>16)
}

func (s seed) sum(offset int64, header []byte) uint32 {
	return crc32.Update(uint32(s)^uint32(offset), castagnoli(), header)
}

// castagnoli returns the table, which hash/crc32 builds once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// dataSum is the checksum over what follows a record's header.
func dataSum(data, extra []byte) uint32 {
	sum := crc32.Update(0, castagnoli(), data)
	if len(extra) > 0 {
		sum = crc32.Update(sum, castagnoli(), extra)
	}
	return sum
}

// segmentHeader is the first sector of a segment.
type segmentHeader struct {
	flags   uint32
	id      uint64 // of the journal
	segment uint64
	first   uint64 // number of the segment's first batch: the segment before ends just before it
	stamp   int64
	sum     uint32 // set by parse
}

func (h *segmentHeader) put(b []byte) {
	clear(b[:segmentHeaderLen])
	le := binary.LittleEndian
	le.PutUint64(b[0:], segmentMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], h.flags)
	le.PutUint64(b[16:], h.id)
	le.PutUint64(b[24:], h.segment)
	le.PutUint64(b[32:], h.first)
	le.PutUint64(b[40:], uint64(h.stamp))
	le.PutUint32(b[48:], seedOf(h.segment).sum(0, b[:48]))
}

// parse reports whether b is the valid header of a segment. The error is about a version this code does not know.
func (h *segmentHeader) parse(b []byte, segment uint64) (bool, error) {
	le := binary.LittleEndian
	if len(b) < 52 || le.Uint64(b) != segmentMagic || le.Uint32(b[48:]) != seedOf(segment).sum(0, b[:48]) {
		return false, nil
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return false, fmt.Errorf("%w: segment %d has version %d, this is version %d", ErrForeign, segment, v, formatVersion)
	}
	h.flags, h.id, h.segment = le.Uint32(b[12:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	h.first, h.stamp, h.sum = le.Uint64(b[32:]), int64(le.Uint64(b[40:])), le.Uint32(b[48:])
	return h.segment == segment, nil
}

// batchHeader opens every write. Batches start at sectors, so that no write touches a sector that holds what an
// earlier one was answered for.
type batchHeader struct {
	number uint64
	length uint32 // of the records, without this header and the padding behind them
	count  uint32
	groups uint64 // bit g%64 is set for each group g in the batch
	before uint64 // groups of the batch before
	flags  uint32
}

func (h *batchHeader) put(b []byte, s seed, offset int64) {
	le := binary.LittleEndian
	le.PutUint32(b[4:], batchMagic)
	le.PutUint64(b[8:], h.number)
	le.PutUint32(b[16:], h.length)
	le.PutUint32(b[20:], h.count)
	le.PutUint64(b[24:], h.groups)
	le.PutUint64(b[32:], h.before)
	le.PutUint32(b[40:], h.flags)
	le.PutUint32(b[44:], 0)
	le.PutUint32(b, s.sum(offset, b[4:batchHeaderLen]))
}

// end is where the batch at off ends.
func (h *batchHeader) end(off int64) int64 { return off + padded(batchHeaderLen+int64(h.length)) }

func (h *batchHeader) parse(b []byte, s seed, offset int64) bool {
	le := binary.LittleEndian
	if len(b) < batchHeaderLen || le.Uint32(b[4:]) != batchMagic || le.Uint32(b) != s.sum(offset, b[4:batchHeaderLen]) {
		return false
	}
	h.number, h.length, h.count = le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:])
	h.groups, h.before, h.flags = le.Uint64(b[24:]), le.Uint64(b[32:]), le.Uint32(b[40:])
	return true
}

// recordHeader opens every record.
type recordHeader struct {
	sum    uint32 // over data and extra
	length uint32 // of data
	extra  uint32 // length of extra
	group  uint32
	kind   uint8
	typ    uint8
	term   uint64
	index  uint64
	stamp  int64
}

// size is the length of the whole record.
func (h *recordHeader) size() int64 { return recordHeaderLen + int64(h.length) + int64(h.extra) }

func (h *recordHeader) put(b []byte, s seed, offset int64) {
	le := binary.LittleEndian
	le.PutUint32(b[4:], h.sum)
	le.PutUint32(b[8:], h.length)
	le.PutUint32(b[12:], h.extra)
	le.PutUint32(b[16:], h.group)
	b[20], b[21], b[22], b[23] = h.kind, h.typ, 0, 0
	le.PutUint64(b[24:], h.term)
	le.PutUint64(b[32:], h.index)
	le.PutUint64(b[40:], uint64(h.stamp))
	le.PutUint32(b, s.sum(offset, b[4:recordHeaderLen]))
}

func (h *recordHeader) parse(b []byte, s seed, offset int64) bool {
	le := binary.LittleEndian
	if len(b) < recordHeaderLen || le.Uint32(b) != s.sum(offset, b[4:recordHeaderLen]) {
		return false
	}
	h.sum, h.length, h.extra = le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	h.group, h.kind, h.typ = le.Uint32(b[16:]), b[20], b[21]
	h.term, h.index, h.stamp = le.Uint64(b[24:]), le.Uint64(b[32:]), int64(le.Uint64(b[40:]))
	return h.kind >= kindEntry && h.kind <= kindKeep
}

// isEntry says that a kind has an entry's bytes, or pieces of them.
func isEntry(kind uint8) bool { return kind == kindEntry || kind == kindMove || kind == kindKeep }

// groupBit is a group's bit in batchHeader.groups.
func groupBit(group uint32) uint64 { return 1 << (group % 64) }

// padded rounds up to whole sectors.
func padded(n int64) int64 { return (n + sectorSize - 1) &^ (sectorSize - 1) }
