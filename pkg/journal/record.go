package journal

// Record is one entry of a group's log.
type Record struct {
	Index uint64
	Term  uint64
	Type  uint8
	Data  []byte
	Extra []byte // extensions: opaque to the journal, empty as a rule
	Stamp int64  // nanoseconds since 1970, opaque to the journal
}

// place is where the record is once it was written at an offset of a segment.
func (r *Record) place(segment uint64, at int64) place {
	size := recordHeaderLen + len(r.Data) + len(r.Extra)
	return place{segment: uint32(segment), offset: uint32(at), length: uint32(size)}
}

// Place says where a record is. It stays valid, whatever happens to the group's log, until the segment is recycled.
type Place struct {
	Segment uint64
	Offset  int64
	Length  int32 // of the whole record, header included
}

// DataOffset is where the record's Data begins in the segment.
func (p Place) DataOffset() int64 { return p.Offset + recordHeaderLen }
