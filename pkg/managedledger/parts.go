package managedledger

import (
	"iter"
	"maps"
	"math/bits"
	"slices"

	"geminga/pkg/ledger"
)

// ackBits tell which messages of a batch are not acknowledged, as Pulsar's ack_set does: bit i of the little-endian words
// is message i, 1 means still unacknowledged, missing words are zeros. Values are immutable.
type ackBits = []int64

// intersect returns what is unacknowledged in both. nil as the first stands for a whole batch. The result has no zero
// words at its end: it is empty when everything is acknowledged.
func intersect(a, b ackBits) ackBits {
	out := slices.Clone(b)
	if a != nil {
		out = out[:min(len(a), len(b))]
		for i := range out {
			out[i] &= a[i]
		}
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	return out
}

// ones counts the unacknowledged messages.
func ones(b ackBits) (n int) {
	for _, w := range b {
		n += bits.OnesCount64(uint64(w))
	}
	return n
}

// parts are the batches behind the mark-delete position of which some messages are deleted and some are not. The zero
// value is empty.
type parts struct {
	sets  map[ledger.Position]ackBits // none empty
	words int
}

func (s *parts) len() int { return len(s.sets) }

// get returns nil for an entry that is not in there.
func (s *parts) get(p ledger.Position) ackBits { return s.sets[p] }

func (s *parts) set(p ledger.Position, b ackBits) {
	if s.sets == nil {
		s.sets = make(map[ledger.Position]ackBits)
	}
	s.words += len(b) - len(s.sets[p])
	s.sets[p] = b
}

func (s *parts) remove(p ledger.Position) {
	if len(s.sets) == 0 {
		return
	}
	s.words -= len(s.sets[p])
	delete(s.sets, p)
}

// removeBetween removes what lies behind after, up to and including to.
func (s *parts) removeBetween(after, to ledger.Position) {
	if len(s.sets) == 0 {
		return
	}
	if n := to.Entry - after.Entry; after.Ledger == to.Ledger && int64(n) <= int64(len(s.sets)) {
		for e := after.Entry + 1; e <= to.Entry; e++ {
			s.remove(ledger.Position{Ledger: to.Ledger, Entry: e})
		}
		return
	}
	for p := range s.sets {
		if p.Compare(to) <= 0 {
			s.remove(p)
		}
	}
}

func (s *parts) clear() { *s = parts{} }

// all goes over the batches, ascending.
func (s *parts) all() iter.Seq2[ledger.Position, ackBits] {
	return func(yield func(ledger.Position, ackBits) bool) {
		for _, p := range slices.SortedFunc(maps.Keys(s.sets), ledger.Position.Compare) {
			if !yield(p, s.sets[p]) {
				return
			}
		}
	}
}
