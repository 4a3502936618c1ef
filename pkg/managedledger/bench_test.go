package managedledger_test

import (
	"testing"

	"geminga/pkg/executor"
	"geminga/pkg/invariant"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
)

// instant stores nothing and acknowledges at once: what is left is the cost of the managed ledger itself.
type instant struct {
	next    ledger.ID
	records int64 // bytes appended that are no entries of the topic
}

func (b *instant) Create(_ ledger.Epoch, _ ledger.GroupID, done func(ledger.Ref, error)) {
	b.next++
	done(ledger.Ref{ID: b.next, Group: 1}, nil)
}

func (b *instant) Append(ref ledger.Ref, _ ledger.Epoch, first ledger.EntryID, es []ledger.Payload, w ledger.Waiter) {
	if es[0].Owner == nil {
		b.records += int64(len(es[0].Data))
	}
	w.Appended(ref, first+ledger.EntryID(len(es))-1, nil)
}

func (b *instant) Abandon(ledger.Ref) {}

func (b *instant) Fence(_ ledger.Ref, _ ledger.Epoch, done func(ledger.EntryID, error)) {
	done(ledger.NoEntry, nil)
}
func (b *instant) Close(_ ledger.Ref, _ ledger.EntryID, done func(error)) { done(nil) }
func (b *instant) Delete(_ ledger.Ref, done func(error))                  { done(nil) }

func (b *instant) Read(ledger.Ref, ledger.EntryID, ledger.EntryID, ledger.Limits, func([]ledger.Entry, error)) {
	panic("not in the cache")
}

func (b *instant) Get(key string, done func(metadata.Item, error)) {
	done(metadata.Item{Key: key}, nil)
}

func (b *instant) List(_ string, done func([]metadata.Item, error)) { done(nil, nil) }

func (b *instant) Commit(txn metadata.Txn, done func(metadata.Outcome, error)) {
	done(metadata.Outcome{Versions: make([]int64, len(txn.Ops))}, nil)
}

// path is a topic that adds batches, and a subscription that reads and acknowledges them.
type path struct {
	exec, sub *executor.Executor
	cache     *managedledger.Cache
	bookies   *instant
	ml        *managedledger.ManagedLedger
	cursor    *managedledger.Cursor
	ops       []managedledger.Op
	left      int
	done      chan struct{}
	read      func([]ledger.Entry, error)
	ps        []ledger.Position
}

func (p *path) Completed(ops []managedledger.Op, _ ledger.Position) {
	if p.cursor == nil {
		p.finished(len(ops))
	}
}
func (p *path) Lost(err error) { panic(err) }

func (p *path) finished(n int) {
	if p.left -= n; p.left == 0 {
		p.done <- struct{}{}
	}
}

func newPath(tb testing.TB, batch int, reading bool) *path {
	p := &path{exec: executor.New("topic"), sub: executor.New("sub"), done: make(chan struct{}, 1)}
	p.cache, _ = managedledger.NewCache(managedledger.CacheOptions{Bytes: 4 << 20})
	owner := &root{roots: &roots{}}
	owner.refs.Store(1)
	for range batch {
		p.ops = append(p.ops, managedledger.Op{Payload: ledger.Payload{Data: make([]byte, 128), Owner: owner}, Messages: 1})
	}
	b := &instant{}
	p.bookies = b
	ready := make(chan error)
	env := managedledger.Env{Bookies: b, Store: b, Executor: p.exec, Cache: p.cache, Epoch: 1, Listener: p}
	o := managedledger.Options{MaxEntriesPerLedger: 1 << 40, MaxBytesPerLedger: 1 << 60}
	managedledger.Open(env, topicKey, o, func(m *managedledger.ManagedLedger, err error) {
		p.ml = m
		ready <- err
	})
	if err := <-ready; err != nil {
		tb.Fatal(err)
	}
	if reading {
		on(p.exec, func() {
			p.ml.OpenCursor(managedledger.CursorOptions{Name: "c", Executor: p.sub}, func(c *managedledger.Cursor, err error) {
				p.cursor = c
				p.read = p.deliver
				c.Read(ledger.Limits{Entries: 500}, p.read)
				ready <- err
			})
		})
		if err := <-ready; err != nil {
			tb.Fatal(err)
		}
	}
	return p
}

func (p *path) deliver(es []ledger.Entry, err error) {
	if err != nil {
		panic(err)
	}
	p.ps = p.ps[:0]
	for i := range es {
		es[i].Payload.Release()
		p.ps = append(p.ps, es[i].Position)
	}
	p.cursor.Delete(p.ps, nil)
	n := len(es)
	p.cursor.Read(ledger.Limits{Entries: 500}, p.read)
	p.finished(n)
}

// Run implements executor.Task.
func (p *path) Run() { p.ml.Add(p.ops) }

func (p *path) once() {
	p.left = len(p.ops)
	p.exec.Post(p)
	<-p.done
}

func (p *path) close() {
	p.exec.Close()
	p.sub.Close()
	p.cache.Close()
}

// TestNoAllocationOnceWarm: adding, completing, caching, reading and acknowledging.
func TestNoAllocationOnceWarm(t *testing.T) {
	for _, reading := range []bool{false, true} {
		p := newPath(t, 20, reading)
		for range 2000 {
			p.once()
		}
		if n := testing.AllocsPerRun(2000, p.once); n > 0 && !raceEnabled && !invariant.Enabled {
			t.Errorf("reading %t: %v allocations per batch of 20", reading, n)
		}
		p.close()
	}
}

func BenchmarkAdd(b *testing.B)         { benchmark(b, 1, false) }
func BenchmarkAddBatch20(b *testing.B)  { benchmark(b, 20, false) }
func BenchmarkPath(b *testing.B)        { benchmark(b, 1, true) }
func BenchmarkPathBatch20(b *testing.B) { benchmark(b, 20, true) }

func benchmark(b *testing.B, batch int, reading bool) {
	p := newPath(b, batch, reading)
	defer p.close()
	b.ReportAllocs()
	for b.Loop() {
		p.once()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch), "ns/entry")
}
