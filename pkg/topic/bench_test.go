package topic

import (
	"fmt"
	"testing"

	"geminga/pkg/executor"
	"geminga/pkg/invariant"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

// instant is bookies and metadata that answer everything at once, from a goroutine of their own, and keep nothing.
type instant struct {
	calls *executor.Executor
	last  ledger.ID
	acks  acks
}

// acks is the task that acknowledges; one serves all appends.
type acks struct {
	ref  ledger.Ref
	last ledger.EntryID
	w    ledger.Waiter
}

func (a *acks) Run() { a.w.Appended(a.ref, a.last, nil) }

func (i *instant) Create(_ ledger.Epoch, _ ledger.GroupID, done func(ledger.Ref, error)) {
	i.calls.PostFunc(func() {
		i.last++
		done(ledger.Ref{ID: i.last, Group: 1}, nil)
	})
}

func (i *instant) Append(ref ledger.Ref, _ ledger.Epoch, first ledger.EntryID, es []ledger.Payload, w ledger.Waiter) {
	i.acks = acks{ref, first + ledger.EntryID(len(es)) - 1, w}
	i.calls.Post(&i.acks)
}

func (i *instant) Abandon(ledger.Ref) {}

func (i *instant) Fence(_ ledger.Ref, _ ledger.Epoch, done func(ledger.EntryID, error)) {
	i.calls.PostFunc(func() { done(ledger.NoEntry, nil) })
}

func (i *instant) Close(_ ledger.Ref, _ ledger.EntryID, done func(error)) {
	i.calls.PostFunc(func() { done(nil) })
}

func (i *instant) Delete(_ ledger.Ref, done func(error)) { i.calls.PostFunc(func() { done(nil) }) }

func (i *instant) Read(_ ledger.Ref, _, _ ledger.EntryID, _ ledger.Limits, done func([]ledger.Entry, error)) {
	i.calls.PostFunc(func() { done(nil, ledger.ErrUnreadable) })
}

func (i *instant) Get(key string, done func(metadata.Item, error)) {
	i.calls.PostFunc(func() { done(metadata.Item{Key: key}, nil) })
}

func (i *instant) List(_ string, done func([]metadata.Item, error)) {
	i.calls.PostFunc(func() { done(nil, nil) })
}

func (i *instant) Commit(txn metadata.Txn, done func(metadata.Outcome, error)) {
	i.calls.PostFunc(func() { done(metadata.Outcome{Versions: make([]int64, len(txn.Ops))}, nil) })
}

// nullSink counts receipts and tells when it has got enough.
type nullSink struct {
	fakeSink
	left *int
	done chan struct{}
}

func (s *nullSink) Receipts(rs []Receipt) {
	if *s.left -= len(rs); *s.left == 0 {
		s.done <- struct{}{}
	}
}

// BenchmarkPublish is the path from a batch of sends to their receipts, without storage: per operation a batch.
func BenchmarkPublish(b *testing.B) {
	for _, dedup := range []bool{false, true} {
		for _, producers := range []int{1, 100} {
			b.Run(fmt.Sprintf("dedup=%t/producers=%d/batch=100", dedup, producers), func(b *testing.B) {
				benchmarkPublish(b, dedup, producers)
			})
		}
	}
}

func benchmarkPublish(b *testing.B, dedup bool, producers int) {
	const size = 100
	pool := executor.NewPool(executor.Options{Threads: 2})
	defer pool.Close()
	calls := executor.New("bookies")
	defer calls.Close()
	store := &instant{calls: calls}
	name, err := protocol.ParseTopicName("bench")
	if err != nil {
		b.Fatal(err)
	}
	env := Env{
		Ledger:  managedledger.Env{Bookies: store, Store: store, Executor: pool.Next(), Epoch: 1},
		Options: Options{BrokerDeduplicationEnabled: dedup}, Subscriptions: pool, Names: NewNameSource("b"),
	}
	env.LedgerOptions.MaxEntriesPerLedger = 1 << 40
	exec := env.Ledger.Executor
	opened := make(chan *Topic)
	exec.PostFunc(func() { Open(env, name, func(t *Topic, err error) { opened <- t }) })
	topic := <-opened
	left := 0
	done := make(chan struct{}, 1)
	batch := make([]Message, size)
	payload := ledger.Payload{Data: payloadOf(b, "p", 1, 0)}
	post := executor.Func(func() {
		left = size
		for i := range batch {
			batch[i].SequenceID += uint64(size / producers)
		}
		topic.Publish(batch)
	})
	exec.PostFunc(func() {
		ps := make([]*Producer, producers)
		for i := range ps {
			topic.AddProducer(ProducerRequest{ID: uint64(i), Sink: &nullSink{left: &left, done: done}},
				func(p *Producer, _ int64, _ error) { ps[i] = p })
		}
		for i := range batch {
			batch[i] = Message{Producer: ps[i%producers], SequenceID: uint64(i / producers), Messages: 1, Payload: payload}
		}
	})
	run := func() {
		exec.Post(post)
		<-done
	}
	for range 100 {
		run()
	}
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/msg")
	closed := make(chan struct{})
	exec.PostFunc(func() { topic.Close(func(error) { close(closed) }) })
	<-closed
}

// BenchmarkDispatch is the path from entries to a Sink and the acknowledgements back, without storage: per operation a
// batch of 100 entries.
func BenchmarkDispatch(b *testing.B) {
	for _, kind := range []SubType{Exclusive, Failover, Shared, KeyShared} {
		for _, n := range []int{1, 20} {
			if kind == Exclusive && n > 1 {
				continue
			}
			b.Run(fmt.Sprintf("type=%s/consumers=%d/batch=100", kind, n), func(b *testing.B) {
				exec := executor.New("bench")
				defer exec.Close()
				done := make(chan struct{})
				exec.PostFunc(func() {
					defer close(done)
					benchmarkDispatch(b, exec, kind, n)
				})
				<-done
			})
		}
	}
}

// ackingSink acknowledges what it is given, later.
type ackingSink struct {
	fakeSink
	c  *Consumer
	ps []ledger.Position
}

func (s *ackingSink) Deliver(c *Consumer, ds []Delivery) {
	s.c = c
	for i := range ds {
		s.ps = append(s.ps, ds[i].Entry.Position)
	}
}

func benchmarkDispatch(b *testing.B, exec *executor.Executor, kind SubType, consumers int) {
	run := dispatchRound(b, exec, kind, consumers)
	for range 100 {
		run()
	}
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/roundSize, "ns/msg")
}

// roundSize is the number of entries in a round.
const roundSize = 100

// dispatchRound returns a function that lets a subscription deliver a round of entries and acknowledges them.
func dispatchRound(b testing.TB, exec *executor.Executor, kind SubType, consumers int) func() {
	const size = roundSize
	f := &endlessCursor{entries: make([]ledger.Entry, size)}
	for i := range 1009 {
		f.payloads = append(f.payloads, keyedPayload(b, fmt.Sprint("key", i), 1, 0))
	}
	s := newTestSubscription(exec, Options{ActiveConsumerFailoverDelay: -1}, newFakeCursor())
	s.cursor = f
	s.last = func() ledger.Position { return ledger.Position{Ledger: 1, Entry: ledger.EntryID(f.end)} }
	sinks := make([]*ackingSink, consumers)
	cs := make([]*Consumer, consumers)
	for i := range sinks {
		sinks[i] = &ackingSink{}
		s.connect(SubscribeRequest{Type: kind, ConsumerName: fmt.Sprint(i), Sink: sinks[i]},
			func(c *Consumer, _ error) { cs[i] = c })
	}
	return func() {
		for _, c := range cs {
			c.Flow(size)
		}
		f.end += size
		f.wake()
		for _, sink := range sinks {
			if len(sink.ps) > 0 {
				sink.c.Ack(AckRequest{Positions: sink.ps})
				sink.ps = sink.ps[:0]
			}
		}
	}
}

// A warm dispatcher allocates nothing per message.
func TestDispatchAllocatesNothing(t *testing.T) {
	if invariant.Enabled {
		t.Skip("checks of invariants allocate")
	}
	for _, kind := range []SubType{Exclusive, Failover, Shared, KeyShared} {
		exec := executor.New("test")
		got := make(chan float64, 1)
		exec.PostFunc(func() {
			consumers := 2
			if kind == Exclusive {
				consumers = 1
			}
			run := dispatchRound(t, exec, kind, consumers)
			for range 100 {
				run()
			}
			got <- testing.AllocsPerRun(100, run)
		})
		if n := <-got; n > 1 {
			t.Errorf("%s: %.1f allocations per %d messages", kind, n, roundSize)
		}
		exec.Close()
	}
}

// endlessCursor has end entries with keys that differ and forgets acknowledgements.
type endlessCursor struct {
	fakeCursor
	payloads  [][]byte
	entries   []ledger.Entry
	next, end int
	done      func([]ledger.Entry, error)
	limit     int
}

func (f *endlessCursor) Read(limits ledger.Limits, done func([]ledger.Entry, error)) {
	f.done, f.limit = done, limits.Entries
	f.wake()
}

func (f *endlessCursor) CancelRead() bool {
	was := f.done != nil
	f.done = nil
	return was
}

func (f *endlessCursor) wake() {
	n := min(f.end-f.next, f.limit, len(f.entries))
	if f.done == nil || n == 0 {
		return
	}
	for i := range n {
		f.entries[i] = ledger.Entry{
			Position: ledger.Position{Ledger: 1, Entry: ledger.EntryID(f.next + i)},
			Payload:  ledger.Payload{Data: f.payloads[(f.next+i)%len(f.payloads)]},
		}
	}
	f.next += n
	done := f.done
	f.done = nil
	done(f.entries[:n], nil)
}

func (f *endlessCursor) Delete(_ []ledger.Position, done func(error)) { finish(done) }
func (f *endlessCursor) IsDeleted(ledger.Position) bool               { return false }
func (f *endlessCursor) Rewind()                                      {}
