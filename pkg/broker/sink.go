package broker

import (
	"sync/atomic"

	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// sink is a connection as topics and subscriptions see it: topic.Sink. Its methods are called on executors.
//
// Room and the loop must not miss each other, or a subscription would wait for ever:
//
//	executor: Room                         loop: settle
//	1 stalled = true                       a queued, full change
//	2 look at queued and full              b if writable and stalled: stalled = false, Resume the consumers
//
// If 2 sees the state before a, then 1 came before a, and b sees stalled.
type sink struct {
	c       *conn
	queued  atomic.Int64 // payload bytes in the outbox
	full    atomic.Bool  // the socket's outbound buffer is above its high-water mark
	stalled atomic.Bool  // somebody was told "not writable" and waits for Resume
	gone    atomic.Bool
}

// maxQueued is how many payload bytes may wait in the outbox.
const maxQueued = 256 << 10

// Receipts implements topic.Sink.
func (s *sink) Receipts(rs []topic.Receipt) {
	o := &s.c.state.out
	o.mu.Lock()
	for i := range rs {
		*o.mu.receipts.add() = receipt{s.c, rs[i]}
	}
	o.unlock()
}

// Deliver implements topic.Sink.
func (s *sink) Deliver(consumer *topic.Consumer, ds []topic.Delivery) {
	if s.gone.Load() {
		for i := range ds {
			ds[i].Entry.Payload.Release()
		}
		return
	}
	bytes := 0
	o := &s.c.state.out
	o.mu.Lock()
	for i := range ds {
		bytes += len(ds[i].Entry.Payload.Data)
		*o.mu.deliveries.add() = delivery{s.c, consumer, ds[i]}
	}
	s.queued.Add(int64(bytes))
	o.bytes.Add(int64(bytes))
	o.unlock()
}

// CloseProducer implements topic.Sink.
func (s *sink) CloseProducer(id uint64) { s.close(pulsarpb.BaseCommand_CLOSE_PRODUCER, id) }

// CloseConsumer implements topic.Sink.
func (s *sink) CloseConsumer(id uint64) { s.close(pulsarpb.BaseCommand_CLOSE_CONSUMER, id) }

func (s *sink) close(what pulsarpb.BaseCommand_Type, id uint64) {
	o := &s.c.state.out
	o.mu.Lock()
	o.mu.closings = append(o.mu.closings, closing{s.c, what, id})
	o.unlock()
}

// ActiveChanged implements topic.Sink. It is posted as the answer to the SUBSCRIBE was, and so comes after it.
func (s *sink) ActiveChanged(consumer *topic.Consumer, active bool) {
	s.c.post(func() { s.c.activeChanged(consumer, active) })
}

// scantRoom is what a connection gets at a time, once it has read all it got, on a loop that is short of room for output.
const scantRoom = 32 << 10

// Room implements topic.Sink.
func (s *sink) Room() int {
	room := s.room()
	if room == 0 {
		s.stalled.Store(true)
		room = s.room()
	}
	return room
}

func (s *sink) room() int {
	queued := s.queued.Load()
	if queued >= maxQueued || s.full.Load() || s.gone.Load() {
		return 0
	}
	st := s.c.state
	room := st.holder.loop.OutboundRoom() - st.out.bytes.Load()
	switch {
	case room > scantRoom:
		return int(room)
	case queued > 0:
		return 0
	}
	return scantRoom
}

// settle wakes the consumers that were told to wait, when the connection is writable again. On the loop.
func (s *sink) settle() {
	s.full.Store(!s.c.ec.Writable())
	if s.room() > 0 && s.stalled.Swap(false) {
		s.c.resumeConsumers()
	}
}
