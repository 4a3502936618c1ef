package managedledger_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

func TestAddCompletesInOrderAndIsRead(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		if last := n.ml.LastConfirmed(); last.Entry != ledger.NoEntry {
			t.Errorf("empty topic: last confirmed %s", last)
		}
		n.add("a", "b")
		n.add("|", "c", "|")
		synctest.Wait()
		expect(t, "completed", texts(n.results()), "a b c")
		expect(t, "read", texts(n.everything()), "a b c")
		if len(n.barriers) != 2 {
			t.Errorf("%d barriers completed", len(n.barriers))
		}
	})
}

func TestRollover(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{MaxEntriesPerLedger: 10, MinRolloverTime: 1})
		n.mustOpen()
		want := ""
		for i := range 95 {
			n.add(fmt.Sprint(i))
			want += fmt.Sprint(i) + " "
			pass(time.Millisecond)
			synctest.Wait()
		}
		expect(t, "completed", texts(n.results())+" ", want)
		expect(t, "read", texts(n.everything())+" ", want)
		on(n.exec, func() {
			if st := n.ml.Stats(); st.Ledgers != 10 || st.Entries != 95 {
				t.Errorf("stats %+v", st)
			}
		})
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestFencedByANewerOwner(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node(1, managedledger.Options{})
		a.mustOpen()
		a.add("a", "b")
		synctest.Wait()
		b := w.node(2, managedledger.Options{})
		b.mustOpen()
		a.add("lost")
		synctest.Wait()
		mustBe(t, a.lostErr(), managedledger.ErrLost)
		b.add("c")
		synctest.Wait()
		expect(t, "read", texts(b.everything()), "a b c")
		old := w.node(1, managedledger.Options{})
		mustBe(t, old.open(), managedledger.ErrLost)
	})
}

func TestStallMovesToAnotherGroup(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		n.add("a", "b")
		synctest.Wait()
		group := n.current().Group
		w.cluster.LoseAcks(group, true)
		n.add("c", "d")
		start := time.Now()
		pass(300 * time.Millisecond)
		n.add("e")
		synctest.Wait()
		expect(t, "completed", texts(n.results()), "a b c d e")
		if n.current().Group == group {
			t.Errorf("still in group %d after %s", group, time.Since(start))
		}
		w.cluster.LoseAcks(group, false)
		synctest.Wait()
		expect(t, "completed", texts(n.results()), "a b c d e")
		expect(t, "read", texts(n.everything()), "a b c d e")
		b := w.node(2, managedledger.Options{})
		b.mustOpen()
		expect(t, "read by the next owner", texts(b.everything()), "a b c d e")
	})
}

func (n *node) current() (ref ledger.Ref) {
	on(n.exec, func() { ref = n.ml.Stats().Current })
	return ref
}

func TestWaitingReadIsWoken(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		c := n.mustCursor(managedledger.CursorOptions{Name: "r", Initial: ledger.Latest})
		var got []string
		var again func(es []ledger.Entry, err error)
		again = func(es []ledger.Entry, err error) {
			for _, e := range es {
				got = append(got, string(e.Payload.Data))
				e.Payload.Release()
			}
			c.Read(ledger.Limits{Entries: 2}, again)
		}
		on(n.sub, func() { c.Read(ledger.Limits{Entries: 2}, again) })
		for i := range 20 {
			n.add(fmt.Sprint(i))
		}
		synctest.Wait()
		if len(got) != 20 {
			t.Errorf("read %v", got)
		}
		if reads := w.cluster.Count(bookietest.Read); reads != 0 {
			t.Errorf("%d reads went to the bookies", reads)
		}
	})
}

func TestDurableCursorSurvives(t *testing.T) {
	for _, how := range []string{"crash", "close"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				n := w.node(1, managedledger.Options{})
				n.mustOpen()
				n.add("a", "b", "c", "d", "e", "f")
				synctest.Wait()
				c := n.mustCursor(managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest})
				all := n.readAll(c)
				ch := make(chan error, 1)
				on(n.sub, func() {
					c.Delete([]ledger.Position{all[0].pos, all[2].pos, all[4].pos}, func(err error) { ch <- err })
				})
				if err := <-ch; err != nil {
					t.Fatal(err)
				}
				if how == "close" {
					on(n.sub, func() { c.Close(func(err error) { ch <- err }) })
					if err := <-ch; err != nil {
						t.Fatal(err)
					}
					if err := n.close(); err != nil {
						t.Fatal(err)
					}
				} else {
					n.kill()
				}
				b := w.node(2, managedledger.Options{})
				b.mustOpen()
				expect(t, "cursors", fmt.Sprint(b.names()), "[s]")
				c = b.mustCursor(managedledger.CursorOptions{Name: "s", Durable: true})
				on(b.sub, func() {
					if c.Backlog() != 3 || c.MarkDeleted() != all[0].pos {
						t.Errorf("backlog %d, mark-delete position %s", c.Backlog(), c.MarkDeleted())
					}
				})
				expect(t, "read", texts(b.readAll(c)), "b d f")
			})
		})
	}
}

func (n *node) names() (names []string) {
	on(n.exec, func() { names = n.ml.Cursors() })
	return names
}

func TestDeleteRemovesEverything(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{MaxEntriesPerLedger: 2, MinRolloverTime: 1})
		n.mustOpen()
		for range 7 {
			n.add("x")
			pass(time.Millisecond)
		}
		c := n.mustCursor(managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest})
		on(n.sub, func() { c.MarkDelete(n.ml.LastConfirmed(), nil) })
		pass(2 * time.Second)
		ch := make(chan error, 1)
		on(n.exec, func() { n.ml.Delete(func(err error) { ch <- err }) })
		if err := <-ch; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if items := w.cluster.Items("/topics"); len(items) != 0 {
			t.Errorf("topic left: %v", items)
		}
		if items := w.cluster.Items("/cursors"); len(items) != 0 {
			t.Errorf("cursors left: %v", items)
		}
		if refs := w.cluster.Ledgers(); len(refs) != 0 {
			t.Errorf("ledgers left: %v", refs)
		}
	})
}
