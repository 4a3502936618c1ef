package topic

import (
	"fmt"
	"sync"
	"sync/atomic"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// messageLog is where a topic's messages go: a managed ledger, or a transient log.
type messageLog interface {
	Add(ops []managedledger.Op)
	LastConfirmed() ledger.Position // any goroutine
	Exists(p ledger.Position) bool  // any goroutine
	Hold(p ledger.Position)
	Cursors() []string
	OpenCursor(o managedledger.CursorOptions, done func(*managedledger.Cursor, error))
	DeleteCursor(name string, done func(error))
	Stats() managedledger.Stats
	Close(done func(error))
	Delete(done func(error))
}

// transient is the log of a non-persistent topic: it keeps nothing. A message gets its receipt at once, and goes to
// the consumers that are connected, have permits and read from their connections at that moment; else it is dropped, for
// each subscription by itself, and counted. Nothing is delivered again, and acknowledgements change nothing. Its
// subscriptions last as long as they have consumers.
//
//	Publish ─▶ Add ─▶ Completed ─▶ receipt
//	             └─▶ one offer per subscription ─▶ its executor: dispatch ─▶ consumer, or dropped
//
// Positions count up from entry 0 of ledger 0; a topic that is opened again begins anew.
type transient struct {
	topic  *Topic
	next   atomic.Int64 // entry
	offers sync.Pool
}

// maxOffered bounds the entries on their way to a subscription that does not keep up.
const maxOffered = 10_000

func newTransient(t *Topic) *transient { return &transient{topic: t} }

// Add completes at once.
func (l *transient) Add(ops []managedledger.Op) {
	t := l.topic
	n := int64(len(ops)) // barriers are for duplicates, which a topic that keeps nothing does not know
	first := ledger.Position{Entry: ledger.EntryID(l.next.Add(n) - n)}
	for _, s := range t.slots {
		if s.state == slotOpen {
			l.offer(s.sub, ops, first)
		}
	}
	t.completed(ops, first)
}

// offer sends entries to a subscription.
func (l *transient) offer(s *subscription, ops []managedledger.Op, at ledger.Position) {
	if s.connected.Load() == 0 {
		return
	}
	if s.offered.Load() > maxOffered {
		var messages int64
		for i := range ops {
			messages += int64(ops[i].Messages)
		}
		s.dropped.Add(messages)
		return
	}
	o, ok := l.offers.Get().(*offer)
	if !ok {
		o = &offer{from: l}
	}
	o.to = s
	for i := range ops {
		ops[i].Payload.Retain()
		o.entries = append(o.entries, ledger.Entry{Position: at, Payload: ops[i].Payload})
		at.Entry++
	}
	s.offered.Add(int32(len(o.entries)))
	s.exec.Post(o)
}

// offer is entries on their way to a subscription. It is reused.
type offer struct {
	from    *transient
	to      *subscription
	entries []ledger.Entry
}

var _ executor.Task = (*offer)(nil)

// Run implements executor.Task.
func (o *offer) Run() {
	s := o.to
	s.offered.Add(-int32(len(o.entries)))
	s.passOn(o.entries)
	clear(o.entries)
	o.to, o.entries = nil, o.entries[:0]
	o.from.offers.Put(o)
}

// passOn gives entries to consumers that can take them now. The references are used up.
func (s *subscription) passOn(entries []ledger.Entry) {
	s.exec.AssertCurrent()
	s.share.left = 0
	for i := range entries {
		e := &entries[i]
		it := s.inspect(e.Payload.Data)
		c := s.choose(e.Position, it.hash)
		if c != nil && !c.ready() { // it has permits, but does not read
			s.share.left = 0
			c = s.choose(e.Position, it.hash)
		}
		if c == nil || !c.ready() {
			s.dropped.Add(int64(it.messages))
			e.Payload.Release()
			continue
		}
		s.give(c, e, it)
	}
	s.handOver()
	s.check()
}

// LastConfirmed implements messageLog.
func (l *transient) LastConfirmed() ledger.Position {
	return ledger.Position{Entry: ledger.EntryID(l.next.Load()) - 1}
}

// Exists implements messageLog: there is nothing to be read.
func (l *transient) Exists(ledger.Position) bool { return false }

// Hold implements messageLog: nothing is kept.
func (l *transient) Hold(ledger.Position) {}

// Cursors implements messageLog.
func (l *transient) Cursors() []string { return nil }

// OpenCursor implements messageLog.
func (l *transient) OpenCursor(o managedledger.CursorOptions, done func(*managedledger.Cursor, error)) {
	o.Executor.PostFunc(func() { done(nil, errTransient) })
}

// errTransient is the outcome of what needs stored messages.
var errTransient = fmt.Errorf("the topic is not persistent: %w", ErrNotAllowed)

// DeleteCursor implements messageLog.
func (l *transient) DeleteCursor(_ string, done func(error)) { l.later(done) }

// Stats implements messageLog.
func (l *transient) Stats() managedledger.Stats {
	return managedledger.Stats{LastConfirmed: l.LastConfirmed()}
}

// Close implements messageLog.
func (l *transient) Close(done func(error)) { l.later(done) }

// Delete implements messageLog.
func (l *transient) Delete(done func(error)) { l.later(done) }

func (l *transient) later(done func(error)) { l.topic.exec.PostFunc(func() { done(nil) }) }

// nothing is the cursor of a subscription of a transient topic: all is deleted, and nothing comes.
type nothing struct {
	last   func() ledger.Position
	parked bool
}

func (n *nothing) Read(ledger.Limits, func([]ledger.Entry, error)) { n.parked = true }

func (n *nothing) CancelRead() bool {
	was := n.parked
	n.parked = false
	return was
}

func (n *nothing) WillReadAt([]ledger.Position)                                 {}
func (n *nothing) ReadAt(_ []ledger.Position, done func([]ledger.Entry, error)) { done(nil, nil) }
func (n *nothing) MarkDelete(_ ledger.Position, done func(error))               { call(done) }
func (n *nothing) Delete(_ []ledger.Position, done func(error))                 { call(done) }
func (n *nothing) Part(ledger.Position) []int64                                 { return nil }
func (n *nothing) DeletePart(ledger.Position, []int64) ([]int64, error)         { return nil, nil }
func (n *nothing) MarkDeleted() ledger.Position                                 { return n.last() }
func (n *nothing) ReadPosition() ledger.Position                                { return n.last() }
func (n *nothing) IsDeleted(ledger.Position) bool                               { return true }
func (n *nothing) Rewind()                                                      {}
func (n *nothing) Seek(_ ledger.Position, done func(error))                     { call(done) }
func (n *nothing) Backlog() int64                                               { return 0 }
func (n *nothing) Close(done func(error))                                       { call(done) }

func call(done func(error)) {
	if done != nil {
		done(nil)
	}
}
