package broker

import (
	"sync"
	"sync/atomic"

	"geminga/pkg/eventloop"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// loopState is what the broker keeps for one I/O loop: the sends of the running turn, and what topics and subscriptions
// have left for the loop's connections. Loop-owned, except out.
//
//	Data ─▶ SEND ─▶ batch of its topic ─TurnEnd─▶ topic's executor: Publish
//	socket ◀─ one write ◀─ outbox.Run ◀─ posted once ◀─ Receipts, Deliver (executors)
type loopState struct {
	server *Server
	turn   []*hosted // topics that have a batch for this loop
	out    outbox
	buf    []byte // frames under construction

	inFlight inFlight
	holder   holder // any goroutine

	// Decoded commands, reused.
	frame   protocol.Frame
	send    protocol.Send
	section protocol.Section
	meta    protocol.Metadata
	flow    protocol.Flow
	ack     protocol.Ack
	acks    ackPool
}

// batch is sends of one turn to one topic. As a Task it publishes them.
type batch struct {
	topic    *hosted
	messages []topic.Message
	bytes    int
	count    int64
}

// Run publishes on the topic's executor, then gives the references and itself back.
func (b *batch) Run() {
	h := b.topic
	h.t.Publish(b.messages)
	for i := range b.messages {
		b.messages[i].Payload.Release()
	}
	clear(b.messages)
	*b = batch{messages: b.messages[:0]}
	h.server.batches.Put(b)
}

// maxKept bounds the capacity of slices that are kept for reuse.
const maxKept = 4096

// add puts a send into the batch of its topic. The batch takes over the payload's reference. A batch that is full goes at
// once: the topic's executor can begin with it while the turn goes on, and none has to grow with the turn.
func (st *loopState) add(h *hosted, loop int, m *topic.Message) {
	b := h.batches[loop]
	if b == nil {
		b = st.server.batches.Get().(*batch)
		b.topic = h
		h.batches[loop] = b
		st.turn = append(st.turn, h)
	}
	b.messages = append(b.messages, *m)
	b.bytes += len(m.Payload.Data)
	b.count += int64(m.Messages)
	if len(b.messages) == pieceSize {
		st.post(h)
	}
}

// flush posts every batch.
func (st *loopState) flush() {
	for i, h := range st.turn {
		st.turn[i] = nil
		st.post(h)
	}
	st.turn = st.turn[:0]
}

// post posts the batch of one topic. Whatever is posted to the topic's executor on behalf of a connection comes after
// the sends that arrived before it: so callers post the batch first.
func (st *loopState) post(h *hosted) {
	if st.out.loop == nil {
		return
	}
	i := st.out.loop.Index()
	if b := h.batches[i]; b != nil {
		h.batches[i] = nil
		h.in.add(b.count, int64(b.bytes))
		h.exec.Post(b)
	}
}

// outbox is what executors leave for the connections of one loop. It is posted to the loop once for any number of
// additions.
//
// Receipts go out before closings, so that a client gets the receipts of a producer before it is told that the producer
// is closed.
type outbox struct {
	loop  *eventloop.Loop // set by the loop before any connection exists
	bytes atomic.Int64    // of payloads in deliveries, until they are in buffers of connections
	mu    struct {
		sync.Mutex
		outboxItems
		posted bool
	}
	taken outboxItems
}

type outboxItems struct {
	receipts   pile[receipt]
	deliveries pile[delivery]
	closings   []closing
}

func (s *Server) setUpOutbox(o *outbox) {
	for _, items := range []*outboxItems{&o.mu.outboxItems, &o.taken} {
		items.receipts.free, items.deliveries.free = &s.receipts, &s.deliveries
	}
}

type receipt struct {
	c *conn
	topic.Receipt
}

type delivery struct {
	c        *conn
	consumer *topic.Consumer
	topic.Delivery
}

type closing struct {
	c    *conn
	what pulsarpb.BaseCommand_Type
	id   uint64
}

// lock and unlock are around every addition.
func (o *outbox) unlock() {
	post := !o.mu.posted
	o.mu.posted = true
	o.mu.Unlock()
	if post {
		o.loop.Post(o)
	}
}

// Run writes everything, on the loop.
func (o *outbox) Run() {
	o.mu.Lock()
	o.taken, o.mu.outboxItems = o.mu.outboxItems, o.taken
	o.mu.posted = false
	o.mu.Unlock()
	o.taken.receipts.drain(writeReceipts)
	o.taken.deliveries.drain(func(ds []delivery) { o.bytes.Add(-writeDeliveries(ds)) })
	for i := range o.taken.closings {
		c := &o.taken.closings[i]
		c.c.topicClosed(c.what, c.id)
	}
	clear(o.taken.closings)
	if o.taken.closings = o.taken.closings[:0]; cap(o.taken.closings) > maxKept {
		o.taken.closings = nil
	}
}

// writeReceipts writes runs of receipts for one connection at a time.
func writeReceipts(rs []receipt) {
	for i := 0; i < len(rs); {
		c := rs[i].c
		st := c.state
		st.buf = st.buf[:0]
		first, bytes := i, int64(0)
		for ; i < len(rs) && rs[i].c == c; i++ {
			r := &rs[i]
			bytes += int64(r.Size)
			if r.Err != nil {
				continue // its producer is closed; the client sends it again
			}
			st.buf = protocol.AppendSendReceipt(st.buf, &protocol.SendReceipt{
				ProducerID: r.ProducerID, SequenceID: r.SequenceID, HighestSequenceID: r.HighestSequenceID,
				Ledger: uint64(r.Position.Ledger), Entry: uint64(r.Position.Entry),
			})
		}
		c.answered(i - first)
		st.answered(bytes)
		c.write(st.buf)
	}
}

// writeDeliveries returns the bytes of the payloads.
func writeDeliveries(ds []delivery) (bytes int64) {
	for i := range ds {
		d := &ds[i]
		bytes += int64(len(d.Entry.Payload.Data))
		d.c.deliver(d)
		d.Entry.Payload.Release()
	}
	for i := range ds {
		if c := ds[i].c; i == 0 || ds[i-1].c != c {
			c.sink.settle()
		}
	}
	return bytes
}
