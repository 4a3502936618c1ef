package topic

import (
	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
)

// LastMessage is where a topic ends, and how far a subscription has acknowledged.
type LastMessage struct {
	Position    ledger.Position // Entry is ledger.NoEntry when the topic is empty
	BatchIndex  int32           // of the last message in the entry; -1 when it is not a batch
	MarkDeleted ledger.Position
}

// LastMessage tells where the topic ends. On the consumer's executor; done on the topic's.
func (c *Consumer) LastMessage(done func(LastMessage, error)) {
	c.sub.exec.AssertCurrent()
	if c.sub.ended {
		done(LastMessage{}, ErrConsumerClosed)
		return
	}
	mark := c.sub.cursor.MarkDeleted()
	t := c.sub.topic
	t.exec.PostFunc(func() {
		t.LastMessage(func(m LastMessage, err error) {
			m.MarkDeleted = mark
			done(m, err)
		})
	})
}

// LastMessage tells where the topic ends. done on the topic's executor.
func (t *Topic) LastMessage(done func(LastMessage, error)) {
	if err := t.ready(); err != nil {
		done(LastMessage{}, err)
		return
	}
	last := t.log.LastConfirmed()
	switch {
	case last.Entry == ledger.NoEntry:
		done(LastMessage{Position: last, BatchIndex: -1}, nil)
	case last == t.pub.last:
		done(LastMessage{Position: last, BatchIndex: t.pub.lastIndex}, nil)
	default:
		t.readLast(last, done)
	}
}

// readLast reads the last entry of what an earlier owner has stored.
func (t *Topic) readLast(last ledger.Position, done func(LastMessage, error)) {
	m := LastMessage{Position: last, BatchIndex: -1}
	t.readEntry(last, func(payload []byte) { m.BatchIndex = lastBatchIndex(payload) }, func(err error) { done(m, err) })
}

// lastBatchIndex is the index of the last message of a batch, -1 for an entry that is none.
func lastBatchIndex(payload []byte) int32 {
	var section protocol.Section
	var md protocol.Metadata
	if section.Parse(payload) != nil || md.Parse(section.Metadata) != nil || !md.Batch {
		return -1
	}
	return max(1, md.NumMessages) - 1
}
