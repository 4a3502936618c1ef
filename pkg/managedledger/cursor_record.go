package managedledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"

	"geminga/pkg/ledger"
)

// A record, in a cursor's ledger or in its metadata; all numbers uvarint unless they have a size:
//
//	checksum u32 │ kind u8 │ distance │ ledger │ entry+1 │ ranges, 0 │ parts, 0
//	                                    mark-delete position
//	range:  1 + ledgers on from the last range │ first, from the end of the last range in its ledger │ length-1
//	part:   1 + ledgers on from the last part  │ entry, from the last part in its ledger │ words n │ n × u64
//
// A whole record is the state. A delta says what has been deleted since the record before, of which its checksum covers
// the checksum; distance counts the records back to the whole one:
//
//	entry      0      1      2      3      4      5
//	         whole ◀ delta ◀ delta   whole ◀ delta ◀ delta   recovery reads entry 5, and from its distance 3 to 5
//	distance   0      1      2      0      1      2
//
// The checksum covers the ledger and the entry too: a record that is lost, doubled, out of its place or of another
// ledger is noticed.
const (
	recordWhole byte = 2
	recordDelta byte = 3

	checksumSize = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// link is the place of a record in its chain.
type link struct {
	ledger   ledger.ID // 0: in the metadata
	entry    ledger.EntryID
	distance uint64
	parent   uint32 // checksum of the record before; 0 for a whole record
}

func (l link) checksum(body []byte) uint32 {
	b := make([]byte, 0, 20)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.ledger))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.entry))
	b = binary.LittleEndian.AppendUint32(b, l.parent)
	return crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, body)
}

// bounds limit what a record holds. What is beyond, the ranges and parts farthest ahead, is cut.
type bounds struct{ ranges, parts, bytes int }

// cut counts what did not fit.
type cut struct{ ranges, parts int }

// content is what a record says.
type content struct {
	mark   ledger.Position
	ranges iter.Seq[ackRange]                  // ascending
	parts  iter.Seq2[ledger.Position, ackBits] // ascending
}

// appendRecord encodes a record and returns its checksum.
func appendRecord(b []byte, l link, c content, most bounds) (_ []byte, sum uint32, over cut) {
	start := len(b)
	kind := recordWhole
	if l.distance > 0 {
		kind = recordDelta
	}
	b = append(b, 0, 0, 0, 0, kind)
	b = binary.AppendUvarint(b, l.distance)
	b = binary.AppendUvarint(b, uint64(c.mark.Ledger))
	b = binary.AppendUvarint(b, uint64(c.mark.Entry+1))
	full := func() bool { return len(b)-start > most.bytes }
	var last ackRange
	last.last = ledger.NoEntry
	n := 0
	for r := range c.ranges {
		if n++; n > most.ranges || full() {
			over.ranges++
			continue
		}
		if r.ledger != last.ledger {
			last.last = ledger.NoEntry
		}
		b = binary.AppendUvarint(b, uint64(r.ledger-last.ledger)+1)
		b = binary.AppendUvarint(b, uint64(r.first-last.last-1))
		b = binary.AppendUvarint(b, uint64(r.last-r.first))
		last = r
	}
	b = append(b, 0)
	var at ledger.Position
	n = 0
	for p, bits := range c.parts {
		if n++; n > most.parts || full() {
			over.parts++
			continue
		}
		if p.Ledger != at.Ledger {
			at.Entry = 0
		}
		b = binary.AppendUvarint(b, uint64(p.Ledger-at.Ledger)+1)
		b = binary.AppendUvarint(b, uint64(p.Entry-at.Entry))
		b = binary.AppendUvarint(b, uint64(len(bits)))
		for _, w := range bits {
			b = binary.LittleEndian.AppendUint64(b, uint64(w))
		}
		at = p
	}
	b = append(b, 0)
	sum = l.checksum(b[start+checksumSize:])
	binary.LittleEndian.PutUint32(b[start:], sum)
	return b, sum, over
}

// distance returns how far before a record its whole one lies.
func recordDistance(b []byte) (uint64, error) {
	d := recordReader{b: b}
	d.skip(checksumSize + 1)
	n := d.uvarint()
	if d.bad {
		return 0, fmt.Errorf("%w: cursor record of %d bytes", ErrCorrupt, len(b))
	}
	return n, nil
}

// recovery puts a state together from a whole record and the deltas behind it.
type recovery struct {
	deletions
	ledger   ledger.ID // 0: the metadata
	distance uint64    // of the next record
	sum      uint32    // of the last one
}

// apply takes the next record. The sizes of the ledgers of s bound what it takes: what lies beyond them is cut.
func (r *recovery) apply(b []byte, entry ledger.EntryID, s snapshot) error {
	d := recordReader{b: b}
	sum := d.uint32()
	body := d.b
	kind := d.byte()
	l := link{ledger: r.ledger, entry: entry, distance: d.uvarint(), parent: r.sum}
	wanted := recordDelta
	if r.distance == 0 {
		wanted, l.parent = recordWhole, 0
	}
	if d.bad || kind != wanted || l.distance != r.distance || l.checksum(body) != sum {
		return fmt.Errorf("%w: cursor record %d of ledger %d, of %d bytes, kind %d at distance %d, does not follow the one before",
			ErrCorrupt, entry, r.ledger, len(b), kind, l.distance)
	}
	d.content(&r.deletions, s)
	if d.bad || len(d.b) > 0 {
		return fmt.Errorf("%w: cursor record of %d bytes", ErrCorrupt, len(b))
	}
	r.distance++
	r.sum = sum
	return nil
}

// recordReader takes numbers off a record.
type recordReader struct {
	b   []byte
	bad bool
}

// content adds what a record says to what is deleted.
func (d *recordReader) content(to *deletions, s snapshot) {
	to.mark.Ledger = ledger.ID(d.uvarint())
	to.mark.Entry = ledger.EntryID(d.uvarint()) - 1
	at := ledger.Position{Entry: ledger.NoEntry}
	for step := d.uvarint(); step > 0 && !d.bad; step = d.uvarint() {
		if step > 1 {
			at.Ledger, at.Entry = at.Ledger+ledger.ID(step-1), ledger.NoEntry
		}
		first := at.Entry + 1 + ledger.EntryID(d.uvarint())
		last := first + ledger.EntryID(d.uvarint())
		if first <= at.Entry || last < first {
			d.bad = true
		}
		at.Entry = last
		if i := s.find(at.Ledger); !d.bad && i < len(s.segments) && s.segments[i].ref.ID == at.Ledger {
			to.acks.addRange(at.Ledger, first, min(last, ledger.EntryID(s.size(i)-1)))
		}
	}
	at = ledger.Position{}
	for step := d.uvarint(); step > 0 && !d.bad; step = d.uvarint() {
		if step > 1 {
			at.Ledger, at.Entry = at.Ledger+ledger.ID(step-1), 0
		}
		at.Entry += ledger.EntryID(d.uvarint())
		bits := d.words(d.uvarint())
		if !d.bad && s.exists(at) {
			to.parts.set(at, bits)
		}
	}
}

func (d *recordReader) words(n uint64) ackBits {
	if n > uint64(len(d.b)/8) {
		d.bad = true
		return nil
	}
	bits := make(ackBits, n)
	for i := range bits {
		bits[i] = int64(binary.LittleEndian.Uint64(d.b[8*i:]))
	}
	d.skip(8 * int(n))
	return bits
}

func (d *recordReader) skip(n int) {
	if n > len(d.b) {
		d.b, d.bad = nil, true
		return
	}
	d.b = d.b[n:]
}

func (d *recordReader) byte() (v byte) {
	if len(d.b) > 0 {
		v = d.b[0]
	}
	d.skip(1)
	return v
}

func (d *recordReader) uint32() (v uint32) {
	if len(d.b) >= checksumSize {
		v = binary.LittleEndian.Uint32(d.b)
	}
	d.skip(checksumSize)
	return v
}

func (d *recordReader) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > 1<<62 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}
