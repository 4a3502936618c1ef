package managedledger_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// TestAcknowledgementsSurviveACrashAtEveryRequest: a cursor gets random acknowledgements, of entries and of parts of
// batches, with and without receipts, while requests fail and groups stop; its owner dies at the n-th request, for every n,
// before and after that is carried out. What had a receipt is deleted for the next owner; what nobody has asked for is not.
func TestAcknowledgementsSurviveACrashAtEveryRequest(t *testing.T) {
	for seed := range uint64(4) {
		requests, deltas := 0, 0
		for n := 0; n <= requests; n++ {
			for _, after := range []bool{false, true} {
				inWorld(t, func(w *world) {
					h := &acking{world: w, what: fmt.Sprintf("seed %d, crash at request %d, carried out %t", seed, n, after)}
					h.rand = rand.New(rand.NewPCG(seed, 8))
					h.run(n, after)
					h.check()
					if n == 0 {
						requests, deltas = h.wire.calls, h.deltas
					}
				})
			}
		}
		if requests < 40 || deltas < 10 {
			t.Errorf("seed %d: %d requests, %d deltas", seed, requests, deltas)
		}
	}
}

// acking is the life of a cursor. A message is a bit of a batch of 70; an entry that is acknowledged as a whole has all
// its messages acknowledged.
type acking struct {
	*world
	what   string
	rand   *rand.Rand
	wire   *tripwire
	owner  *node
	all    []done
	asked  map[ledger.Position][]int64 // messages that may still be unacknowledged for the next owner are those not asked for
	kept   map[ledger.Position][]int64 // and those with a receipt must not be
	deltas int
}

const batchOf = 70

// wholeBatch has a bit for each message.
func wholeBatch() []int64 { return []int64{-1, 1<<(batchOf-64) - 1} }

func and(a, b []int64) []int64 {
	c := make([]int64, 2)
	for i := range c {
		if i < len(a) && i < len(b) {
			c[i] = a[i] & b[i]
		}
	}
	return c
}

func (h *acking) run(trip int, after bool) {
	h.owner = h.node(1, managedledger.Options{MaxEntriesPerLedger: 25, MinRolloverTime: 1, CursorMaxEntriesPerLedger: 25})
	h.owner.mustOpen()
	for i := range 70 {
		h.owner.add(fmt.Sprint(i))
		pass(time.Millisecond)
	}
	synctest.Wait()
	h.all = h.owner.results()
	h.asked, h.kept = map[ledger.Position][]int64{}, map[ledger.Position][]int64{}
	for _, d := range h.all {
		h.asked[d.pos], h.kept[d.pos] = wholeBatch(), wholeBatch()
	}
	if err := h.owner.close(); err != nil {
		h.t.Fatal(err)
	}
	h.owner = h.node(2, h.owner.opts)
	h.owner.client.Kill() // the wire's is used
	h.wire = &tripwire{Client: h.cluster.Client()}
	h.owner.wire = h.wire
	h.owner.mustOpen()
	c := h.owner.mustCursor(managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest})
	h.wire.payload = func(b []byte) {
		if len(b) > 4 && b[4] == 3 { // the kind of a record
			h.deltas++
		}
	}
	h.wire.calls, h.wire.left, h.wire.after = 0, trip, after
	for range 120 {
		h.step(c)
	}
	h.heal()
	on(h.owner.sub, func() { c.Close(nil) })
	pass(6 * time.Second)
}

func (h *acking) heal() {
	for g := range ledger.GroupID(4) {
		h.cluster.Up(g)
		h.cluster.LoseAcks(g, false)
	}
}

func (h *acking) step(c *managedledger.Cursor) {
	switch h.rand.IntN(14) {
	case 0:
		h.cluster.LoseAcks(ledger.GroupID(1+h.rand.IntN(3)), true)
	case 1:
		h.heal()
	case 2:
		k := []bookietest.Kind{bookietest.Append, bookietest.Create, bookietest.Commit}[h.rand.IntN(3)]
		if h.rand.IntN(2) == 0 {
			h.cluster.UnknownNext(k, 1)
		} else {
			h.cluster.FailNext(k, 1, ledger.ErrUnknown)
		}
	case 3:
		pass(time.Duration(h.rand.IntN(1500)) * time.Millisecond)
	default:
		on(h.owner.sub, func() {
			for range 1 + h.rand.IntN(3) {
				h.ack(c)
			}
		})
		synctest.Wait()
	}
}

// ack acknowledges an entry or a part of one, in a random place, rarely everything up to there.
func (h *acking) ack(c *managedledger.Cursor) {
	i := h.rand.IntN(len(h.all))
	p := h.all[i].pos
	acknowledged := map[ledger.Position][]int64{p: nil}
	receipt := func(err error) {
		if err == nil {
			for q, left := range acknowledged {
				h.kept[q] = and(h.kept[q], left)
			}
		}
	}
	if h.rand.IntN(3) == 0 {
		receipt = nil
	}
	switch h.rand.IntN(8) {
	case 0:
		i = h.rand.IntN(10)
		for _, d := range h.all[:i+1] {
			acknowledged[d.pos] = nil
		}
		delete(acknowledged, p)
		c.MarkDelete(h.all[i].pos, receipt)
	case 1, 2, 3, 4:
		bits := []int64{h.rand.Int64(), h.rand.Int64() & (1<<(batchOf-64) - 1)}
		if !c.IsDeleted(p) {
			if _, err := c.DeletePart(p, bits); err != nil {
				h.t.Errorf("%s: part of %s: %v", h.what, p, err)
			}
		}
		acknowledged[p] = bits
		c.Delete(nil, receipt)
	default:
		c.Delete([]ledger.Position{p}, receipt)
	}
	for q, left := range acknowledged {
		h.asked[q] = and(h.asked[q], left)
	}
}

func (h *acking) check() {
	h.t.Helper()
	synctest.Wait()
	h.owner.kill()
	h.wire.Kill()
	h.heal()
	n := h.node(3, managedledger.Options{})
	n.mustOpen()
	c := n.mustCursor(managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest})
	on(n.sub, func() {
		c.CheckInvariants()
		for _, d := range h.all {
			left := wholeBatch()
			if part := c.Part(d.pos); part != nil {
				left = and(left, part)
			}
			if c.IsDeleted(d.pos) {
				left = and(left, nil)
			}
			if got := and(left, h.asked[d.pos]); got[0] != h.asked[d.pos][0] || got[1] != h.asked[d.pos][1] {
				h.t.Errorf("%s: of %s %b are left, nobody has asked for all but %b", h.what, d.pos, left, h.asked[d.pos])
			}
			if got := and(left, h.kept[d.pos]); got[0] != left[0] || got[1] != left[1] {
				h.t.Errorf("%s: of %s %b are left, with receipts for all but %b", h.what, d.pos, left, h.kept[d.pos])
			}
		}
	})
}

// TestDamagedChainDoesNotOpen: a cursor whose records do not follow one another is an error, never another state.
func TestDamagedChainDoesNotOpen(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.wired(1, managedledger.Options{})
		n.mustOpen()
		for i := range 40 {
			n.add(fmt.Sprint(i))
		}
		synctest.Wait()
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest})
		n.wire.payload = func(b []byte) {
			if b[4] == 3 {
				b[len(b)-1] ^= 4
			}
		}
		all := n.results()
		for i := 1; i < 40; i += 2 {
			on(n.sub, func() { c.Delete([]ledger.Position{all[i].pos}, func(error) {}) })
			synctest.Wait()
		}
		n.kill()
		b := w.node(2, managedledger.Options{OpenTimeout: time.Second})
		b.mustOpen()
		_, err := b.cursor(managedledger.CursorOptions{Name: "c", Durable: true})
		mustBe(t, err, managedledger.ErrCorrupt)
	})
}

// TestSeekBackIsKept: what a seek takes back was in records before it.
func TestSeekBackIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(30, 50)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest})
		all := n.results()
		receipt := func(err error) { mustBe(t, err, nil) }
		for i := 1; i < 30; i += 2 {
			on(n.sub, func() {
				_, err := c.DeletePart(all[i-1].pos, []int64{1})
				mustBe(t, err, nil)
				c.Delete([]ledger.Position{all[i].pos}, receipt)
			})
			synctest.Wait()
		}
		on(n.sub, func() { c.Seek(all[10].pos, receipt) })
		synctest.Wait()
		on(n.sub, func() { c.Delete([]ledger.Position{all[12].pos}, receipt) })
		synctest.Wait()
		n.kill()
		b := w.node(2, managedledger.Options{})
		b.mustOpen()
		c = b.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true})
		on(b.sub, func() {
			if c.Part(all[14].pos) != nil || c.Backlog() != 19 {
				t.Errorf("part %b, backlog %d", c.Part(all[14].pos), c.Backlog())
			}
		})
	})
}
