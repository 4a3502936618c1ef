package journal

import (
	"cmp"
	"math/bits"
	"slices"
)

// kept is the table of the records that outlived their log: index → place. It is pure: callers see to the locking.
//
// A chunk has the places of up to 256 neighbouring indexes in a row, and a bit for each index that is there. So a place
// costs 12 bytes, and a chunk 64, whether prefixes of a log come in whole or what was released leaves gaps; and to add
// or take away one in the middle moves some kilobytes, not the table.
type kept struct {
	chunks []chunk // ascending by number, none is empty
	n      int     // places in all
}

const (
	chunkBits = 8
	chunkSpan = 1 << chunkBits
)

type chunk struct {
	number  uint64 // of its indexes, without the low bits
	present [chunkSpan / 64]uint64
	places  []place // of the indexes whose bit is set, ascending
}

// slot returns where the place of an index is, or would be, and whether it is there.
func (c *chunk) slot(index uint64) (int, bool) {
	low := index % chunkSpan
	word, bit := low/64, uint64(1)<<(low%64)
	n := bits.OnesCount64(c.present[word] & (bit - 1))
	for i := range word {
		n += bits.OnesCount64(c.present[i])
	}
	return n, c.present[word]&bit != 0
}

func (c *chunk) mark(index uint64, there bool) {
	low := index % chunkSpan
	if bit := uint64(1) << (low % 64); there {
		c.present[low/64] |= bit
	} else {
		c.present[low/64] &^= bit
	}
}

// each visits the chunk's indexes from index on, ascending.
func (c *chunk) each(index uint64, visit func(index uint64, p *place)) {
	i := 0
	for word, present := range c.present {
		for ; present != 0; present &= present - 1 {
			at := c.number<<chunkBits | uint64(word*64+bits.TrailingZeros64(present))
			if at >= index {
				visit(at, &c.places[i])
			}
			i++
		}
	}
}

// find returns the position of the chunk of an index, or where it belongs.
func (k *kept) find(index uint64) (int, bool) {
	number := index >> chunkBits
	if n := len(k.chunks); n == 0 || k.chunks[n-1].number < number { // compaction adds at the end
		return n, false
	}
	return slices.BinarySearchFunc(k.chunks, number, func(c chunk, n uint64) int { return cmp.Compare(c.number, n) })
}

// locate returns the chunk that has an index, and the place in it.
func (k *kept) locate(index uint64) (i, n int, ok bool) {
	if i, ok = k.find(index); ok {
		n, ok = k.chunks[i].slot(index)
	}
	return i, n, ok
}

func (k *kept) at(index uint64) (place, bool) {
	i, n, ok := k.locate(index)
	if !ok {
		return place{}, false
	}
	return k.chunks[i].places[n], true
}

// set gives an index a place, and returns the one it had.
func (k *kept) set(index uint64, p place) (place, bool) {
	i, ok := k.find(index)
	if !ok {
		k.chunks = slices.Insert(k.chunks, i, chunk{number: index >> chunkBits})
	}
	c := &k.chunks[i]
	n, ok := c.slot(index)
	if ok {
		old := c.places[n]
		c.places[n] = p
		return old, true
	}
	c.places = slices.Insert(c.places, n, p)
	c.mark(index, true)
	k.n++
	return place{}, false
}

// remove takes an index away, and returns the place it had.
func (k *kept) remove(index uint64) (place, bool) {
	i, n, ok := k.locate(index)
	if !ok {
		return place{}, false
	}
	c := &k.chunks[i]
	old := c.places[n]
	k.n--
	if len(c.places) == 1 {
		k.chunks = slices.Delete(k.chunks, i, i+1)
		return old, true
	}
	c.places = slices.Delete(c.places, n, n+1)
	c.mark(index, false)
	return old, true
}

// edit visits every index from index on, ascending. The place may be changed through p; the index goes when visit
// returns false.
func (k *kept) edit(index uint64, visit func(index uint64, p *place) bool) {
	i, _ := k.find(index)
	out := i
	for ; i < len(k.chunks); i++ {
		c := k.chunks[i]
		n, left := 0, c
		c.each(0, func(at uint64, p *place) {
			if at >= index && !visit(at, p) {
				left.mark(at, false)
				k.n--
				return
			}
			c.places[n] = *p
			n++
		})
		if n > 0 {
			left.places = c.places[:n]
			k.chunks[out] = left
			out++
		}
	}
	clear(k.chunks[out:])
	k.chunks = k.chunks[:out]
}

// appendTo appends up to about limit indexes from index on, with their places.
func (k *kept) appendTo(list []held, index uint64, limit int) []held {
	for i, _ := k.find(index); i < len(k.chunks) && len(list) < limit; i++ {
		k.chunks[i].each(index, func(at uint64, p *place) { list = append(list, held{at, *p}) })
	}
	return list
}

// held is a record's index and place.
type held struct {
	index uint64
	place place
}
