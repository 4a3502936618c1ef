package topic

import (
	"time"

	"geminga/pkg/invariant"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// Message is one SEND: a message, or a batch that travels and is stored as one entry.
type Message struct {
	Producer          *Producer
	SequenceID        uint64 // of the first message
	HighestSequenceID uint64 // of the last one; 0: not said
	Payload           ledger.Payload
	Messages          int32
	Chunk             bool // part of a larger message
}

// inFlight is a message between Publish and its receipt.
type inFlight struct {
	producer  *Producer
	sequence  uint64
	highest   uint64
	mark      mark // for deduplication
	size      int
	messages  int32
	duplicate bool // no entry: a barrier that completes after what was added before
}

// publishing is the part of a Topic that sends pass through.
//
// pending mirrors the managed ledger's queue: ops complete in the order of Add, so the front of pending belongs to the
// next completion. It exists beside the ops because after Lost nobody else knows what was in flight.
type publishing struct {
	pending    ring[inFlight]
	ops        []managedledger.Op // scratch
	dirty      []*outbox          // have receipts to hand over
	drained    []func()           // to call after that
	dropped    bool               // what was in flight has been answered as dropped; completions come too late
	in         meter
	last       ledger.Position // of the last entry that completed here
	lastIndex  int32           // index of the last message in it; -1: no batch
	duplicates int64
}

// Publish stores messages in order. Each comes back as one Receipt: stored, a duplicate, or dropped because its producer
// is gone. It takes the references to payloads that it needs; the slice and the references given are the caller's again.
func (t *Topic) Publish(batch []Message) {
	t.exec.AssertCurrent()
	pub := &t.pub
	ops := pub.ops[:0]
	for i := range batch {
		m := &batch[i]
		p := m.Producer
		invariant.Assert(p.topic == t, "message of another topic's producer")
		f := inFlight{
			producer: p, sequence: m.SequenceID, highest: m.HighestSequenceID,
			size: len(m.Payload.Data), messages: m.Messages,
		}
		if p.gone || t.state != running {
			t.answer(&f, ledger.Position{}, ErrDropped)
			continue
		}
		op := managedledger.Op{Payload: m.Payload, Messages: m.Messages}
		if t.dedup != nil && t.dedup.seen(m, &f) {
			pub.duplicates++
			if p.pending == 0 && !p.dedup.persisted.less(f.mark) {
				t.answer(&f, NoPosition, nil)
				continue
			}
			f.duplicate = true
			op = managedledger.Op{Barrier: true}
		}
		p.pending++
		pub.pending.push(f)
		ops = append(ops, op)
	}
	if len(ops) > 0 {
		if t.numbers() {
			t.number(ops)
		}
		t.log.Add(ops)
	}
	clear(ops)
	pub.ops = ops[:0]
	t.flush()
}

func (t *Topic) completed(ops []managedledger.Op, first ledger.Position) {
	t.exec.AssertCurrent()
	if t.pub.dropped {
		return
	}
	var messages, bytes, entries int64
	now := time.Now()
	last := -1
	for i := range ops {
		f := t.pub.pending.pop()
		p := f.producer
		position := NoPosition
		if !f.duplicate {
			position = first
			first.Entry++
			entries++
			messages += int64(f.messages)
			bytes += int64(f.size)
			p.in.add(now, int64(f.messages), int64(f.size))
			t.pub.last = position
			last = i
			if p.dedup != nil {
				p.dedup.persisted = max2(p.dedup.persisted, f.mark)
			}
		}
		t.answer(&f, position, nil)
		t.finished(p)
	}
	if last >= 0 {
		t.pub.lastIndex = lastBatchIndex(ops[last].Payload.Data)
	}
	t.pub.in.add(now, messages, bytes)
	t.env.Metrics.published(messages, bytes)
	t.flush()
	if t.dedup != nil && entries > 0 {
		t.snapshotDedup(entries, now)
	}
	t.advanceClose()
}

// finished counts a message of p out.
func (t *Topic) finished(p *Producer) {
	p.pending--
	invariant.Assert(p.pending >= 0, "producer %q has %d messages in flight", p.Name, p.pending)
	if p.pending == 0 && p.drained != nil {
		t.pub.drained = append(t.pub.drained, p.drained)
		p.drained = nil
	}
}

// dropPending answers everything in flight as dropped, when nothing will complete any more.
func (t *Topic) dropPending() {
	t.pub.dropped = true
	for t.pub.pending.len() > 0 {
		f := t.pub.pending.pop()
		t.answer(&f, ledger.Position{}, ErrDropped)
		t.finished(f.producer)
	}
	t.flush()
}

// answer puts a receipt in the outbox of the producer's connection; flush hands it over.
func (t *Topic) answer(f *inFlight, position ledger.Position, err error) {
	o := f.producer.out
	if len(o.receipts) == 0 {
		t.pub.dirty = append(t.pub.dirty, o)
	}
	o.receipts = append(o.receipts, Receipt{
		ProducerID: f.producer.ID, SequenceID: f.sequence, HighestSequenceID: f.highest,
		Position: position, Size: f.size, Err: err,
	})
}

func (t *Topic) flush() {
	for i, o := range t.pub.dirty {
		o.sink.Receipts(o.receipts)
		o.receipts = o.receipts[:0]
		t.pub.dirty[i] = nil
	}
	t.pub.dirty = t.pub.dirty[:0]
	for i, done := range t.pub.drained {
		t.pub.drained[i] = nil
		done()
	}
	t.pub.drained = t.pub.drained[:0]
}
