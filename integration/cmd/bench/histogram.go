package main

import (
	"math"
	"math/bits"
	"time"
)

// subBits is the precision of a histogram: each power of two has 1<<subBits buckets.
const subBits = 5

// histogram counts durations without allocating. Its percentiles are at most 1/32 too high and never too low, which
// holds from a nanosecond to years. The zero value is empty. Each goroutine has its own; they are added up afterwards.
type histogram struct {
	n      uint64
	counts [(64 - subBits + 1) << subBits]uint32
}

// record counts d; what is negative counts as zero.
func (h *histogram) record(d time.Duration) {
	h.n++
	h.counts[bucketOf(uint64(max(d, 0)))]++
}

// bucketOf returns v itself while it is small; then the shift that leaves subBits+1 bits, and those bits.
func bucketOf(v uint64) int {
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// highest returns the largest value that bucketOf maps to i.
func highest(i int) uint64 {
	shift := max(i>>subBits-1, 0)
	return uint64(i-shift<<subBits+1)<<shift - 1
}

// add counts all that other has counted.
func (h *histogram) add(other *histogram) {
	h.n += other.n
	for i, c := range other.counts {
		h.counts[i] += c
	}
}

// percentile returns the value that the share q of all, in (0, 1], does not exceed; 0 if there are none.
func (h *histogram) percentile(q float64) time.Duration {
	left := uint64(math.Ceil(q * float64(h.n)))
	for i, c := range h.counts {
		if uint64(c) >= left && left > 0 {
			return time.Duration(highest(i))
		}
		left -= uint64(c)
	}
	return 0
}
