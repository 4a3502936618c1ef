package journal

import (
	"errors"
	"fmt"
	"io"
)

// Get reads a record of the log into rec, whose slices are fresh memory.
func (g *Group) Get(index uint64, rec *Record) error {
	for {
		p, err := g.locate(index)
		if err != nil {
			return err
		}
		err = g.load(index, p, rec)
		if !errors.Is(err, errGone) {
			return err
		}
		if again, err := g.locate(index); err == nil && again == p {
			return ErrNotFound
		} // it was moved meanwhile, and the segment recycled
	}
}

// load reads the record at p, which has to be that of index.
func (g *Group) load(index uint64, p Place, rec *Record) error {
	h, b, err := g.read(index, p, nil)
	if err == nil {
		*rec = h.record(b)
	}
	return err
}

// read reads the record at p, which has to be that of index, as fetch does. A *CorruptError names the index, also when
// the damage hides whose record it was.
func (g *Group) read(index uint64, p Place, buf []byte) (recordHeader, []byte, error) {
	h, b, err := g.j.fetch(p, buf)
	var why *CorruptError
	switch {
	case errors.As(err, &why):
		why.Group, why.Index = g.id, index
	case err == nil && (h.group != g.id || h.index != index):
		reason := fmt.Sprintf("holds index %d of group %d", h.index, h.group)
		err = &CorruptError{g.id, index, p.Segment, p.Offset, reason}
	}
	return h, b, err
}

// recent returns a piece of a whole record from memory, where nothing but the header needs to be checked, and so nothing
// else of a large record is looked at. False: the record has to be read. On the disk a piece cannot be checked alone.
func (g *Group) recent(index uint64, p Place, piece Piece, buf []byte) ([]byte, bool) {
	if piece.end() > uint64(p.Length) {
		return nil, false
	}
	if need := max(recordHeaderLen, int(piece.Length)); cap(buf) < need {
		buf = make([]byte, need)
	}
	var h recordHeader
	head := buf[:recordHeaderLen]
	if !g.j.tail.read(p.Segment, p.Offset, head) || !h.parse(head, seedOf(p.Segment), p.Offset) {
		return nil, false
	}
	pruned := h.kind == kindKeep && h.extra > 0
	if h.group != g.id || h.index != index || !isEntry(h.kind) || pruned || piece.end() > uint64(h.length) {
		return nil, false
	}
	buf = buf[:piece.Length]
	if !g.j.tail.read(p.Segment, p.DataOffset()+int64(piece.Offset), buf) {
		return nil, false
	}
	g.j.metrics.read(true)
	return buf, true
}

// record returns what the header and the bytes that begin with it say.
func (h *recordHeader) record(b []byte) Record {
	end := recordHeaderLen + int(h.length)
	rec := Record{Index: h.index, Term: h.term, Type: h.typ, Stamp: h.stamp, Data: b[recordHeaderLen:end:end]}
	if h.extra > 0 {
		rec.Extra = b[end:]
	}
	return rec
}

func (g *Group) locate(index uint64) (Place, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	p, ok := g.log.at(index)
	if !ok {
		return Place{}, ErrNotFound
	}
	if err := g.damageLocked(); err != nil {
		return Place{}, err
	}
	return p.public(), nil
}

// ReadAt returns the Data of the record at p, checked. It uses buf if the record fits into its capacity; the result
// starts where buf starts then. A place in a segment that was recycled is ErrNotFound.
func (j *Journal) ReadAt(p Place, buf []byte) ([]byte, error) {
	h, b, err := j.fetch(p, buf)
	if err != nil {
		return nil, err
	}
	n := copy(b, b[recordHeaderLen:recordHeaderLen+int(h.length)])
	return b[:n], nil
}

// errGone is ErrNotFound with the place.
var errGone = fmt.Errorf("segment recycled: %w", ErrNotFound)

// fetch reads a whole record, from memory if it is there, and checks it.
func (j *Journal) fetch(p Place, buf []byte) (recordHeader, []byte, error) {
	var h recordHeader
	if p.Length < recordHeaderLen || p.Offset < segmentHeaderLen || p.Offset > maxSegmentSize+maxRecordSize {
		return h, nil, fmt.Errorf("journal: %+v is not the place of a record", p)
	}
	if cap(buf) < int(p.Length) {
		buf = make([]byte, p.Length)
	}
	buf = buf[:p.Length]
	memory := j.tail.read(p.Segment, p.Offset, buf)
	if !memory {
		if err := j.readFile(p, buf); err != nil {
			return h, nil, err
		}
	}
	j.metrics.read(memory)
	reason := ""
	switch {
	case !h.parse(buf, seedOf(p.Segment), p.Offset):
		reason = "checksum of the header"
	case h.size() != int64(p.Length) || !isEntry(h.kind):
		reason = "not the record that was asked for"
	case !memory && dataSum(buf[recordHeaderLen:], nil) != h.sum:
		reason = "checksum of the record"
	}
	if reason != "" {
		j.metrics.damaged(1)
		return h, nil, &CorruptError{h.group, h.index, p.Segment, p.Offset, reason}
	}
	return h, buf, nil
}

func (j *Journal) readFile(p Place, buf []byte) error {
	seg, err := j.segs.acquire(p.Segment)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("segment %d: %w", p.Segment, errGone)
	}
	if err != nil {
		return err
	}
	defer j.segs.release(seg)
	_, err = seg.file.ReadAt(buf, p.Offset)
	if errors.Is(err, io.EOF) {
		j.metrics.damaged(1)
		return &CorruptError{0, 0, p.Segment, p.Offset, "the segment ends before the record does"}
	}
	if err != nil {
		return fmt.Errorf("journal: read segment %d at %d: %w", p.Segment, p.Offset, err)
	}
	return nil
}
