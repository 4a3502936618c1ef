package journal

import (
	"encoding/binary"
	"fmt"

	"geminga/pkg/vfs"
)

// scanner reads a segment from front to back through one buffer, which serves all segments.
type scanner struct {
	file    vfs.File
	segment uint64
	seed    seed
	size    int64
	buf     []byte
	from    int64 // offset of buf[0]
}

// scanChunk is how much is read at a time.
const scanChunk = 1 << 20

func (s *scanner) reset(file vfs.File, segment uint64, size int64) {
	s.file, s.segment, s.seed, s.size = file, segment, seedOf(segment), size
	s.buf, s.from = s.buf[:0], 0
}

// at returns n bytes at off, valid until the next call; nil if the segment ends before.
func (s *scanner) at(off int64, n int64) ([]byte, error) {
	if off < 0 || n < 0 || n > s.size-off {
		return nil, nil
	}
	if off < s.from || off+n > s.from+int64(len(s.buf)) {
		if err := s.fill(off, n); err != nil {
			return nil, err
		}
	}
	return s.buf[off-s.from:][:n], nil
}

// fill moves what is still wanted to the front of the buffer and reads what follows it.
func (s *scanner) fill(off, n int64) error {
	kept := 0
	if off >= s.from && off < s.from+int64(len(s.buf)) {
		kept = copy(s.buf, s.buf[off-s.from:])
	}
	want := int(min(max(n, scanChunk), s.size-off))
	if cap(s.buf) < want {
		grown := make([]byte, want)
		copy(grown, s.buf[:kept])
		s.buf = grown
	}
	s.buf, s.from = s.buf[:want], off
	if _, err := s.file.ReadAt(s.buf[kept:], off+int64(kept)); err != nil {
		s.buf = s.buf[:0]
		return fmt.Errorf("journal: read segment %d at %d: %w", s.segment, off+int64(kept), err)
	}
	return nil
}

// batch reads the header of a batch. False: there is none.
func (s *scanner) batch(off int64) (batchHeader, bool, error) {
	var h batchHeader
	b, err := s.at(off, batchHeaderLen)
	if err != nil || b == nil || binary.LittleEndian.Uint32(b[4:]) != batchMagic {
		return h, false, err
	}
	ok := h.parse(b, s.seed, off) && int64(h.length) <= s.size-off-batchHeaderLen
	return h, ok, nil
}

// next looks for the first batch from off on whose number is at least min. Batches of an earlier life of the file are
// not valid under this segment's seed.
func (s *scanner) next(off int64, min uint64) (batchHeader, int64, bool, error) {
	for ; off+batchHeaderLen <= s.size; off += sectorSize {
		h, ok, err := s.batch(off)
		if err != nil {
			return h, 0, false, err
		}
		if ok && h.number >= min {
			return h, off, true, nil
		}
	}
	return batchHeader{}, 0, false, nil
}

// found is a record of a batch.
type found struct {
	recordHeader
	off  int64
	good bool
	key  string // of a stable value
	val  []byte // of a stable value or a state
}

// records decodes a batch into list. Whole is false if anything in it is bad; known is false if some of its records
// could not even be told.
func (s *scanner) records(b *batchHeader, off int64, list []found) (out []found, whole, known bool, err error) {
	whole, pos, end := true, off+batchHeaderLen, off+batchHeaderLen+int64(b.length)
	for pos < end {
		f := found{off: pos}
		head, err := s.at(pos, min(recordHeaderLen, end-pos))
		if err != nil {
			return list, false, false, err
		}
		if !f.parse(head, s.seed, pos) || f.size() > end-pos {
			return list, false, false, nil
		}
		body, err := s.at(pos+recordHeaderLen, f.size()-recordHeaderLen)
		if err != nil {
			return list, false, false, err
		}
		f.good = len(body) == 0 && f.sum == 0 || dataSum(body, nil) == f.sum
		whole = whole && f.good
		if f.good && (f.kind == kindStable || f.kind == kindState) {
			f.val, f.key = append([]byte{}, body[:f.length]...), string(body[f.length:])
		}
		list = append(list, f)
		pos += f.size()
	}
	known = len(list) == int(b.count)
	return list, whole && known, known, nil
}

// visitor is shown intact records. What it is given is valid during the call.
type visitor struct {
	entry func(group uint32, rec *Record, p Place) error
	kept  func(group uint32, k *Kept, p Place) error
}

// show reads an intact record once more, for a visitor who wants it.
func (s *scanner) show(f *found, v *visitor) error {
	if !f.good || !isEntry(f.kind) || f.kind == kindKeep && v.kept == nil || f.kind != kindKeep && v.entry == nil {
		return nil
	}
	b, err := s.at(f.off, f.size())
	if err != nil {
		return err
	}
	place := Place{Segment: s.segment, Offset: f.off, Length: int32(f.size())}
	rec := f.record(b)
	if f.kind == kindKeep {
		return v.kept(f.group, &Kept{rec.Index, rec.Term, decodePieces(rec.Extra), rec.Data}, place)
	}
	return v.entry(f.group, &rec, place)
}
