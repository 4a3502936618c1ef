package managedledger

import (
	"fmt"

	"geminga/pkg/ledger"
)

// Batches of more messages than fit are refused: 64 × mostPartWords. In the mean a batch may have 64 × meanPartWords.
const (
	mostPartWords = 1 << 11
	meanPartWords = 16
)

// Part returns the messages of a batch that are not deleted, as DeletePart takes them; nil when nothing of the entry is
// deleted, or all. The slice is immutable.
func (c *Cursor) Part(p ledger.Position) []int64 { return c.parts.get(p) }

// DeletePart deletes the messages of a batch whose bits in unacked are 0, and returns those that are left, without zero
// words at the end. When nothing is left the entry is as it was: the caller deletes it as a whole. It is durable when
// the receipt of a later Delete, be it of nothing, or MarkDelete has come. An entry that is deleted, or does not exist, has
// nothing left and stays as it is. ErrTooManyParts says that there are MaxBatchDeletedIndexes already, or too many
// messages in this batch or in all.
func (c *Cursor) DeletePart(p ledger.Position, unacked []int64) (left []int64, err error) {
	c.assertCurrent()
	s := c.log()
	if err := c.check(s, p); err != nil {
		return nil, err
	}
	if c.IsDeleted(p) || !s.exists(p) {
		return nil, nil
	}
	was := c.parts.get(p)
	left = intersect(was, unacked)
	if len(left) == 0 || was != nil && ones(left) == ones(was) {
		return left, nil
	}
	most := c.m.opts.MaxBatchDeletedIndexes
	if was == nil && c.parts.len() >= most || len(left) > mostPartWords || c.parts.words+len(left) > meanPartWords*most {
		c.m.env.Metrics.truncated()
		return nil, fmt.Errorf("%w: %d batches", ErrTooManyParts, c.parts.len())
	}
	c.parts.set(p, left)
	if c.store != nil {
		c.store.changes.part(p)
	}
	c.changed(nil)
	return left, nil
}
