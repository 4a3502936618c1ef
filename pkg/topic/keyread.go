package topic

import (
	"slices"

	"geminga/pkg/ledger"
)

// This file is about what a Key_Shared dispatcher reads next: entries that waited, and how far it looks ahead.

// deliverable reports that entries wait which a consumer can take.
func (k *keyed) deliverable(cs []*Consumer) bool {
	for _, c := range cs {
		if k.next(c) != nil && c.ready() {
			return true
		}
	}
	return false
}

// take moves up to limit entries that consumers can take from waiting to being read again, and appends their positions
// to dst in order.
func (k *keyed) take(dst []ledger.Position, cs []*Consumer, limit int) []ledger.Position {
	k.taken = k.taken[:0]
	for i := range cs {
		c := cs[(k.first+i)%len(cs)]
		if k.next(c) == nil || !c.ready() {
			continue
		}
		most := min(limit, len(k.taken)+int(c.average.entries(c.budget())))
		for len(k.taken) < most {
			q := k.next(c)
			if q == nil {
				break
			}
			c.lined.pop()
			k.takeFrom(q, min(most-len(k.taken), keyTurn))
			if q.n > 0 {
				c.lined.push(q)
			} else {
				q.lined = false
			}
		}
	}
	k.first++
	slices.SortFunc(k.taken, func(a, b keyEntry) int { return a.at.Compare(b.at) })
	for _, e := range k.taken {
		dst = append(dst, e.at)
	}
	return dst
}

func (k *keyed) takeFrom(q *keyQueue, n int) {
	for ; n > 0 && q.n > 0; n-- {
		p := k.least(q)
		q.heap.pop()
		it, _ := k.wait.remove(p)
		q.n--
		q.taken++
		k.taken = append(k.taken, keyEntry{p, it})
	}
}

// returned says that the replay read has ended: its entries are neither waiting nor being read.
func (k *keyed) returned() {
	for _, e := range k.taken {
		q := k.states.get(e.hash).queue
		q.taken--
		k.tidy(q)
	}
}

// full reports that so many entries wait that nothing new is to be read.
func (k *keyed) full(consumers int) bool {
	limit := lookAhead(k.opts, consumers)
	return limit > 0 && k.wait.len() >= limit
}

// lookAhead is how many entries may wait; 0: any number.
func lookAhead(o *Options, consumers int) int {
	limit := smaller(o.KeySharedLookAheadMsgInReplayThresholdPerConsumer*consumers, o.KeySharedLookAheadMsgInReplayThresholdPerSubscription)
	if limit == 0 {
		limit = smaller(o.MaxUnackedMessagesPerConsumer*consumers, o.MaxUnackedMessagesPerSubscription)
	}
	return limit
}

// smaller returns the smaller one of two limits, of which those below 1 are none.
func smaller(a, b int) int {
	switch {
	case a <= 0:
		return max(0, b)
	case b <= 0:
		return a
	}
	return min(a, b)
}
