package journal

import (
	"encoding/binary"
	"math"
	"sort"
)

// position orders everything that was ever written: the segment, then the offset in it.
type position uint64

func positionOf(segment uint64, offset int64) position { return position(segment<<32 | uint64(offset)) }

func (p position) segment() uint64 { return uint64(p >> 32) }

func (p place) position() position { return positionOf(uint64(p.segment), int64(p.offset)) }

// cut says that what was written before a position under the indexes from … is dead.
type cut struct {
	at   position
	from uint64
}

// cuts remember every truncation, every reset and every beginning of a log as long as there may be a record that it
// made dead. The record of the truncation itself does not do: its segment may be recycled before that of the dead
// records, and recovery would take these for kept ones. So the heads of segments repeat the cuts.
//
//	segment 4        segment 5         segment 6
//	50 51 52 53      truncate 51       head: cut (5, 51)
//	                 51' compact 51    …
//	                 ╰── all moved forward or released, and recycled: without the cut
//	                     51, 52 and 53 would be back
//
// They ascend by at and by from alike, because a later cut that begins at or before an earlier one makes that
// superfluous.
type cuts []cut

func (c *cuts) add(at position, from uint64) {
	n := len(*c)
	for n > 0 && (*c)[n-1].from >= from {
		n--
	}
	*c = append((*c)[:n], cut{at, from})
}

// dead reports whether a record under index that was written at p is dead.
func (c cuts) dead(index uint64, p position) bool {
	i := sort.Search(len(c), func(i int) bool { return c[i].from > index })
	return i > 0 && p < c[i-1].at
}

// forget drops the cuts that can concern nothing any more: oldest is the oldest segment there is.
func (c *cuts) forget(oldest uint64) {
	n := 0
	for n < len(*c) && (*c)[n].at.segment() < oldest {
		n++
	}
	*c = (*c)[n:]
}

// since returns the cuts made after a segment.
func (c cuts) since(segment uint64) cuts {
	i := sort.Search(len(c), func(i int) bool { return c[i].at.segment() > segment })
	return c[i:]
}

const cutLen = 16

// encodeState lays out what a state record has beside its header: the position of doubt, then the cuts.
func encodeState(doubt position, c cuts) []byte {
	if doubt == 0 && len(c) == 0 {
		return nil
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, stateLen(c)), uint64(doubt))
	for _, cut := range c {
		b = binary.LittleEndian.AppendUint64(b, uint64(cut.at))
		b = binary.LittleEndian.AppendUint64(b, cut.from)
	}
	return b
}

// stateLen bounds what encodeState returns.
func stateLen(c cuts) int { return 8 + cutLen*len(c) }

// decodeState reads what encodeState made; false if it did not make b.
func decodeState(b []byte) (doubt position, c cuts, ok bool) {
	if len(b) == 0 {
		return 0, nil, true
	}
	if len(b)%cutLen != 8 {
		return 0, nil, false
	}
	doubt, b = position(binary.LittleEndian.Uint64(b)), b[8:]
	for ; len(b) > 0; b = b[cutLen:] {
		c = append(c, cut{position(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])})
	}
	return doubt, c, true
}

// noIndex is above every index.
const noIndex = uint64(math.MaxUint64)
