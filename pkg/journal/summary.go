package journal

import (
	"encoding/binary"
	"hash/crc32"
)

// summary is what recovery would find in a sealed segment: its batches and their records, without the bytes of entries.
// It lies beside the segment in NNNNNNNNNNNN.sum, so that a restart reads some bytes for each record instead of all
// bytes of the journal.
//
//	┌─────────┬──────────┬──────────────────────────┬───────────────────────────┬──────┐
//	│ magic 8 │version 4 │ sum of segment's header 4│ records, 0 flags, records…│ sum 4│
//	└─────────┴──────────┴──────────────────────────┴───────────────────────────┴──────┘
//
// A record is a tag, then what the tag does not say, as varints:
//
//	kind 4 bits │ same group as before │ next index │ has extra      group, index, length, extra
//
// and what a stable value or a state says. A tag of 0 ends a batch. Batches are numbered on from the header's, and
// everything lies one behind the other, so neither numbers nor offsets are told.
//
// It is a cache, and never made durable. One that is not whole, or not of just this life of the segment, does not exist:
// then the segment itself is read, and the summary made again.
type summary struct {
	b     []byte
	group uint32
	index uint64
}

const (
	summaryMagic     = uint64(0x314d5553474a4d47) // "GMJGSUM1"
	summaryVersion   = 1
	summaryHeaderLen = 16

	tagSameGroup = 1 << 4
	tagNextIndex = 1 << 5
	tagExtra     = 1 << 6
	tagKind      = 1<<4 - 1
)

// begin starts the summary of the segment that has the header.
func (s *summary) begin(header []byte) {
	*s = summary{b: binary.LittleEndian.AppendUint64(s.b[:0], summaryMagic)}
	s.b = binary.LittleEndian.AppendUint32(s.b, summaryVersion)
	s.b = append(s.b, headerSum(header)...)
}

// headerSum is the checksum in the header of a segment, which no other segment has, nor another life of this one.
func headerSum(header []byte) []byte { return header[48:52] }

// record adds a record of the batch that ends next.
func (s *summary) record(h *recordHeader, data, extra []byte) {
	tag := h.kind
	if h.group == s.group {
		tag |= tagSameGroup
	}
	if h.index == s.index+1 {
		tag |= tagNextIndex
	}
	if h.extra > 0 {
		tag |= tagExtra
	}
	s.b = append(s.b, tag)
	if tag&tagSameGroup == 0 {
		s.b = binary.AppendUvarint(s.b, uint64(h.group))
	}
	if tag&tagNextIndex == 0 {
		s.b = binary.AppendUvarint(s.b, h.index)
	}
	s.b = binary.AppendUvarint(s.b, uint64(h.length))
	if tag&tagExtra != 0 {
		s.b = binary.AppendUvarint(s.b, uint64(h.extra))
	}
	s.group, s.index = h.group, h.index
	switch h.kind {
	case kindState:
		s.b = append(s.b, h.typ)
		s.b = binary.AppendUvarint(s.b, h.term)
		s.b = binary.AppendUvarint(s.b, uint64(h.stamp))
		s.b = append(s.b, data...)
	case kindStable:
		s.b = append(append(s.b, data...), extra...)
	}
}

// batch ends a batch.
func (s *summary) batch(flags uint32) {
	s.b = append(s.b, 0)
	s.b = binary.AppendUvarint(s.b, uint64(flags))
}

// whole returns the file's content.
func (s *summary) whole() []byte {
	return binary.LittleEndian.AppendUint32(s.b, crc32.Checksum(s.b, castagnoli()))
}

// summaryReader reads a summary, batch after batch. What it holds has a valid checksum, and is nevertheless not
// believed to be more than bytes.
type summaryReader struct {
	b      []byte
	group  uint32
	index  uint64
	number uint64 // of the next batch
	off    int64  // where it is
	before uint64 // groups of the batch before
}

// newSummaryReader returns nil if b is not the summary of the segment that has the header.
func newSummaryReader(b []byte, h *segmentHeader) *summaryReader {
	n := len(b) - 4
	le := binary.LittleEndian
	if n < summaryHeaderLen || le.Uint64(b) != summaryMagic || le.Uint32(b[8:]) != summaryVersion ||
		le.Uint32(b[n:]) != crc32.Checksum(b[:n], castagnoli()) || le.Uint32(b[12:]) != h.sum {
		return nil
	}
	return &summaryReader{b: b[summaryHeaderLen:n], number: h.first, off: segmentHeaderLen}
}

// next reads a batch, whose records it appends to list, and returns where it is. False: there is none, or none that
// makes sense.
func (s *summaryReader) next(list []found) (batchHeader, int64, []found, bool) {
	h, off := batchHeader{number: s.number, before: s.before}, s.off
	pos := off + batchHeaderLen
	for {
		if len(s.b) == 0 {
			return h, 0, list, false
		}
		tag := s.b[0]
		s.b = s.b[1:]
		if tag == 0 {
			break
		}
		f := found{off: pos, good: true}
		if !s.record(tag, &f) {
			return h, 0, list, false
		}
		list = append(list, f)
		pos += f.size()
		h.count++
		h.groups |= groupBit(f.group)
	}
	flags, ok := s.number64()
	if !ok || pos-off > maxSegmentSize+maxRecordSize {
		return h, 0, list, false
	}
	h.flags, h.length = uint32(flags), uint32(pos-off-batchHeaderLen)
	s.number, s.before, s.off = s.number+1, h.groups, h.end(off)
	return h, off, list, true
}

func (s *summaryReader) record(tag byte, f *found) bool {
	group, index, extra, ok := uint64(s.group), s.index+1, uint64(0), true
	if tag&tagSameGroup == 0 {
		group, ok = s.number64()
	}
	if ok && tag&tagNextIndex == 0 {
		index, ok = s.number64()
	}
	length, good := s.number64()
	ok = ok && good
	if ok && tag&tagExtra != 0 {
		extra, ok = s.number64()
	}
	if !ok || tag&tagKind > kindKeep || length > maxRecordSize || extra > maxRecordSize {
		return false
	}
	f.kind, f.group, f.index, f.length, f.extra = tag&tagKind, uint32(group), index, uint32(length), uint32(extra)
	s.group, s.index = f.group, f.index
	switch f.kind {
	case kindState:
		return s.state(f)
	case kindStable:
		var key []byte
		f.val, ok = s.bytes(length)
		key, good = s.bytes(extra)
		f.key = string(key)
		return ok && good
	}
	return true
}

func (s *summaryReader) state(f *found) bool {
	typ, ok := s.bytes(1)
	if !ok {
		return false
	}
	term, good := s.number64()
	stamp, whole := s.number64()
	f.typ, f.term, f.stamp = typ[0], term, int64(stamp)
	f.val, ok = s.bytes(uint64(f.length))
	return ok && good && whole
}

func (s *summaryReader) number64() (uint64, bool) {
	v, n := binary.Uvarint(s.b)
	if n <= 0 {
		return 0, false
	}
	s.b = s.b[n:]
	return v, true
}

func (s *summaryReader) bytes(n uint64) ([]byte, bool) {
	if n > uint64(len(s.b)) {
		return nil, false
	}
	b := s.b[:n:n]
	s.b = s.b[n:]
	return b, true
}

// fits reports whether the summary tells of all batches of a segment that is sealed.
func (s *summaryReader) fits(f *file, b bounds) bool {
	all := *s
	for list := []found(nil); ; {
		h, off, some, ok := all.next(list[:0])
		list = some
		switch {
		case !ok || h.end(off) > f.size:
			return false
		case h.flags&flagEnd != 0:
			return len(all.b) == 0 && (b.last == 0 || b.last == h.number)
		}
	}
}
