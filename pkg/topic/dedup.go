package topic

import (
	"math"
	"time"

	"geminga/pkg/protocol"
)

// mark is a place in a producer's sequence: sequence ids grow from message to message; the chunks of one large message
// share one id and grow by chunk. A message that is not chunked, or is the last chunk, has the chunk whole.
type mark struct {
	sequence int64
	chunk    int32
}

const whole = math.MaxInt32

// noMark is before all marks.
var noMark = mark{-1, whole}

func (m mark) less(o mark) bool {
	return m.sequence < o.sequence || m.sequence == o.sequence && m.chunk < o.chunk
}

func max2(a, b mark) mark {
	if a.less(b) {
		return b
	}
	return a
}

// dedupProducer is what is known of a producer's name.
//
// INVARIANT: persisted ≤ pushed. What lies between them is in flight: whether it will be stored is not known, so a
// resend of it is neither stored again nor answered at once, but answered when everything before it is stored.
type dedupProducer struct {
	name      string
	pushed    mark // highest that was added to the log
	persisted mark // highest that is stored
	connected int  // registrations
	active    time.Time
}

// dedup recognizes messages that a producer sends again after it has reconnected.
type dedup struct {
	producers map[string]*dedupProducer
	snapshot  snapshotting
}

func newDedup() *dedup { return &dedup{producers: make(map[string]*dedupProducer)} }

func (d *dedup) get(name string) *dedupProducer {
	p := d.producers[name]
	if p == nil {
		p = &dedupProducer{name: name, pushed: noMark, persisted: noMark}
		d.producers[name] = p
	}
	return p
}

func (d *dedup) connect(name string) *dedupProducer {
	p := d.get(name)
	p.connected++
	return p
}

func (d *dedup) disconnect(p *dedupProducer) {
	p.connected--
	p.active = time.Now()
}

// seen reports that the message was pushed before; else it is pushed now. f.mark becomes the message's mark.
func (d *dedup) seen(m *Message, f *inFlight) bool {
	p := m.Producer.dedup
	first := mark{int64(m.SequenceID), whole}
	if m.Chunk {
		first.chunk = chunkOf(m.Payload.Data)
	}
	f.mark = mark{max(first.sequence, int64(m.HighestSequenceID)), first.chunk}
	if !p.pushed.less(first) {
		return true
	}
	p.pushed = f.mark
	return false
}

// recovered takes an entry into account that is in the log.
func (d *dedup) recovered(payload []byte, now time.Time) {
	var s protocol.Section
	var md protocol.Metadata
	if s.Parse(payload) != nil || md.Parse(s.Metadata) != nil {
		return
	}
	p := d.producers[string(md.ProducerName)]
	if p == nil {
		p = d.get(string(md.ProducerName))
	}
	m := mark{max(int64(md.SequenceID), int64(md.HighestSequenceID)), chunkMark(&md)}
	p.pushed, p.persisted = max2(p.pushed, m), max2(p.persisted, m)
	p.active = now
}

func chunkOf(payload []byte) int32 {
	var s protocol.Section
	var md protocol.Metadata
	if s.Parse(payload) != nil || md.Parse(s.Metadata) != nil {
		return whole
	}
	return chunkMark(&md)
}

func chunkMark(md *protocol.Metadata) int32 {
	if md.Chunks == 0 || md.ChunkID >= md.Chunks-1 {
		return whole
	}
	return md.ChunkID
}

// forget drops names that have been gone for long.
func (d *dedup) forget(before time.Time) {
	for name, p := range d.producers {
		if p.connected == 0 && p.active.Before(before) && p.pushed == p.persisted {
			delete(d.producers, name)
		}
	}
}
