package topic

import "math/bits"

// ackSet tells which messages of a batch are not acknowledged yet: bit i of the little-endian words is message i, 1 means
// still unacknowledged, missing words are zeros. Values are immutable, because deliveries carry them to other executors.
type ackSet []int64

// intersect returns the set of what is unacknowledged in both. nil as the first operand stands for a whole batch.
func (s ackSet) intersect(with []int64) ackSet {
	if s == nil {
		return append(make(ackSet, 0, len(with)), with...)
	}
	out := make(ackSet, min(len(s), len(with)))
	for i := range out {
		out[i] = s[i] & with[i]
	}
	return out
}

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
