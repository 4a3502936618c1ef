package topic

import "math/bits"

// ackSet tells which messages of a batch are not acknowledged yet: bit i of the little-endian words is message i, 1 means
// still unacknowledged, missing words are zeros. The cursor keeps them (managedledger.Cursor.DeletePart). Values are
// immutable, because deliveries carry them to other executors.
type ackSet []int64

// left counts the unacknowledged messages among the first n.
func (s ackSet) left(n int32) int32 {
	var sum int32
	for i, w := range s {
		rest := n - int32(i)*64
		if rest <= 0 {
			break
		}
		word := uint64(w)
		if rest < 64 {
			word &= 1<<rest - 1
		}
		sum += int32(bits.OnesCount64(word))
	}
	return sum
}

// empty reports that all is acknowledged.
func (s ackSet) empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}
