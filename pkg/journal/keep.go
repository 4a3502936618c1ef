package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Piece is a part of a record's Data as it was appended.
type Piece struct{ Offset, Length uint32 }

func (p Piece) end() uint64 { return uint64(p.Offset) + uint64(p.Length) }

// Kept is what Keep is to hold of a record.
type Kept struct {
	Index, Term uint64
	// Pieces says which parts of the record's Data there are, ascending and apart. Empty: Data is all of it.
	Pieces []Piece
	// Data has the pieces, one after the other.
	Data []byte
}

// Held is a record that a group holds: one of its log, or one that was compacted away and not released.
type Held struct {
	Index   uint64
	Place   Place // Length is what it takes of the segment
	InLog   bool
	Damaged bool // it cannot be read, or may be out of date: Keep heals it, if it is not in the log
	Pruned  bool // only pieces are there, those of the last Keep
}

// Keep holds records out of the log, instead of what was held under their indexes until now: what was fetched from
// elsewhere, or what is left to be needed of a record. Each must lie before the beginning of the log: ErrInLog. They are
// durable when it returns nil; after an error some of them may be kept. It keeps no reference to recs.
func (g *Group) Keep(recs []Kept) error {
	list := make([]carried, len(recs))
	for i := range recs {
		c, err := recs[i].carry(g.j.opts.MaxRecordSize)
		if err != nil {
			return err
		}
		list[i] = c
	}
	return g.carry(list)
}

// Move copies records to the end of the journal, as a rule to free the segments in which they are, and they are held
// there from then on. Index and Place say what and from where; a record that is not at that place any more is left out,
// and so is one that cannot be read, which the error names with a *CorruptError. What was moved is durable when it
// returns nil or only such errors.
func (g *Group) Move(recs []Held) error {
	var damage []error
	for len(recs) > 0 {
		list, size := []carried(nil), 0
		for len(recs) > 0 && size < carryBytes {
			c, err := g.pick(recs[0].Index, recs[0].Place)
			switch {
			case errors.Is(err, ErrCorrupt):
				damage = append(damage, err)
			case err == nil:
				list = append(list, c)
				size += int(c.size())
			case !errors.Is(err, ErrNotFound):
				return errors.Join(append(damage, err)...)
			}
			recs = recs[1:]
		}
		if err := g.carry(list); err != nil {
			return errors.Join(append(damage, err)...)
		}
	}
	return errors.Join(damage...)
}

// Release forgets that records are kept. Those in the log stay, and so does what is not held. It is not durable: after
// a restart the records are held again, unless their segments were recycled, and the caller releases them again.
func (g *Group) Release(indexes []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, index := range indexes {
		g.release(index)
	}
}

// Held visits what the group holds, ascending by index, until visit returns false. It takes no lock during a visit, and
// is no snapshot: what changes meanwhile is visited as it was or as it is; what is held all the time, exactly once.
// Entries of the log whose place is lost are left out.
func (g *Group) Held(visit func(Held) bool) {
	const some = 1024
	list := make([]held, 0, some+chunkSpan)
	for next := uint64(0); ; next = list[len(list)-1].index + 1 {
		g.mu.RLock()
		list = g.appendTo(list[:0], next, some)
		first := g.log.first
		g.mu.RUnlock()
		if len(list) == 0 {
			return
		}
		for _, h := range list {
			if !visit(h.public(first)) {
				return
			}
		}
	}
}

func (h held) public(first uint64) Held {
	return Held{
		Index: h.index, Place: h.place.public(), InLog: first != 0 && h.index >= first,
		Damaged: !h.place.whole(), Pruned: h.place.length&prunedBit != 0,
	}
}

// ReadPiece returns a part of the Data of a record as it was appended, checked. It uses buf if the record, headers
// included, fits into its capacity; the result starts where buf starts then.
//
// ErrNotFound says that this group does not hold the index, or not that part of it; nothing follows from that for what
// others hold. A *CorruptError says that it is held and cannot be read. Damage elsewhere in the group does not matter.
func (g *Group) ReadPiece(index uint64, piece Piece, buf []byte) ([]byte, error) {
	for {
		p, err := g.holds(index)
		if err != nil {
			return nil, err
		}
		b, err := g.readPiece(index, p, piece, buf)
		if errors.Is(err, errGone) {
			if again, err := g.holds(index); err == nil && again == p {
				return nil, ErrNotFound
			}
			continue // it was moved meanwhile, and the segment recycled
		}
		return b, err
	}
}

// ReadHeld returns what is held of a record, checked: all of it, or the pieces of the last Keep. Errors are those of
// ReadPiece.
func (g *Group) ReadHeld(index uint64) (Kept, error) {
	for {
		p, err := g.holds(index)
		if err != nil {
			return Kept{}, err
		}
		h, b, err := g.read(index, p.public(), nil)
		if err == nil {
			rec := h.record(b)
			k := Kept{Index: rec.Index, Term: rec.Term, Data: rec.Data}
			if h.kind == kindKeep {
				k.Pieces = decodePieces(rec.Extra)
			}
			return k, nil
		}
		if !errors.Is(err, errGone) {
			return Kept{}, err
		}
		if again, err := g.holds(index); err == nil && again == p {
			return Kept{}, ErrNotFound
		} // it was moved meanwhile, and the segment recycled
	}
}

// HeldAt returns where the record is that the group holds under an index, in the log or kept, damaged or not: the zero Place
// when that is lost; false when it holds none. Bytes of the index elsewhere are dead: they were copied, replaced or released.
func (g *Group) HeldAt(index uint64) (Place, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	p, _, ok := g.at(index)
	return p.public(), ok
}

// holds returns the place of a record that can be read.
func (g *Group) holds(index uint64) (place, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	p, inLog, ok := g.at(index)
	switch {
	case !ok:
		return p, ErrNotFound
	case p.whole():
		return p, nil
	}
	at := p.public()
	why := CorruptError{Group: g.id, Index: index, Segment: at.Segment, Offset: at.Offset, Reason: "damaged, or out of date"}
	if inLog && g.lost != nil {
		why.Reason = g.lost.Reason
	}
	return p, &why
}

func (g *Group) readPiece(index uint64, p place, piece Piece, buf []byte) ([]byte, error) {
	if b, ok := g.recent(index, p.public(), piece, buf); ok {
		return b, nil
	}
	h, b, err := g.read(index, p.public(), buf)
	if err != nil {
		return nil, err
	}
	data := b[recordHeaderLen : recordHeaderLen+int(h.length)]
	from := uint64(piece.Offset)
	if extra := b[recordHeaderLen+int(h.length):]; h.kind == kindKeep && len(extra) > 0 {
		if from = pieceIn(extra, piece); from == noIndex {
			return nil, ErrNotFound
		}
	}
	if from+uint64(piece.Length) > uint64(len(data)) {
		return nil, ErrNotFound
	}
	n := copy(b, data[from:from+uint64(piece.Length)])
	return b[:n], nil
}

// carried is a record that is written once more: moved, or kept.
type carried struct {
	Record
	kind uint8
	sum  uint32
	from Place // where it must still be; zero: anywhere, or nowhere
}

func (c *carried) size() int64 { return recordHeaderLen + int64(len(c.Data)) + int64(len(c.Extra)) }

func (c *carried) place(segment uint64, at int64) place {
	p := c.Record.place(segment, at)
	if c.kind == kindKeep && len(c.Extra) > 0 {
		p.length |= prunedBit
	}
	return p
}

// carryBytes is about what is carried in one request: as much as makes a good write, and no more memory than that.
const carryBytes = 1 << 20

// carry makes records durable, in several requests if they are large.
func (g *Group) carry(list []carried) error {
	for len(list) > 0 {
		n, size := 0, int64(0)
		for n < len(list) && (n == 0 || size < carryBytes) {
			size += list[n].size()
			n++
		}
		r := g.j.reqs.get(g, kindKeep)
		r.copies = list[:n:n]
		if err := g.j.submit(r); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// carry checks a record to be kept.
func (k *Kept) carry(maxSize int) (carried, error) {
	c := carried{kind: kindKeep, Record: Record{Index: k.Index, Term: k.Term, Data: k.Data}}
	if k.Index == 0 || k.Index >= 1<<62 {
		return c, fmt.Errorf("%w: index %d is not valid", ErrNotNext, k.Index)
	}
	end, total := uint64(0), uint64(0)
	for i, p := range k.Pieces {
		if p.Length == 0 || i > 0 && uint64(p.Offset) < end {
			return c, fmt.Errorf("%w: piece %+v of index %d", ErrPieces, p, k.Index)
		}
		end, total = p.end(), total+uint64(p.Length)
	}
	if len(k.Pieces) > 0 && total != uint64(len(k.Data)) {
		return c, fmt.Errorf("%w: index %d has %d bytes in pieces of %d", ErrPieces, k.Index, len(k.Data), total)
	}
	c.Extra = appendPieces(nil, k.Pieces)
	if size := len(c.Data) + len(c.Extra); size > maxSize {
		return c, fmt.Errorf("%w: index %d has %d bytes, the limit is %d", ErrTooLarge, k.Index, size, maxSize)
	}
	c.sum = dataSum(c.Data, c.Extra)
	return c, nil
}

// pick reads a record that is to be moved. ErrNotFound: it is not there any more.
func (g *Group) pick(index uint64, from Place) (carried, error) {
	p, err := g.holds(index)
	if err == nil && !p.is(from) {
		err = ErrNotFound
	}
	if err != nil {
		return carried{}, err
	}
	h, b, err := g.read(index, from, nil)
	if err != nil {
		return carried{}, err
	}
	c := carried{kind: h.kind, sum: h.sum, from: from, Record: h.record(b)}
	if c.kind == kindEntry {
		c.kind = kindMove
	}
	return c, nil
}

const pieceLen = 8

func appendPieces(b []byte, pieces []Piece) []byte {
	for _, p := range pieces {
		b = binary.LittleEndian.AppendUint32(b, p.Offset)
		b = binary.LittleEndian.AppendUint32(b, p.Length)
	}
	return b
}

func decodePieces(b []byte) []Piece {
	var pieces []Piece
	for ; len(b) >= pieceLen; b = b[pieceLen:] {
		pieces = append(pieces, Piece{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])})
	}
	return pieces
}

// pieceIn returns where a piece is in the data that the encoded pieces make, noIndex if not all of it is there.
func pieceIn(b []byte, want Piece) uint64 {
	at, found, end := uint64(0), noIndex, uint64(want.Offset)
	for _, p := range decodePieces(b) {
		switch {
		case found == noIndex && p.Offset <= want.Offset && uint64(want.Offset) < p.end():
			found, end = at+uint64(want.Offset-p.Offset), p.end()
		case found != noIndex && uint64(p.Offset) == end: // goes on where the one before ended
			end = p.end()
		case found != noIndex:
			return noIndex
		}
		if found != noIndex && end >= want.end() {
			return found
		}
		at += uint64(p.Length)
	}
	return noIndex
}

// admitCopies decides in the writer which records of a request are written. Keep's must lie before the log; those of
// Move must still be where they were.
func (g *Group) admitCopies(r *request) (bool, error) {
	s := &g.shadow
	g.mu.RLock()
	defer g.mu.RUnlock()
	list := r.copies[:0]
	for i := range r.copies {
		c := &r.copies[i]
		if c.from == (Place{}) {
			if s.first != 0 && c.Index >= s.first {
				return false, fmt.Errorf("%w: index %d of group %d, whose log begins at %d", ErrInLog, c.Index, g.id, s.first)
			}
		} else if p, _, ok := g.at(c.Index); !ok || !p.is(c.from) || c.Index >= s.dead || slices.Contains(s.carried, c.Index) {
			continue
		}
		list = append(list, *c)
	}
	r.copies = list
	r.measure()
	for i := range list {
		s.carried = append(s.carried, list[i].Index)
	}
	return len(list) > 0, nil
}

// publishCopiesLocked shows where records are now. What was released since it was admitted stays released.
func (g *Group) publishCopiesLocked(r *request, segment uint64) {
	at := r.at
	for i := range r.copies {
		c := &r.copies[i]
		p := c.place(segment, at)
		at += c.size()
		switch old, _, ok := g.at(c.Index); {
		case c.from == (Place{}):
			g.keep(c.Index, p)
		case ok && old.is(c.from):
			g.move(c.Index, p)
		}
	}
}
