package topic

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// KeyRange is a range of hashes of keys, both ends included.
type KeyRange struct{ Start, End int32 }

// KeyPolicy says how the consumers of a Key_Shared subscription share the keys. It is the same for all of them.
type KeyPolicy struct {
	Sticky     bool // each consumer names its ranges; else the broker deals them out
	OutOfOrder bool // a key may move to another consumer while messages of it are unacknowledged
}

// keySpan gives the hashes behind the end of the span before it, up to its own end, to a consumer; nil: to nobody.
type keySpan struct {
	end   int32 // included
	owner *Consumer
}

// keySpace tells for each hash who its owner is: spans in order of their ends, from hash 0 to the last one.
type keySpace []keySpan

func (k keySpace) owner(h keyHash) *Consumer {
	low, high := 0, len(k)
	for low < high {
		if mid := (low + high) / 2; k[mid].end < int32(h) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(k) {
		return nil
	}
	return k[low].owner
}

// add appends a span; one that is empty is left out, one of the same owner as the last is joined to it.
func (k keySpace) add(end int32, owner *Consumer) keySpace {
	switch n := len(k); {
	case n > 0 && end <= k[n-1].end, end < 0:
		return k
	case n > 0 && k[n-1].owner == owner:
		k[n-1].end = end
		return k
	}
	return append(k, keySpan{end, owner})
}

// each calls f with the ranges of one consumer.
func (k keySpace) each(owner *Consumer, f func(KeyRange)) {
	start := int32(0)
	for _, s := range k {
		if s.owner == owner {
			f(KeyRange{start, s.end})
		}
		start = s.end + 1
	}
}

// assignment deals the hashes out. A consumer that leaves has joined before.
type assignment interface {
	join(c *Consumer, ranges []KeyRange) error
	leave(c *Consumer)
	spans(dst keySpace) keySpace
}

func newAssignment(o *Options, p KeyPolicy) assignment {
	switch {
	case p.Sticky:
		return &stickyRanges{}
	case o.SubscriptionKeySharedHashRanges:
		return &splitRanges{}
	}
	return &hashRing{replicas: o.SubscriptionKeySharedConsistentHashingReplicaPoints}
}

// splitRanges gives a new consumer the lower half of the largest range. The ranges of one who leaves go to the
// neighbour. Shares are as unequal as powers of two.
type splitRanges struct{ ranges keySpace }

// The last range ends at keyHashes and not before, so that halves come out as clients expect: the first of two consumers
// keeps (32768, 65536].
func (s *splitRanges) join(c *Consumer, _ []KeyRange) error {
	if len(s.ranges) == 0 {
		s.ranges = keySpace{{keyHashes, c}}
		return nil
	}
	at, size, start := 0, int32(0), int32(0)
	for i, r := range s.ranges {
		if n := r.end - start; n > size {
			at, size = i, n
		}
		start = r.end
	}
	if size < 2 {
		return fmt.Errorf("%d consumers have all hashes of keys: %w", len(s.ranges), ErrConsumerAssign)
	}
	end := s.ranges[at].end
	s.ranges = slices.Insert(s.ranges, at, keySpan{end - size + size/2, c})
	return nil
}

func (s *splitRanges) leave(c *Consumer) {
	i := slices.IndexFunc(s.ranges, func(r keySpan) bool { return r.owner == c })
	switch {
	case i < 0:
		return
	case i == len(s.ranges)-1 && i > 0: // the one below grows up to the top
		s.ranges[i-1].end = keyHashes
	}
	s.ranges = slices.Delete(s.ranges, i, i+1)
}

func (s *splitRanges) spans(dst keySpace) keySpace {
	for _, r := range s.ranges {
		dst = dst.add(r.end, r.owner)
	}
	return dst
}

// hashRing is consistent hashing: each consumer is at many points of a ring, and a hash belongs to the next point. Shares
// are about equal and a join or leave moves few keys.
type hashRing struct {
	replicas int
	points   []ringPoint
	joins    uint64
}

type ringPoint struct {
	at     int32
	joined uint64 // the oldest consumer has a point that several want
	index  int    // among consumers of one name
	owner  *Consumer
}

func (r *hashRing) join(c *Consumer, _ []KeyRange) error {
	used := map[int]bool{}
	for _, p := range r.points {
		if p.owner.Name == c.Name {
			used[p.index] = true
		}
	}
	index := 0
	for used[index] {
		index++
	}
	r.joins++
	var b []byte
	for i := range r.replicas {
		b = append(b[:0], c.Name...)
		b = append(b, 0)
		b = strconv.AppendInt(b, int64(index), 10)
		b = append(b, 0)
		b = strconv.AppendInt(b, int64(i), 10)
		r.points = append(r.points, ringPoint{int32(hashKey(b)), r.joins, index, c})
	}
	slices.SortFunc(r.points, func(a, b ringPoint) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.joined, b.joined))
	})
	return nil
}

func (r *hashRing) leave(c *Consumer) {
	r.points = slices.DeleteFunc(r.points, func(p ringPoint) bool { return p.owner == c })
}

func (r *hashRing) spans(dst keySpace) keySpace {
	if len(r.points) == 0 {
		return dst
	}
	for _, p := range r.points {
		dst = dst.add(p.at, p.owner)
	}
	return dst.add(keyHashes-1, r.points[0].owner)
}

// stickyRanges are those that the consumers have asked for. They do not overlap; what nobody has asked for waits.
type stickyRanges struct{ ranges []stickyRange }

type stickyRange struct {
	KeyRange
	owner *Consumer
}

func (s *stickyRanges) join(c *Consumer, ranges []KeyRange) error {
	if len(ranges) == 0 || len(ranges) > keyHashes {
		return fmt.Errorf("consumer %q names %d ranges of hashes: %w", c.Name, len(ranges), ErrConsumerAssign)
	}
	all := slices.Clone(s.ranges)
	for _, r := range ranges {
		if r.Start < 0 || r.End < r.Start || r.End >= keyHashes {
			return fmt.Errorf("range of hashes [%d, %d]: %w", r.Start, r.End, ErrConsumerAssign)
		}
		all = append(all, stickyRange{r, c})
	}
	slices.SortFunc(all, func(a, b stickyRange) int { return cmp.Compare(a.Start, b.Start) })
	for i, r := range all[1:] {
		if o := all[i]; r.Start <= o.End {
			return fmt.Errorf("range of hashes [%d, %d] of %q overlaps [%d, %d] of %q: %w",
				r.Start, r.End, r.owner.Name, o.Start, o.End, o.owner.Name, ErrConsumerAssign)
		}
	}
	s.ranges = all
	return nil
}

func (s *stickyRanges) leave(c *Consumer) {
	s.ranges = slices.DeleteFunc(s.ranges, func(r stickyRange) bool { return r.owner == c })
}

func (s *stickyRanges) spans(dst keySpace) keySpace {
	for _, r := range s.ranges {
		dst = dst.add(r.Start-1, nil).add(r.End, r.owner)
	}
	return dst.add(keyHashes-1, nil)
}
