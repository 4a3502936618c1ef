package journal

import (
	"fmt"
	"sync"
)

// request is one call of a group that waits to become durable.
type request struct {
	g      *Group
	kind   uint8
	index  uint64    // of kindTruncate and kindCompact
	key    []byte    // of kindStable
	val    []byte    // of kindStable
	recs   []Record  // of kindEntry
	sums   []uint32  // dataSum of each record, computed by the caller
	copies []carried // of kindKeep
	size   int64     // of all its records
	at     int64     // offset of its first record, once encoded

	finished bool
	done     chan error // capacity 1
}

// finishLocked answers once; the journal's lock is held.
func (r *request) finishLocked(err error) {
	if !r.finished {
		r.finished = true
		r.done <- err
	}
}

// requests are reused, since every append takes one.
type requests struct{ pool sync.Pool }

func (p *requests) get(g *Group, kind uint8) *request {
	r, _ := p.pool.Get().(*request)
	if r == nil {
		r = &request{done: make(chan error, 1)}
	}
	r.g, r.kind, r.finished = g, kind, false
	return r
}

// put takes a request back whose answer was nil: after an error the writer may still hold it.
func (p *requests) put(r *request) {
	*r = request{sums: r.sums[:0], done: r.done}
	p.pool.Put(r)
}

// count returns how many records the request makes.
func (r *request) count() int {
	switch r.kind {
	case kindEntry:
		return len(r.recs)
	case kindKeep:
		return len(r.copies)
	}
	return 1
}

// measure sets size and sums.
func (r *request) measure() {
	r.size = recordHeaderLen
	switch r.kind {
	case kindStable:
		r.size += int64(len(r.key) + len(r.val))
	case kindEntry:
		r.size = 0
		for i := range r.recs {
			rec := &r.recs[i]
			r.size += recordHeaderLen + int64(len(rec.Data)) + int64(len(rec.Extra))
			r.sums = append(r.sums, dataSum(rec.Data, rec.Extra))
		}
	case kindKeep:
		r.size = 0
		for i := range r.copies {
			r.size += r.copies[i].size()
		}
	}
}

// encoder lays records into a batch.
type encoder struct {
	buf  []byte
	n    int   // bytes used
	base int64 // offset of buf[0] in the segment
	seed seed
	sum  *summary
}

func (e *encoder) record(h recordHeader, data, extra []byte) {
	h.length, h.extra = uint32(len(data)), uint32(len(extra))
	e.sum.record(&h, data, extra)
	h.put(e.buf[e.n:], e.seed, e.base+int64(e.n))
	e.n += recordHeaderLen
	e.n += copy(e.buf[e.n:], data)
	e.n += copy(e.buf[e.n:], extra)
}

func (e *encoder) request(r *request) {
	r.at = e.base + int64(e.n)
	id := r.g.id
	switch r.kind {
	case kindEntry:
		for i := range r.recs {
			rec := &r.recs[i]
			e.record(recordHeader{
				sum: r.sums[i], group: id, kind: kindEntry, typ: rec.Type, term: rec.Term, index: rec.Index, stamp: rec.Stamp,
			}, rec.Data, rec.Extra)
		}
	case kindKeep:
		for i := range r.copies {
			c := &r.copies[i]
			e.record(recordHeader{
				sum: c.sum, group: id, kind: c.kind, typ: c.Type, term: c.Term, index: c.Index, stamp: c.Stamp,
			}, c.Data, c.Extra)
		}
	case kindStable:
		e.record(recordHeader{sum: dataSum(r.val, r.key), group: id, kind: kindStable}, r.val, r.key)
	default:
		e.record(recordHeader{group: id, kind: r.kind, index: r.index}, nil, nil)
	}
}

// checkRecords validates what an append brings before anything is done with it.
func checkRecords(recs []Record, maxSize int) error {
	total := int64(0)
	for i := range recs {
		rec := &recs[i]
		size := int64(len(rec.Data)) + int64(len(rec.Extra))
		switch {
		case size > int64(maxSize):
			return fmt.Errorf("%w: index %d has %d bytes, the limit is %d", ErrTooLarge, rec.Index, size, maxSize)
		case rec.Index == 0 || rec.Index >= 1<<62:
			return fmt.Errorf("%w: index %d is not valid", ErrNotNext, rec.Index)
		case rec.Index != recs[0].Index+uint64(i):
			return fmt.Errorf("%w: index %d after %d in one call", ErrNotNext, rec.Index, recs[i-1].Index)
		}
		total += recordHeaderLen + size
	}
	if total > maxRecordSize {
		return fmt.Errorf("%w: %d bytes in one call, the limit is %d", ErrTooLarge, total, maxRecordSize)
	}
	return nil
}
