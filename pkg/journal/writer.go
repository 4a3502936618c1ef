package journal

import (
	"errors"
	"fmt"
	"time"

	"geminga/pkg/vfs"
)

// writer is what the writing goroutine alone knows.
type writer struct {
	seg    *segment
	seed   seed
	size   int64  // of the segment's file
	off    int64  // where the next batch goes
	batch  uint64 // number of the next batch
	groups uint64 // groups of the batch before, as bits
	batchN uint64 // counts gathered batches, to tell stale shadows
	unsure bool   // see flagUnsure
	sum    summary

	taken []*request // memory of gather
	kept  []*request // memory of writeBatch
}

// run is the writing goroutine: begin a segment, then gather, write, sync, release, until closed or poisoned.
func (j *Journal) run() {
	defer j.end()
	err := j.begin()
	j.begun <- err
	if err != nil {
		return
	}
	for {
		reqs := j.gather()
		if reqs == nil {
			break
		}
		if !j.writeAll(reqs) {
			return
		}
	}
	if j.Err() == nil {
		_ = j.seal() // an error poisons, and Close reports that
	}
}

// end waits for the preparer, but not for ever.
func (j *Journal) end() {
	j.prep.close()
	t := time.NewTimer(j.opts.WriteDeadline)
	defer t.Stop()
	select {
	case <-j.prep.ended:
	case <-t.C:
		j.mu.Lock()
		j.hung = true
		j.poisonLocked(fmt.Errorf("allocate a segment: %w (%v)", ErrDeadline, j.opts.WriteDeadline))
		j.mu.Unlock()
	}
	close(j.ended)
}

// gather waits for requests and takes what there is, up to MaxBatchSize. It returns nil when there is nothing and
// never will be.
func (j *Journal) gather() []*request {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.queue) == 0 && !j.closing && j.err == nil {
		j.wake.Wait()
	}
	if wait := j.opts.MaxGroupWait; wait > 0 && !j.closing && j.err == nil && j.queued < int64(j.opts.MaxBatchSize) {
		j.mu.Unlock()
		j.linger(wait)
		j.mu.Lock()
	}
	if j.err != nil || len(j.queue) == 0 {
		return nil
	}
	n, size := 0, int64(0)
	for n < len(j.queue) && (n == 0 || size+j.queue[n].size <= int64(j.opts.MaxBatchSize)) {
		size += j.queue[n].size
		n++
	}
	j.w.taken = append(j.w.taken[:0], j.queue[:n]...)
	rest := copy(j.queue, j.queue[n:])
	clear(j.queue[rest:])
	j.queue = j.queue[:rest]
	j.queued -= size
	j.inflight = j.w.taken
	return j.w.taken
}

// linger waits for company, if that was asked for.
func (j *Journal) linger(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-j.failed:
	}
}

// writeAll writes requests in order, in as many batches as segments need. It reports false when the journal is
// poisoned; then nobody waits any more, and the requests must not be touched.
func (j *Journal) writeAll(reqs []*request) bool {
	for len(reqs) > 0 {
		n := j.fitting(reqs)
		if n == 0 {
			err := j.roll(batchHeaderLen + reqs[0].size)
			switch {
			case errors.Is(err, ErrNoSpace):
				j.metrics.full()
				j.release(reqs[:1], err)
				reqs = reqs[1:]
			case err != nil:
				return false
			}
			continue
		}
		if !j.writeBatch(reqs[:n]) {
			return false
		}
		reqs = reqs[n:]
	}
	return true
}

// room is what a batch may take of the current segment: a sector stays free for the end mark.
func (w *writer) room() int64 { return w.size - sectorSize - w.off }

// fitting counts the leading requests that go into the current segment as one batch.
func (j *Journal) fitting(reqs []*request) int {
	size := int64(batchHeaderLen)
	for n, r := range reqs {
		if size += r.size; padded(size) > j.w.room() {
			return n
		}
	}
	return len(reqs)
}

// release answers requests and forgets them.
func (j *Journal) release(reqs []*request, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range reqs {
		r.finishLocked(err)
	}
	j.inflight = j.inflight[len(reqs):]
}

// refuse answers one request with an error before its batch. It stays among those in flight, which is why a caller
// does not reuse a request that got an error.
func (j *Journal) refuse(r *request, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.finishLocked(err)
}

// writeBatch makes requests durable with one write and one sync, and releases them.
func (j *Journal) writeBatch(reqs []*request) bool {
	w := &j.w
	w.batchN++
	kept, size, records := w.kept[:0], int64(batchHeaderLen), 0
	for _, r := range reqs {
		write, err := r.g.admit(r, w.batchN)
		if err != nil {
			j.refuse(r, err)
		}
		if !write {
			continue // refused, or nothing to do: then it is answered with the others, and not reused before
		}
		kept = append(kept, r)
		size += r.size
		records += r.count()
	}
	w.kept = kept
	if len(kept) > 0 {
		buf := j.tail.reserve(int(padded(size)))
		e := encoder{buf: buf, n: batchHeaderLen, base: w.off, seed: w.seed, sum: &w.sum}
		groups := uint64(0)
		for _, r := range kept {
			e.request(r)
			groups |= groupBit(r.g.id)
		}
		e.finish(&batchHeader{number: w.batch, count: uint32(records), groups: groups, before: w.groups})
		if err := j.put(buf, records, j.opts.SyncData); err != nil {
			return false
		}
		w.groups = groups
		for _, r := range kept {
			r.g.publish(r, w.seg.number)
		}
	}
	j.release(reqs, nil)
	clear(kept)
	return true
}

// finish writes the header of a batch and zeroes the padding.
func (e *encoder) finish(h *batchHeader) {
	h.length = uint32(e.n - batchHeaderLen)
	h.put(e.buf, e.seed, e.base)
	clear(e.buf[e.n:])
	e.sum.batch(h.flags)
}

// put writes a batch at the current offset and moves on.
func (j *Journal) put(buf []byte, records int, sync bool) error {
	w := &j.w
	if err := j.writeSync(w.seg.file, buf, w.off, sync); err != nil {
		return err
	}
	j.metrics.wrote(int64(len(buf)), int64(records))
	j.tail.commit(w.seg.number, w.off, buf)
	w.off += int64(len(buf))
	w.batch++
	if w.off > w.size/2 {
		j.prep.want(w.seg.number + 1)
	}
	return nil
}

// writeSync is the only place that writes.
func (j *Journal) writeSync(file vfs.File, buf []byte, off int64, sync bool) error {
	j.arm("write")
	start := time.Now()
	write := file.WriteDirect
	if j.opts.Buffered || !j.opts.SyncData {
		write = file.WriteAt
	}
	_, err := write(buf, off)
	if err == nil && sync {
		err = file.SyncData()
	}
	if err := j.disarm(err); err != nil {
		return err
	}
	if sync {
		j.metrics.synced(time.Since(start))
	}
	return nil
}

// roll begins the next segment, with room for a batch of need bytes. ErrNoSpace leaves everything as it was.
func (j *Journal) roll(need int64) error {
	w := &j.w
	next, groups := w.seg.number+1, j.allGroups()
	head := headSize(groups)
	size := max(j.opts.SegmentSize, head+padded(need)+sectorSize)
	if size > maxSegmentSize+maxRecordSize {
		return fmt.Errorf("%w: the state of all groups takes %d bytes", ErrNoSpace, head)
	}
	file, err := j.nextFile(next, size)
	if err != nil {
		return err
	}
	if err := j.seal(); err != nil {
		return err
	}
	old := w.seg
	w.seg, w.seed, w.size, w.off = j.segs.add(next, file), seedOf(next), size, 0
	j.segs.release(old)
	return j.writeHead(groups, head)
}

// nextFile takes the prepared file, and makes it longer if need be.
func (j *Journal) nextFile(number uint64, size int64) (vfs.File, error) {
	j.arm("allocate a segment")
	early := j.prep.asked
	got, ok := j.prep.take(number, j.failed)
	if ok && early && errors.Is(got.err, vfs.ErrNoSpace) {
		got, ok = j.prep.take(number, j.failed) // that was then
	}
	if !ok {
		return nil, j.disarm(nil)
	}
	err := got.err
	if err == nil && size > j.opts.SegmentSize {
		if err = got.file.Preallocate(size); err == nil {
			err = got.file.Sync()
		}
		if err != nil { // it is asked for again under the same number
			err = errors.Join(err, got.file.Close(), j.opts.FS.Remove(j.segs.path(number)))
		}
	}
	if errors.Is(err, vfs.ErrNoSpace) {
		if poisoned := j.disarm(nil); poisoned != nil {
			return nil, poisoned
		}
		return nil, fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	if err := j.disarm(err); err != nil {
		return nil, err
	}
	return got.file, nil
}

// endMark is the batch that says that nothing follows in a segment: every segment but the newest ends with one, and so
// does the newest when the journal was closed. Without it damage to the last batches would look like a torn write.
func (j *Journal) endMark(s seed, sum *summary, off int64) []byte {
	w := &j.w
	buf := j.tail.reserve(sectorSize)
	e := encoder{buf: buf, n: batchHeaderLen, base: off, seed: s, sum: sum}
	e.finish(&batchHeader{number: w.batch, before: w.groups, flags: flagEnd})
	w.batch++
	w.groups = 0
	return buf
}

// seal ends the current segment.
func (j *Journal) seal() error {
	w := &j.w
	off := w.off
	w.off += sectorSize
	if err := j.writeSync(w.seg.file, j.endMark(w.seed, &w.sum, off), off, true); err != nil {
		return err
	}
	j.prep.summarise(sealed{w.seg.number, w.sum.whole()})
	w.sum = summary{} // the preparer has its memory
	return nil
}
