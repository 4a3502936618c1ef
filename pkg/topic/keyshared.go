package topic

import (
	"slices"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// keyed is the state of a Key_Shared dispatcher. The assignment gives each hash of keys an owner, who alone is given new
// messages of it. What it promises, besides what subscription does:
//
//  1. Entries of one hash are unacknowledged at one consumer at a time: its holder. When the owner changes while there is
//     a holder, the hash drains: its entries wait until the holder has acknowledged, given back or left.
//  2. An entry is not delivered while an earlier one of its hash waits or is being read again. So each hash is a queue of
//     its own, and neither a read ahead nor a replay overtakes within it.
//  3. A queue that could be delivered (it has entries, and no holder other than the owner) is lined up at its owner, or a
//     timer is running that will line it up. So a hash that is stuck costs nothing while it waits, and holds back no other.
//
// Holders are counted for every hash at all times, not only for those that drain: then a join or leave does not walk
// through what is unacknowledged, and there is no state in which a hash can be forgotten.
//
// Entries that wait are bounded by the look-ahead limit: from there on nothing new is read until some can be delivered.
//
// With KeyPolicy.OutOfOrder 1 and 2 do not hold, and nobody counts holders.
type keyed struct {
	opts   *Options
	policy KeyPolicy
	assign assignment
	spans  keySpace
	hasher keyHasher

	states keyStates
	wait   waitingSet // entries that wait, not those that are being read again
	spare  []*keyQueue
	taken  []keyEntry // the replay read that is under way
	first  int        // consumer that the next replay begins with

	drained   []keyHash // have queues that may be lined up, and wait for the timer
	timer     *executor.Timer
	cleared   int64 // hashes with entries that waited until they had drained
	onDrained executor.Task
	exec      *executor.Executor
}

type keyEntry struct {
	at ledger.Position
	waitingItem
}

// keyQueue is the entries of one hash that wait. As in replaySet the heap may hold positions that wait no more.
type keyQueue struct {
	hash  keyHash
	owner *Consumer // as spans say; nil: nobody
	heap  positionHeap
	n     int // entries that wait
	taken int // entries that are being read again
	lined bool
}

// keyTurn is how many entries of a hash are taken before the next hash has its turn.
const keyTurn = 20

func newKeyed(s *subscription) *keyed {
	k := &keyed{
		opts: s.opts, exec: s.exec,
	}
	k.onDrained = executor.Func(func() {
		k.timer = nil
		k.lineUpDrained()
		s.pump()
	})
	return k
}

// use begins with a policy. Nobody is connected.
func (k *keyed) use(p KeyPolicy) {
	k.policy, k.assign = p, newAssignment(k.opts, p)
}

// join gives a new consumer its share; others are those that are there.
func (k *keyed) join(c *Consumer, ranges []KeyRange) error {
	if err := k.assign.join(c, ranges); err != nil {
		return err
	}
	k.moved()
	return nil
}

func (k *keyed) leave(c *Consumer) {
	k.assign.leave(c)
	c.lined.clear()
	k.moved()
}

// leaveAll is a leave of all consumers, who take what they hold with them.
func (k *keyed) leaveAll() {
	k.use(k.policy)
	k.states.each(func(h keyHash, s keyState) { k.states.set(h, keyState{queue: s.queue}) })
	k.moved()
}

// moved brings everything in line with owners that have changed: the oldest entries first.
func (k *keyed) moved() {
	for _, s := range k.spans {
		if s.owner != nil {
			s.owner.lined.clear()
		}
	}
	k.spans = k.assign.spans(k.spans[:0])
	k.stop()
	var waiting []keyEntry
	k.states.each(func(h keyHash, s keyState) {
		q := s.queue
		if q == nil {
			return
		}
		q.lined, q.owner = false, k.spans.owner(h)
		if q.n > 0 {
			waiting = append(waiting, keyEntry{k.least(q), waitingItem{hash: h}})
		} else {
			k.tidy(q)
		}
	})
	slices.SortFunc(waiting, func(a, b keyEntry) int { return a.at.Compare(b.at) })
	for _, w := range waiting {
		k.line(k.states.get(w.hash).queue)
	}
}

// clear forgets the entries that wait.
func (k *keyed) clear() {
	for _, s := range k.spans {
		if s.owner != nil {
			s.owner.lined.clear()
		}
	}
	k.wait.clear()
	k.states.each(func(h keyHash, s keyState) { k.states.set(h, keyState{holding: s.holding}) })
	k.taken = k.taken[:0]
	k.stop()
}

// stop stops waiting with hashes that have drained; the caller sees to them.
func (k *keyed) stop() {
	k.drained = k.drained[:0]
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// choose returns who is to be given an entry now; nil: it has to wait.
func (k *keyed) choose(p ledger.Position, h keyHash) *Consumer {
	has := k.states.get(h)
	q := has.queue
	var c *Consumer
	if q != nil {
		c = q.owner
	} else {
		c = k.spans.owner(h)
	}
	if c == nil || !c.ready() {
		return nil
	}
	if k.policy.OutOfOrder {
		return c
	}
	if has.n > 0 && has.by != c {
		return nil
	}
	if q != nil && (q.taken > 0 || q.n > 0 && k.least(q).Less(p)) {
		return nil
	}
	return c
}

// hold notes that an entry has been given to a consumer.
func (k *keyed) hold(c *Consumer, h keyHash) {
	if !k.policy.OutOfOrder {
		has := k.states.get(h)
		has.by, has.n = c, has.n+1
		k.states.set(h, has)
	}
}

// letGo notes that a consumer has an entry no more. Queues of hashes that are free thereby are lined up a little later,
// so that one read serves many.
func (k *keyed) letGo(h keyHash) {
	if k.policy.OutOfOrder {
		return
	}
	has := k.states.get(h)
	if has.n > 1 {
		has.n--
		k.states.set(h, has)
		return
	}
	k.states.set(h, keyState{queue: has.queue})
	if q := has.queue; q == nil || q.n == 0 || q.lined {
		return
	}
	k.cleared++
	k.drained = append(k.drained, h)
	if k.opts.KeySharedUnblockingInterval <= 0 {
		k.lineUpDrained()
	} else if k.timer == nil {
		k.timer = k.exec.After(k.opts.KeySharedUnblockingInterval, k.onDrained)
	}
}

func (k *keyed) lineUpDrained() {
	for _, h := range k.drained {
		if q := k.states.get(h).queue; q != nil {
			k.line(q)
		}
	}
	k.drained = k.drained[:0]
}

// add lets an entry wait.
func (k *keyed) add(p ledger.Position, it waitingItem) {
	if !k.wait.add(p, it) {
		return
	}
	q := k.states.get(it.hash).queue
	if q == nil {
		q = k.newQueue(it.hash)
	}
	q.heap.push(p)
	q.n++
	k.line(q)
}

// remove takes an entry away that need not be delivered any more.
func (k *keyed) remove(p ledger.Position) {
	it, ok := k.wait.remove(p)
	if !ok {
		return
	}
	q := k.states.get(it.hash).queue
	q.n--
	if len(q.heap) > 64 && len(q.heap) > 4*q.n {
		q.heap = slices.DeleteFunc(q.heap, func(p ledger.Position) bool { return !k.waits(p) })
		slices.SortFunc(q.heap, ledger.Position.Compare) // sorted is a heap
		q.heap = slices.Compact(q.heap)
	}
	k.tidy(q)
}

func (k *keyed) waits(p ledger.Position) bool {
	_, ok := k.wait.get(p)
	return ok
}

func (k *keyed) newQueue(h keyHash) *keyQueue {
	var q *keyQueue
	if n := len(k.spare); n > 0 {
		q, k.spare = k.spare[n-1], k.spare[:n-1]
	} else {
		q = &keyQueue{}
	}
	q.hash, q.owner = h, k.spans.owner(h)
	k.states.set(h, keyState{k.states.get(h).holding, q})
	return q
}

// tidy lets an empty queue go. One that is lined up is let go when its turn comes.
func (k *keyed) tidy(q *keyQueue) {
	if q.n > 0 || q.taken > 0 || q.lined {
		return
	}
	k.states.set(q.hash, keyState{holding: k.states.get(q.hash).holding})
	if cap(q.heap) <= 1024 && len(k.spare) < 1024 {
		q.heap, q.owner = q.heap[:0], nil
		k.spare = append(k.spare, q)
	}
}

// least returns the first entry of a queue that has one.
func (k *keyed) least(q *keyQueue) ledger.Position {
	for len(q.heap) > q.n && !k.waits(q.heap[0]) { // as many as wait: it is those that do
		q.heap.pop()
	}
	return q.heap[0]
}

// line puts a queue at the end of its owner's line, if it has entries that the owner may have.
func (k *keyed) line(q *keyQueue) {
	if q.lined || q.n == 0 {
		return
	}
	c := q.owner
	if has := k.states.get(q.hash); c == nil || has.n > 0 && has.by != c {
		return
	}
	q.lined = true
	c.lined.push(q)
}

// next returns the queue whose turn it is at a consumer; nil: there is nothing for it.
func (k *keyed) next(c *Consumer) *keyQueue {
	for c.lined.len() > 0 {
		q := c.lined.peek()
		if q.n > 0 {
			return q
		}
		c.lined.pop()
		q.lined = false
		k.tidy(q)
	}
	return nil
}
