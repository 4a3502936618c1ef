package managedledger_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
)

var topicKey = metadata.TopicKey("public", "default", "persistent", "t")

// roots counts payloads that somebody still holds, and overwrites those that nobody holds any more.
type roots struct{ live atomic.Int64 }

type root struct {
	roots *roots
	data  []byte
	refs  atomic.Int64
}

func (r *roots) payload(s string) ledger.Payload {
	o := &root{roots: r, data: []byte(s)}
	o.refs.Store(1)
	r.live.Add(1)
	return ledger.Payload{Data: o.data, Owner: o}
}

func (o *root) Retain() {
	if o.refs.Add(1) <= 1 {
		panic("retained after the last release")
	}
}

func (o *root) Release() {
	switch n := o.refs.Add(-1); {
	case n < 0:
		panic("released too often")
	case n == 0:
		for i := range o.data {
			o.data[i] = 0xDD
		}
		o.roots.live.Add(-1)
	}
}

// world is a cluster and what is common to all brokers in a test.
type world struct {
	t       testing.TB
	cluster *bookietest.Cluster
	roots   *roots
	nodes   []*node
	caches  []*managedledger.Cache
}

// inWorld runs a test in virtual time; at the end no payload may be held by anybody.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f(w)
		w.end()
	})
}

func newWorld(t testing.TB) *world {
	return &world{t: t, cluster: bookietest.New(bookietest.Options{}), roots: &roots{}}
}

func (w *world) end() {
	for _, n := range w.nodes {
		n.kill()
	}
	w.cluster.Close()
	for _, n := range w.nodes {
		n.exec.Close()
		n.sub.Close()
	}
	for _, c := range w.caches {
		c.Close()
	}
	if n := w.roots.live.Load(); n != 0 {
		w.t.Errorf("%d payloads are still held", n)
	}
	if n := w.cluster.Outstanding(); n != 0 {
		w.t.Errorf("%d payloads read from bookies are still held", n)
	}
}

// node is a broker that has the topic.
type node struct {
	w      *world
	client *bookietest.Client
	wire   *tripwire // instead of client, if set
	exec   *executor.Executor
	sub    *executor.Executor
	cache  *managedledger.Cache
	opts   managedledger.Options
	epoch  ledger.Epoch
	ml     *managedledger.ManagedLedger
	dead   bool

	mu        sync.Mutex
	completed []done
	barriers  []uint64
	lost      error
	confirmed ledger.Position
	onDone    func(ops []managedledger.Op)

	told, toldBarriers int // by a script
	toldLost           bool
}

type done struct {
	pos  ledger.Position
	text string
}

// node is a broker; it trims nothing unless the options have a retention.
func (w *world) node(epoch ledger.Epoch, opts managedledger.Options) *node {
	if opts.RetentionTime == 0 {
		opts.RetentionTime, opts.RetentionBytes = -1, -1
	}
	n := &node{w: w, client: w.cluster.Client(), epoch: epoch, opts: opts}
	n.exec = executor.New(fmt.Sprintf("topic-%d", epoch))
	n.sub = executor.New(fmt.Sprintf("sub-%d", epoch))
	cache, err := managedledger.NewCache(managedledger.CacheOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	n.cache = cache
	w.caches = append(w.caches, cache)
	w.nodes = append(w.nodes, n)
	return n
}

// Completed implements managedledger.Listener.
func (n *node) Completed(ops []managedledger.Op, first ledger.Position) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, op := range ops {
		if op.Barrier {
			n.barriers = append(n.barriers, op.Sequence)
			continue
		}
		n.completed = append(n.completed, done{first, string(op.Payload.Data)})
		first.Entry++
	}
	if n.ml != nil {
		last := n.ml.LastConfirmed()
		if last.Less(n.confirmed) {
			n.w.t.Errorf("last confirmed went back from %s to %s", n.confirmed, last)
		}
		if len(n.completed) > 0 && last.Less(n.completed[len(n.completed)-1].pos) {
			n.w.t.Errorf("completed %s before it was confirmed: %s", n.completed[len(n.completed)-1].pos, last)
		}
		n.confirmed = last
	}
	if n.onDone != nil {
		n.onDone(ops)
	}
}

// Lost implements managedledger.Listener.
func (n *node) Lost(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = err
}

func (n *node) results() []done {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]done(nil), n.completed...)
}

func (n *node) lostErr() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

// on runs f on an executor and waits for it.
func on(e *executor.Executor, f func()) {
	ch := make(chan struct{})
	e.PostFunc(func() { f(); close(ch) })
	<-ch
}

func (n *node) env() managedledger.Env {
	env := managedledger.Env{
		Bookies: n.client, Store: n.client, Executor: n.exec, Cache: n.cache, Epoch: n.epoch, Listener: n,
	}
	if n.wire != nil {
		env.Bookies, env.Store = n.wire, n.wire
	}
	return env
}

// open opens the managed ledger and waits.
func (n *node) open() error {
	ch := make(chan error, 1)
	managedledger.Open(n.env(), topicKey, n.opts, func(m *managedledger.ManagedLedger, err error) {
		n.ml = m
		ch <- err
	})
	return <-ch
}

func (n *node) mustOpen() {
	n.w.t.Helper()
	if err := n.open(); err != nil {
		n.w.t.Fatal(err)
	}
}

// kill ends the broker like a crash.
func (n *node) kill() {
	if n.dead {
		return
	}
	n.dead = true
	n.client.Kill()
	if n.ml != nil {
		// What a dead process holds is gone with it; here it has to be given back by hand.
		on(n.exec, func() { managedledger.Drop(n.ml) })
	}
}

// add adds ops with these texts; "|" is a barrier.
func (n *node) add(texts ...string) {
	ops := make([]managedledger.Op, len(texts))
	for i, s := range texts {
		if s == "|" {
			ops[i] = managedledger.Op{Barrier: true, Sequence: uint64(i)}
			continue
		}
		ops[i] = managedledger.Op{Payload: n.w.roots.payload(s), Messages: 1}
	}
	on(n.exec, func() { n.ml.Add(ops) })
	for _, op := range ops {
		op.Payload.Release()
	}
}

func (n *node) close() error {
	ch := make(chan error, 1)
	on(n.exec, func() { n.ml.Close(func(err error) { ch <- err }) })
	return <-ch
}

func (n *node) cursor(o managedledger.CursorOptions) (*managedledger.Cursor, error) {
	o.Executor = n.sub
	var c *managedledger.Cursor
	ch := make(chan error, 1)
	on(n.exec, func() {
		n.ml.OpenCursor(o, func(got *managedledger.Cursor, err error) {
			c = got
			ch <- err
		})
	})
	return c, <-ch
}

func (n *node) mustCursor(o managedledger.CursorOptions) *managedledger.Cursor {
	n.w.t.Helper()
	c, err := n.cursor(o)
	if err != nil {
		n.w.t.Fatal(err)
	}
	return c
}

// read returns what one Read gives; nothing when it waits.
func (n *node) read(c *managedledger.Cursor, entries int) ([]done, error) {
	var got []done
	ch := make(chan error, 1)
	on(n.sub, func() {
		c.Read(ledger.Limits{Entries: entries, Bytes: 1 << 20}, func(es []ledger.Entry, err error) {
			for _, e := range es {
				got = append(got, done{e.Position, string(e.Payload.Data)})
				e.Payload.Release()
			}
			ch <- err
		})
	})
	synctest.Wait()
	select {
	case err := <-ch:
		return got, err
	default:
	}
	cancelled := false
	on(n.sub, func() { cancelled = c.CancelRead() })
	if cancelled {
		return got, nil
	}
	return got, <-ch
}

// readAll reads to the end.
func (n *node) readAll(c *managedledger.Cursor) []done {
	n.w.t.Helper()
	var all []done
	for failures := 0; ; {
		got, err := n.read(c, 7)
		if err != nil {
			if failures++; failures > 50 {
				n.w.t.Fatalf("read: %v", err)
			}
			pass(50 * time.Millisecond) // virtual
			continue
		}
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
	}
}

// everything reads the whole log through a fresh cursor.
func (n *node) everything() []done {
	n.w.t.Helper()
	c := n.mustCursor(managedledger.CursorOptions{Name: "everything", Initial: ledger.Earliest})
	all := n.readAll(c)
	on(n.sub, func() { c.Close(nil) })
	synctest.Wait()
	return all
}

func texts(ds []done) string {
	s := make([]string, len(ds))
	for i, d := range ds {
		s[i] = d.text
	}
	return strings.Join(s, " ")
}

func expect(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// pass lets time pass; it is virtual.
func pass(d time.Duration) { <-time.After(d) }
