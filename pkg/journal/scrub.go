package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"geminga/pkg/vfs"
)

// ScrubOptions say how a Scrub goes about it.
type ScrubOptions struct {
	// BytesPerSecond bounds the rate of reading. 0: as fast as it goes.
	BytesPerSecond int64
	// Report is called for each damaged place. Default: nobody.
	Report func(*CorruptError)
	// Visit is called for every intact entry, where it was appended and where it was moved to. The slices of rec are valid
	// during the call. Default: nobody.
	Visit func(group uint32, rec *Record, p Place) error
	// VisitKept is called for everything intact that Keep wrote. The slices of k are valid during the call. Default: nobody.
	VisitKept func(group uint32, k *Kept, p Place) error
}

// Scrub reads every segment but the newest once, oldest first, and compares all checksums. It repairs nothing, and no
// group learns of what it finds. It goes beside everything else: a segment that is recycled meanwhile is left out or
// read to its end.
//
// The newest segment is being written and will be read by a later Scrub. What the kernel still has in memory is
// compared as it is there: damage on the disk below shows once the kernel has forgotten.
//
// The result counts the bytes that were read. An error is the context's or the visitor's; segments that cannot be read
// are joined to it, after the others were read.
func (j *Journal) Scrub(ctx context.Context, o ScrubOptions) (int64, error) {
	s := &scrub{j: j, opts: o, pace: pace{ctx: ctx, rate: o.BytesPerSecond, metrics: j.metrics}}
	numbers := j.Segments()
	var errs []error
	for i := 0; i+1 < len(numbers); i++ {
		err := s.segment(numbers[i])
		switch {
		case ctx.Err() != nil:
			return s.pace.bytes, ctx.Err()
		case errors.Is(err, errVisit):
			return s.pace.bytes, err
		case err != nil:
			errs = append(errs, err)
		}
	}
	return s.pace.bytes, errors.Join(errs...)
}

// errVisit marks an error of the visitor.
var errVisit = errors.New("visit")

// scrub is one walk through the segments.
type scrub struct {
	scanner
	j    *Journal
	opts ScrubOptions
	pace pace
	list []found
	each func(h *batchHeader, off int64) error // called with each batch, if not nil; list has its records
}

func (s *scrub) damaged(group uint32, index uint64, off int64, reason string) {
	s.j.metrics.damaged(1)
	if s.opts.Report != nil {
		s.opts.Report(&CorruptError{group, index, s.scanner.segment, off, reason})
	}
}

// segment reads one that is sealed: it has a header, batches without a gap, and an end mark.
func (s *scrub) segment(number uint64) error {
	seg, err := s.j.segs.acquire(number)
	if errors.Is(err, ErrNotFound) {
		return nil // recycled
	}
	if err != nil {
		return err
	}
	defer s.j.segs.release(seg)
	size, err := seg.file.Size()
	if err != nil {
		return fmt.Errorf("journal: segment %d: %w", number, err)
	}
	s.reset(pacedFile{seg.file, &s.pace}, number, size)
	b, err := s.at(0, min(segmentHeaderLen, size))
	if err != nil {
		return err
	}
	var h segmentHeader
	valid, err := h.parse(b, number)
	if err != nil {
		return err
	}
	expected := h.first
	if !valid {
		s.damaged(0, 0, 0, "header of the segment")
		expected = 0
	}
	return s.batches(expected)
}

// batches reads batch after batch up to the end mark, and goes on behind what is damaged. Expected 0: any number.
func (s *scrub) batches(expected uint64) error {
	off := int64(segmentHeaderLen)
	for {
		h, ok, err := s.batch(off)
		if err != nil {
			return err
		}
		if !ok || expected != 0 && h.number != expected {
			if expected != 0 {
				s.damaged(0, 0, off, fmt.Sprintf("batch %d cannot be read", expected))
			}
			if h, off, ok, err = s.next(off, expected); err != nil || !ok {
				return err
			}
		}
		if err := s.check(&h, off); err != nil {
			return err
		}
		if h.flags&flagEnd != 0 {
			return nil
		}
		off, expected = h.end(off), h.number+1
	}
}

// check reads the records of a batch.
func (s *scrub) check(h *batchHeader, off int64) error {
	list, _, known, err := s.records(h, off, s.list[:0])
	s.list = list
	if err != nil {
		return err
	}
	if !known {
		s.damaged(0, 0, off, "header of a record")
	}
	if s.each != nil {
		if err := s.each(h, off); err != nil {
			return err
		}
	}
	visit := visitor{s.opts.Visit, s.opts.VisitKept}
	for i := range list {
		f := &list[i]
		if !f.good {
			s.damaged(f.group, f.index, f.off, "checksum of the record")
		}
		if err := s.show(f, &visit); err != nil {
			return fmt.Errorf("%w: %w", errVisit, err)
		}
	}
	return nil
}

// pace spreads reads over time. A read is charged after it was made: the next one waits.
type pace struct {
	ctx     context.Context
	metrics *metrics
	rate    int64
	bytes   int64
	due     time.Time // when the next read may begin
}

func (p *pace) wait() error {
	if d := time.Until(p.due); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
	return p.ctx.Err()
}

func (p *pace) charge(n int) {
	p.bytes += int64(n)
	p.metrics.scrubbed(n)
	if p.rate <= 0 {
		return
	}
	now := time.Now()
	if p.due.Before(now) { // time that was not used is not saved up
		p.due = now
	}
	p.due = p.due.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
}

// pacedFile is a file that is read at a pace.
type pacedFile struct {
	vfs.File
	pace *pace
}

func (f pacedFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.pace.wait(); err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(b, off)
	f.pace.charge(n)
	return n, err
}
