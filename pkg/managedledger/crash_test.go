package managedledger_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
)

// tripwire is a client that dies at its n-th request: before it is sent, or after, so that it is carried out but
// not answered. It can also hold on to waiters, to acknowledge late.
type tripwire struct {
	*bookietest.Client
	mu     sync.Mutex
	left   int // requests until it trips; 0: never
	after  bool
	calls  int
	waiter func(ref ledger.Ref, w ledger.Waiter)

	payload func([]byte) // sees each that is appended, and may change it
}

func (c *tripwire) pass(send func()) {
	c.mu.Lock()
	c.calls++
	c.left--
	trips := c.left == 0
	c.mu.Unlock()
	if trips && !c.after {
		c.Kill()
	}
	send()
	if trips && c.after {
		c.Kill()
	}
}

func (c *tripwire) Create(epoch ledger.Epoch, avoid ledger.GroupID, done func(ledger.Ref, error)) {
	c.pass(func() { c.Client.Create(epoch, avoid, done) })
}

func (c *tripwire) Append(ref ledger.Ref, epoch ledger.Epoch, first ledger.EntryID, es []ledger.Payload, w ledger.Waiter) {
	if c.waiter != nil {
		c.waiter(ref, w)
	}
	for _, e := range es {
		if c.payload != nil {
			c.payload(e.Data)
		}
	}
	c.pass(func() { c.Client.Append(ref, epoch, first, es, w) })
}

func (c *tripwire) Fence(ref ledger.Ref, epoch ledger.Epoch, done func(ledger.EntryID, error)) {
	c.pass(func() { c.Client.Fence(ref, epoch, done) })
}

func (c *tripwire) Close(ref ledger.Ref, last ledger.EntryID, done func(error)) {
	c.pass(func() { c.Client.Close(ref, last, done) })
}

func (c *tripwire) Delete(ref ledger.Ref, done func(error)) {
	c.pass(func() { c.Client.Delete(ref, done) })
}

func (c *tripwire) Get(key string, done func(metadata.Item, error)) {
	c.pass(func() { c.Client.Get(key, done) })
}

func (c *tripwire) List(prefix string, done func([]metadata.Item, error)) {
	c.pass(func() { c.Client.List(prefix, done) })
}

func (c *tripwire) Commit(txn metadata.Txn, done func(metadata.Outcome, error)) {
	c.pass(func() { c.Client.Commit(txn, done) })
}

// TestCrashAtEveryStep runs one history, in which everything happens that writes, and has its owner die at the n-th
// request, for every n, before and after the request is carried out. The next owner must find what had completed and
// what had a receipt.
func TestCrashAtEveryStep(t *testing.T) {
	steps := 0
	for n := 0; n <= steps; n++ {
		for _, after := range []bool{false, true} {
			inWorld(t, func(w *world) {
				h := &history{world: w, wire: &tripwire{Client: w.cluster.Client(), left: n, after: after}}
				h.run()
				h.check(fmt.Sprintf("crash at request %d, carried out %t", n, after))
				if n == 0 {
					steps = h.wire.calls
				}
			})
		}
	}
	if steps < 40 {
		t.Errorf("the history has %d requests only", steps)
	}
}

// history is one owner's life.
type history struct {
	*world
	wire  *tripwire
	owner *node
	acked []ledger.Position
	asked map[ledger.Position]bool
}

func (h *history) run() {
	h.owner = h.node(1, managedledger.Options{MaxEntriesPerLedger: 5, MinRolloverTime: 1, CursorMaxEntriesPerLedger: 2})
	h.owner.client.Kill() // the wire's is used
	h.owner.wire = h.wire
	h.asked = map[ledger.Position]bool{}
	failed := make(chan error, 1)
	managedledger.Open(h.owner.env(), topicKey, h.owner.opts, func(m *managedledger.ManagedLedger, err error) {
		h.owner.ml = m
		failed <- err
	})
	pass(time.Millisecond)
	synctest.Wait()
	if h.owner.ml == nil {
		return
	}
	next := 0
	add := func(n int) {
		for range n {
			next++
			h.owner.add(strconv.Itoa(next))
		}
		pass(time.Millisecond)
	}
	add(3)
	c := h.cursor()
	add(1)
	h.ack(c, 0)
	add(5)
	h.ack(c, 2, 3)
	g := h.owner.current().Group
	h.cluster.LoseAcks(g, true)
	add(2)
	pass(300 * time.Millisecond)
	h.cluster.LoseAcks(g, false)
	add(6)
	h.ack(c, 1, 6)
	h.ack(c, 9)
	h.cluster.Down(h.owner.current().Group)
	add(1)
	for g := range ledger.GroupID(4) {
		h.cluster.Up(g)
	}
	add(2)
	if c != nil {
		on(h.owner.sub, func() { c.Close(nil) })
		pass(time.Millisecond)
	}
	on(h.owner.exec, func() { h.owner.ml.Close(func(error) {}) })
	pass(10 * time.Second)
}

func (h *history) cursor() (c *managedledger.Cursor) {
	on(h.owner.exec, func() {
		o := managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest, Executor: h.owner.sub}
		h.owner.ml.OpenCursor(o, func(got *managedledger.Cursor, _ error) { c = got })
	})
	pass(time.Millisecond)
	synctest.Wait()
	return c
}

// ack acknowledges the completed entries of these numbers.
func (h *history) ack(c *managedledger.Cursor, numbers ...int) {
	all := h.owner.results()
	if c == nil || numbers[len(numbers)-1] >= len(all) {
		return
	}
	var ps []ledger.Position
	for _, i := range numbers {
		ps = append(ps, all[i].pos)
		h.asked[all[i].pos] = true
	}
	on(h.owner.sub, func() {
		c.Delete(ps, func(err error) {
			if err == nil {
				h.acked = append(h.acked, ps...)
			}
		})
	})
	pass(time.Millisecond)
}

func (h *history) check(what string) {
	h.t.Helper()
	h.owner.kill()
	h.wire.Kill()
	n := h.node(2, managedledger.Options{})
	n.mustOpen()
	all := n.everything()
	at := map[ledger.Position]string{}
	for i, d := range all {
		if v, _ := strconv.Atoi(d.text); v != i+1 {
			h.t.Fatalf("%s: read %s", what, positions(all))
		}
		at[d.pos] = d.text
	}
	for _, d := range h.owner.results() {
		if at[d.pos] != d.text {
			h.t.Fatalf("%s: %q had completed at %s, now there is %q", what, d.text, d.pos, at[d.pos])
		}
	}
	c := n.mustCursor(managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest})
	on(n.sub, func() {
		for _, p := range h.acked {
			if !c.IsDeleted(p) {
				h.t.Errorf("%s: the receipt for %s is forgotten", what, p)
			}
		}
		for _, d := range all {
			if c.IsDeleted(d.pos) && !h.asked[d.pos] {
				h.t.Errorf("%s: %s is deleted, nobody has asked", what, d.pos)
			}
		}
	})
}
