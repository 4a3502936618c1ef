package broker

import (
	"math"

	"geminga/pkg/eventloop"
	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// SEND publishes a message, or a batch that is stored as one entry. There is no answer here: SEND_RECEIPT comes when it
// is stored, in the order of the sends of its producer.
//
// A bad checksum is answered with SEND_ERROR ChecksumError; clients then close the connection and send everything anew.
// Storage trouble never makes a SEND_ERROR, because it would cost the client all its producers and consumers: the topic
// closes the producer instead. A send for a producer that we have closed is dropped: it was on its way when we did. A send
// for a producer that never was closes the connection, as does a payload that does not parse, that names more messages than
// it can hold, or that brings broker entry metadata with it.
func handleSend(c *conn, root *eventloop.Root) error {
	st := c.state
	f, s := &st.frame, &st.send
	if err := s.Decode(f.Body); err != nil {
		return c.broken(err, nil)
	}
	p := c.producers[s.ProducerID]
	if p == nil || p.state != ready {
		return c.strayed(s.ProducerID)
	}
	if err := st.section.Parse(f.Payload); err != nil {
		return c.broken(err, nil)
	}
	if st.section.BrokerEntry != nil {
		return c.violation("SEND with broker entry metadata", "producer", p.name)
	}
	if err := st.section.Verify(); err != nil {
		c.say(kindChecksum, "Message refused: "+err.Error(), "producer", p.name)
		c.sendError(s, pulsarpb.ServerError_ChecksumError, "checksum failed on the broker")
		return nil //nolint:nilerr // the client was told, and the connection goes on
	}
	if err := st.meta.Parse(st.section.Metadata); err != nil {
		return c.broken(err, nil)
	}
	if s.InTxn && (s.TxnLeast != 0 || s.TxnMost != 0) {
		c.sendError(s, pulsarpb.ServerError_NotAllowedError, "Transactions are not enabled")
		return nil
	}
	messages := st.meta.NumMessages // the command's own number is not looked at: consumers see the metadata's
	if messages < 1 || messages > mostMessages(&st.meta, len(st.section.Body)) {
		return c.violation("SEND with an impossible number of messages", "producer", p.name)
	}
	if !c.mayPublish(p.hosted, int(messages), len(f.Payload)) {
		return errHeld
	}
	root.Retain()
	st.add(p.hosted, c.ec.Loop().Index(), &topic.Message{
		Producer: p.topic, SequenceID: s.SequenceID, HighestSequenceID: s.HighestSequenceID,
		Messages: messages, Payload: ledger.Payload{Data: f.Payload, Owner: root}, Chunk: s.IsChunk,
	})
	c.sent(len(f.Payload))
	return nil
}

// leastBatched is the size of the smallest message in a batch: the size of its metadata, and its own in there.
const leastBatched = 4 + 2

// mostMessages is how many messages an entry can hold. Permits are spent by the number that the metadata name, so one
// that is made up would keep consumers from getting anything else.
func mostMessages(m *protocol.Metadata, body int) int32 {
	if !m.Batch {
		return 1
	}
	size := max(int64(body), int64(m.UncompressedSize))
	return int32(min(max(1, size/leastBatched), math.MaxInt32))
}

// strayed handles a send for a producer that is not ready.
func (c *conn) strayed(id uint64) error {
	if _, closed := c.dropped[id]; closed {
		return nil
	}
	if p := c.producers[id]; p != nil && p.state == leaving {
		return nil
	}
	return c.violation("SEND for an unknown producer", "producer", id)
}

func (c *conn) sendError(s *protocol.Send, code protocol.ServerError, text string) {
	c.state.buf = protocol.AppendSendError(c.state.buf[:0], s.ProducerID, s.SequenceID, code, text)
	c.write(c.state.buf)
}
