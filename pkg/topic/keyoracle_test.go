package topic

import (
	"fmt"
	"math/rand/v2"
)

// keyOracle says of a Key_Shared subscription what is allowed, from what was published, delivered and acknowledged.
type keyOracle struct {
	names []string
	of    map[int]keyHash   // entry → hash of its key
	all   map[keyHash][]int // hash → entries in order
}

func newKeyOracle(keys int) keyOracle {
	o := keyOracle{of: map[int]keyHash{}, all: map[keyHash][]int{}}
	for i := range keys {
		o.names = append(o.names, fmt.Sprint("key", i))
	}
	return o
}

// publish chooses the key of an entry.
func (o *keyOracle) publish(entry int, rnd *rand.Rand) string {
	key := o.names[rnd.IntN(len(o.names))]
	h := hashKey([]byte(key))
	o.of[entry] = h
	o.all[h] = append(o.all[h], entry)
	return key
}

// restore brings back entries that left has dropped.
func (o *keyOracle) restore() {
	clear(o.all)
	for entry := range len(o.of) {
		h := o.of[entry]
		o.all[h] = append(o.all[h], entry)
	}
}

// left returns the entries of a hash without those at the front that are acknowledged.
func (o *keyOracle) left(r *randomRun, h keyHash) []int {
	entries := o.all[h]
	for len(entries) > 0 && r.acked[entries[0]] {
		entries = entries[1:]
	}
	o.all[h] = entries
	return entries
}

// delivered checks that every earlier entry of the key, unless one of the two has a time of delivery, is acknowledged, or unacknowledged at the same consumer, and that
// the key is unacknowledged at no other.
func (o *keyOracle) delivered(r *randomRun, m *model, entry int) {
	if r.policy.OutOfOrder {
		return
	}
	h := o.of[entry]
	_, timed := r.early[entry]
	for _, e := range o.left(r, h) {
		if _, other := r.early[e]; timed || other {
			continue
		}
		if e < entry && !r.acked[e] && !m.pending[e] {
			r.t.Errorf("entry %d overtakes %d of the same key", entry, e)
		}
	}
	for _, other := range r.consumers {
		for e := range other.pending {
			if other != m && o.of[e] == h {
				r.t.Errorf("entry %d to consumer %d while %d of the same key is at %d", entry, m.c.ID, e, other.c.ID)
			}
		}
	}
}

// stalled returns an entry that could be delivered while nothing is being done about it, or -1. It is the first of its
// key that is nowhere, the key is held by nobody but its owner, and the owner can take something.
func (o *keyOracle) stalled(r *randomRun) int {
	k := r.s.keys
	if k == nil || len(r.s.read.replaying) > 0 || r.s.read.retry != nil || r.s.read.yielded || k.timer != nil || r.s.rates.waiting() || r.s.ended {
		return -1
	}
	for h := range o.all {
		owner := k.spans.owner(h)
		if owner == nil || !owner.ready() {
			continue
		}
		entries := o.left(r, h)
		first, held := -1, false
		for _, e := range entries {
			pending := false
			for _, m := range r.consumers {
				if m.pending[e] {
					pending = true
					held = held || m.c != owner
				}
			}
			if _, timed := r.early[e]; !timed && !pending && !r.acked[e] && first < 0 {
				first = e
			}
		}
		read := first >= 0 && first < r.f.next && (!r.s.read.ahead || r.f.parked != nil) // and not on its way here
		if read && (!held || r.policy.OutOfOrder) {
			return first
		}
	}
	return -1
}
