package topic

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/rpc/pulsarpb"

	"geminga/pkg/protocol"
)

// counter is an Owner that counts references over all payloads of a test.
type counter struct{ refs atomic.Int64 }

func (c *counter) Retain()  { c.refs.Add(1) }
func (c *counter) Release() { c.refs.Add(-1) }

// payloadOf makes the payload section of a batch (n > 0) or of a single message (n = 0).
func payloadOf(t testing.TB, producer string, seq uint64, n int32) []byte {
	md := &pulsarpb.MessageMetadata{
		ProducerName: proto.String(producer), SequenceId: proto.Uint64(seq), PublishTime: proto.Uint64(1),
	}
	if n > 0 {
		md.NumMessagesInBatch = proto.Int32(n)
	}
	b, err := protocol.AppendSection(nil, md, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// keyedPayload makes the payload section of a batch or a message with a key; "": without.
func keyedPayload(t testing.TB, key string, seq uint64, n int32) []byte {
	return delayedPayload(t, key, seq, n, 0)
}

// delayedPayload is keyedPayload with a time of delivery in ms; 0: without.
func delayedPayload(t testing.TB, key string, seq uint64, n int32, due int64) []byte {
	md := &pulsarpb.MessageMetadata{
		ProducerName: proto.String("p"), SequenceId: proto.Uint64(seq), PublishTime: proto.Uint64(1),
	}
	if n > 0 {
		md.NumMessagesInBatch = proto.Int32(n)
	}
	if key != "" {
		md.PartitionKey = proto.String(key)
	}
	if due != 0 {
		md.DeliverAtTime = proto.Int64(due)
	}
	b, err := protocol.AppendSection(nil, md, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fakeCursor is a cursor on a log in memory: ledger 1, entries from 0 on. Reads complete when complete is called, or at
// once with inline set.
type fakeCursor struct {
	log     [][]byte
	owner   *counter
	inline  bool
	next    int // read position
	mark    int // last of the prefix that is deleted
	deleted map[int]bool
	parts   map[int][]int64

	parked  func([]ledger.Entry, error) // waits for entries
	limit   ledger.Limits
	queue   []func() // completions of reads under way
	failing int      // so many reads will fail
	partial int      // the next replay read fails after so many entries
	restart bool     // Rewind makes reads under way read again, as the real one does
	turn    int
	reads   int
	closed  bool
}

var errRead = errors.New("read failed")

func newFakeCursor() *fakeCursor {
	return &fakeCursor{owner: &counter{}, mark: -1, deleted: map[int]bool{}, parts: map[int][]int64{}}
}

func (f *fakeCursor) at(i int) ledger.Position {
	return ledger.Position{Ledger: 1, Entry: ledger.EntryID(i)}
}

func (f *fakeCursor) entry(i int) ledger.Entry {
	f.owner.Retain()
	return ledger.Entry{Position: f.at(i), Payload: ledger.Payload{Data: f.log[i], Owner: f.owner}}
}

func (f *fakeCursor) add(payload []byte) { f.log = append(f.log, payload) }

func (f *fakeCursor) skip() {
	for f.next < len(f.log) && f.gone(f.next) {
		f.next++
	}
}

func (f *fakeCursor) gone(i int) bool { return i <= f.mark || f.deleted[i] }

func (f *fakeCursor) Read(limits ledger.Limits, done func([]ledger.Entry, error)) {
	if f.parked != nil {
		panic("two reads at once")
	}
	f.reads++
	f.parked, f.limit = done, limits
	f.unpark()
}

// unpark starts the waiting read if there is something to read.
func (f *fakeCursor) unpark() {
	f.skip()
	if f.parked == nil || f.next >= len(f.log) {
		return
	}
	done := f.parked
	f.parked = nil
	if f.failing > 0 {
		f.failing--
		f.later(func() { done(nil, errRead) })
		return
	}
	var out []ledger.Entry
	for f.next < len(f.log) && len(out) < f.limit.Entries {
		if !f.gone(f.next) {
			out = append(out, f.entry(f.next))
		}
		f.next++
	}
	turn := f.turn
	f.later(func() {
		if turn != f.turn {
			release(out)
			f.parked = done
			f.unpark()
			return
		}
		done(out, nil)
	})
}

func (f *fakeCursor) WillReadAt([]ledger.Position) {}

func (f *fakeCursor) ReadAt(ps []ledger.Position, done func([]ledger.Entry, error)) {
	f.reads++
	if f.failing > 0 {
		f.failing--
		f.later(func() { done(nil, errRead) })
		return
	}
	var out []ledger.Entry
	for i, p := range ps {
		if i > 0 && !ps[i-1].Less(p) {
			panic("positions are not in order")
		}
		if f.partial > 0 && len(out) == f.partial {
			f.partial = 0 // failed on the way
			break
		}
		if !f.gone(int(p.Entry)) {
			out = append(out, f.entry(int(p.Entry)))
		}
	}
	f.later(func() { done(out, nil) })
}

func (f *fakeCursor) later(fn func()) {
	if f.inline {
		fn()
		return
	}
	f.queue = append(f.queue, fn)
}

// complete finishes the reads that were under way when it was called.
func (f *fakeCursor) complete() bool {
	queue := f.queue
	f.queue = nil
	for _, fn := range queue {
		fn()
	}
	return len(queue) > 0
}

func (f *fakeCursor) CancelRead() bool {
	was := f.parked != nil
	f.parked = nil
	return was
}

func (f *fakeCursor) MarkDelete(p ledger.Position, done func(error)) {
	f.mark = max(f.mark, int(p.Entry))
	f.next = max(f.next, f.mark+1)
	f.forgetParts()
	finish(done)
}

func (f *fakeCursor) Delete(ps []ledger.Position, done func(error)) {
	for _, p := range ps {
		f.deleted[int(p.Entry)] = true
	}
	for f.deleted[f.mark+1] {
		f.mark++
		delete(f.deleted, f.mark)
	}
	f.forgetParts()
	finish(done)
}

func (f *fakeCursor) forgetParts() {
	for i := range f.parts {
		if f.gone(i) {
			delete(f.parts, i)
		}
	}
}

func (f *fakeCursor) Part(p ledger.Position) []int64 { return f.parts[int(p.Entry)] }

// DeletePart refuses sets of more than eight words.
func (f *fakeCursor) DeletePart(p ledger.Position, unacked []int64) ([]int64, error) {
	left := and(f.parts[int(p.Entry)], unacked)
	switch {
	case len(left) > 8:
		return nil, managedledger.ErrTooManyParts
	case len(left) > 0:
		f.parts[int(p.Entry)] = left
	}
	return left, nil
}

// and intersects two sets, the first of which may be nil: all.
func and(a, b []int64) []int64 {
	out := slices.Clone(b)
	for i := range out {
		switch {
		case a == nil:
		case i < len(a):
			out[i] &= a[i]
		default:
			out[i] = 0
		}
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	return out
}

func finish(done func(error)) {
	if done != nil {
		done(nil)
	}
}

func (f *fakeCursor) MarkDeleted() ledger.Position     { return f.at(f.mark) }
func (f *fakeCursor) ReadPosition() ledger.Position    { return f.at(f.next) }
func (f *fakeCursor) IsDeleted(p ledger.Position) bool { return f.gone(int(p.Entry)) }
func (f *fakeCursor) Rewind() {
	f.next = f.mark + 1
	if f.restart {
		f.turn++
	}
}

func (f *fakeCursor) Seek(p ledger.Position, done func(error)) {
	clear(f.parts)
	i := int(p.Entry)
	if p == ledger.Latest {
		i = len(f.log)
	}
	f.mark = max(-1, i-1)
	clear(f.deleted)
	f.Rewind()
	finish(done)
}

func (f *fakeCursor) Close(done func(error)) {
	f.closed, f.parked = true, nil
	finish(done)
}

func (f *fakeCursor) Backlog() int64 {
	var n int64
	for i := f.mark + 1; i < len(f.log); i++ {
		if !f.deleted[i] {
			n++
		}
	}
	return n
}

// fakeSink records what a connection is told.
type fakeSink struct {
	name     string
	blocked  bool
	events   []string
	received map[ledger.Position]int
	order    []Delivery
	receipts []Receipt
	t        testing.TB
	quiet    bool
}

func newFakeSink(t testing.TB, name string) *fakeSink {
	return &fakeSink{t: t, name: name, received: map[ledger.Position]int{}}
}

func (s *fakeSink) Receipts(rs []Receipt) { s.receipts = append(s.receipts, rs...) }

func (s *fakeSink) Deliver(_ *Consumer, ds []Delivery) {
	text := s.name + ":"
	for _, d := range ds {
		if !s.quiet {
			d.Entry.Payload.Data = bytes.Clone(d.Entry.Payload.Data) // the memory is not ours any more after Release
		}
		d.Entry.Payload.Release()
		if s.quiet {
			continue
		}
		s.received[d.Entry.Position]++
		s.order = append(s.order, d)
		text += " " + strconv.Itoa(int(d.Entry.Position.Entry))
		if d.Messages != 1 {
			text += fmt.Sprintf("x%d", d.Messages)
		}
		if d.AckSet != nil {
			text += "[" + bitsOf(d.AckSet) + "]"
		}
		if d.Redelivery > 0 {
			text += fmt.Sprintf("r%d", d.Redelivery)
		}
	}
	if !s.quiet {
		s.events = append(s.events, text)
	}
}

func (s *fakeSink) CloseProducer(id uint64) {
	s.events = append(s.events, fmt.Sprintf("%s: close producer %d", s.name, id))
}

func (s *fakeSink) CloseConsumer(id uint64) {
	s.events = append(s.events, fmt.Sprintf("%s: close consumer %d", s.name, id))
}

func (s *fakeSink) ActiveChanged(_ *Consumer, active bool) {
	what := "inactive"
	if active {
		what = "active"
	}
	s.events = append(s.events, s.name+": is "+what)
}

func (s *fakeSink) Room() int {
	if s.blocked {
		return 0
	}
	return 1 << 20
}

func bitsOf(set []int64) string {
	var out []byte
	for i := 0; i < 64*len(set); i++ {
		out = append(out, '0'+byte(uint64(set[i/64])>>(i%64)&1))
	}
	for len(out) > 1 && out[len(out)-1] == '0' {
		out = out[:len(out)-1]
	}
	return string(out)
}

func setOf(text string) []int64 {
	set := make([]int64, (len(text)+63)/64)
	for i, r := range text {
		if r == '1' {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set
}

// newTestSubscription is a subscription on a fake cursor, with a topic that has nothing but executors.
func newTestSubscription(exec *executor.Executor, o Options, f *fakeCursor) *subscription {
	o.EnsureDefaults()
	t := &Topic{exec: exec, slots: map[string]*slot{}, opts: &o, env: Env{Options: o, Names: NewNameSource("test")}}
	s := &subscription{topic: t, name: "sub", durable: true, exec: exec, partition: -1, cursor: f}
	s.last = func() ledger.Position { return f.at(len(f.log) - 1) }
	s.setUp(t.opts, noMetrics(), discard)
	t.slots["sub"] = &slot{name: "sub", durable: true, state: slotOpen, sub: s}
	return s
}
