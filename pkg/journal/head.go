package journal

import "time"

// headSize bounds the bytes that the header and the head of a segment take.
func headSize(groups []*Group) int64 {
	size := int64(batchHeaderLen)
	for _, g := range groups {
		size += g.stateSize()
	}
	return segmentHeaderLen + padded(size)
}

// writeHead writes the header of the current segment and its first batch, which holds the state of every group: the
// bounds of its log and its stable values. With it no older segment is needed for anything but the entries in it.
func (j *Journal) writeHead(groups []*Group, size int64) error {
	w := &j.w
	buf := make([]byte, size) // mostly more than it takes: cuts are dropped, and what is released is not named
	h := segmentHeader{id: j.id, segment: w.seg.number, first: w.batch, stamp: time.Now().UnixNano()}
	if j.opts.SyncData {
		h.flags = segmentSynced
	}
	h.put(buf)
	w.sum.begin(buf)
	e := encoder{buf: buf[segmentHeaderLen:], n: batchHeaderLen, base: segmentHeaderLen, seed: w.seed, sum: &w.sum}
	b := batchHeader{number: w.batch, before: w.groups, flags: flagHead}
	if w.unsure {
		b.flags |= flagUnsure
	}
	oldest := j.segs.oldest()
	for _, g := range groups {
		n := g.encodeState(&e, oldest)
		b.count += uint32(n)
		if n > 0 {
			b.groups |= groupBit(g.id)
		}
	}
	e.buf = e.buf[:padded(int64(e.n))] // the next batch begins where this one ends
	e.finish(&b)
	w.groups = b.groups
	head := j.tail.reserve(segmentHeaderLen + len(e.buf))
	copy(head, buf)
	if err := j.put(head, int(b.count), true); err != nil {
		return err
	}
	j.metrics.began()
	return nil
}

// blankLocked reports that there is nothing to say about a group.
func (g *Group) blankLocked() bool {
	return g.ops == 0 && g.lost == nil && g.log.first == 0 && g.kept.n == 0 && len(g.stable) == 0
}

// silentLocked reports that a head need not name the group.
func (g *Group) silentLocked() bool { return g.blankLocked() && len(g.cuts) == 0 && g.doubt == 0 }

// stateSize bounds what encodeState will take.
func (g *Group) stateSize() int64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.silentLocked() {
		return 0
	}
	size := int64(recordHeaderLen + stateLen(g.cuts))
	for key, val := range g.stable {
		size += recordHeaderLen + int64(len(key)) + int64(len(val))
	}
	return size
}

// encodeState writes the group's state and returns the number of records.
// What concerns only segments before the oldest is dropped.
func (g *Group) encodeState(e *encoder, oldest uint64) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(oldest)
	if g.silentLocked() {
		return 0
	}
	state := encodeState(g.doubt, g.cuts)
	h := recordHeader{sum: dataSum(state, nil), group: g.id, kind: kindState, index: g.log.first, term: g.log.last(), stamp: int64(g.ops)}
	if g.lost != nil {
		h.typ = stateLost
	}
	if len(state) == 0 {
		h.sum = 0
	}
	e.record(h, state, nil)
	for _, key := range sortedKeys(g.stable) {
		val, k := g.stable[key], []byte(key)
		e.record(recordHeader{sum: dataSum(val, k), group: g.id, kind: kindStable}, val, k)
	}
	return 1 + len(g.stable)
}
