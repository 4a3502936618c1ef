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

// wired is a node whose client is watched.
func (w *world) wired(epoch ledger.Epoch, o managedledger.Options) *node {
	n := w.node(epoch, o)
	n.wire = &tripwire{Client: n.client}
	return n
}

// TestLateAcknowledgementIsIgnored: the decision to close the ledger at S is taken but not put yet, and the old group
// acknowledges what lies behind S. Completing it would complete it twice.
func TestLateAcknowledgementIsIgnored(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.wired(1, managedledger.Options{})
		var ref ledger.Ref
		var late ledger.Waiter
		n.wire.waiter = func(r ledger.Ref, w ledger.Waiter) { ref, late = r, w }
		n.mustOpen()
		n.add("a")
		synctest.Wait()
		w.cluster.LoseAcks(ref.Group, true)
		n.add("b", "c")
		pass(249 * time.Millisecond)
		old, oldWaiter := ref, late
		synctest.Wait()
		w.cluster.FailNext(bookietest.Commit, 3, ledger.ErrUnknown) // decided, but not put for a while
		pass(6 * time.Millisecond)
		synctest.Wait()
		on(n.exec, func() {})
		oldWaiter.Appended(old, 2, nil)
		synctest.Wait()
		expect(t, "completed while the decision stands", texts(n.results()), "a")
		pass(time.Second)
		expect(t, "completed", texts(n.results()), "a b c")
		if last := n.results()[2].pos; last.Ledger == old.ID {
			t.Errorf("completed in the old ledger: %s", last)
		}
		oldWaiter.Appended(old, 2, nil)
		oldWaiter.Appended(old, 2, ledger.ErrFenced)
		synctest.Wait()
		if err := n.lostErr(); err != nil {
			t.Errorf("lost by the old ledger's word: %v", err)
		}
		w.cluster.LoseAcks(old.Group, false)
		expect(t, "read", texts(n.everything()), "a b c")
	})
}

func TestAbandonedAppendsHoldNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		w.cluster.LoseAcks(n.current().Group, true)
		n.add("a", "b")
		pass(300 * time.Millisecond)
		synctest.Wait()
		expect(t, "completed", texts(n.results()), "a b")
		if held := w.cluster.Retained(); held != 0 {
			t.Errorf("%d payloads are held by the old ledger's appends", held)
		}
	})
}

// TestStallsBackOff: on a machine where every group is slow, ledgers are not replaced over and over.
func TestStallsBackOff(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		for g := range ledger.GroupID(3) {
			w.cluster.Delay(g+1, 3*time.Second)
		}
		for i := range 20 {
			n.add(fmt.Sprint(i))
			pass(3 * time.Second)
		}
		synctest.Wait()
		if done := len(n.results()); done < 18 {
			t.Errorf("%d of 20 have completed", done)
		}
		on(n.exec, func() {
			if r := n.ml.Stats().Replaced; r > 5 {
				t.Errorf("%d ledgers replaced", r)
			}
		})
		for g := range ledger.GroupID(3) {
			w.cluster.Delay(g+1, 0)
		}
	})
}

// TestPreparedLedgerIsUsedInTrouble: the next ledger is there already, in another group, so that only the list has to be put.
func TestPreparedLedgerIsUsedInTrouble(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{MaxEntriesPerLedger: 8, MinRolloverTime: 1})
		n.mustOpen()
		pass(time.Millisecond)
		n.add("1", "2", "3", "4", "5", "6", "7")
		synctest.Wait()
		created := w.cluster.Count(bookietest.Create)
		w.cluster.LoseAcks(n.current().Group, true)
		n.add("8")
		pass(251 * time.Millisecond)
		synctest.Wait()
		expect(t, "completed", texts(n.results()), "1 2 3 4 5 6 7 8")
		if got := w.cluster.Count(bookietest.Create); got != created {
			t.Errorf("%d more ledgers were created", got-created)
		}
		w.cluster.LoseAcks(1, false)
		expect(t, "read", texts(n.everything()), "1 2 3 4 5 6 7 8")
	})
}

// TestPreparedLedgerInTheSameGroupIsDropped: there is one group only, so the prepared ledger is no way out.
func TestPreparedLedgerInTheSameGroupIsDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cluster.Down(2)
		w.cluster.Down(3)
		n := w.node(1, managedledger.Options{MaxEntriesPerLedger: 8, MinRolloverTime: 1})
		n.mustOpen()
		pass(time.Millisecond)
		n.add("1", "2", "3", "4", "5", "6", "7")
		synctest.Wait()
		w.cluster.Up(2)
		w.cluster.FailNext(bookietest.Append, 1, ledger.ErrOverloaded)
		n.add("8")
		synctest.Wait()
		expect(t, "completed", texts(n.results()), "1 2 3 4 5 6 7 8")
		info, err := managedledger.DecodeInfo(w.cluster.Item(topicKey).Value)
		if err != nil || len(info.Ledgers) != 2 || len(w.cluster.Ledgers()) != 2 {
			t.Errorf("list %+v, ledgers %v, %v", info, w.cluster.Ledgers(), err)
		}
	})
}

// TestAddInsideCompleted: the listener adds while it is told, at the moment at which the ledger is rolled.
func TestAddInsideCompleted(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{MaxEntriesPerLedger: 5, MinRolloverTime: 1})
		n.mustOpen()
		pass(time.Millisecond)
		for g := range ledger.GroupID(3) {
			w.cluster.Delay(g+1, time.Millisecond)
		}
		added := 1
		n.onDone = func(ops []managedledger.Op) {
			for range ops {
				for range 2 {
					if added < 60 {
						p := w.roots.payload(fmt.Sprint(added))
						n.ml.Add([]managedledger.Op{{Payload: p}})
						p.Release()
						added++
					}
				}
			}
		}
		n.add("0")
		pass(time.Second)
		synctest.Wait()
		all := n.results()
		if len(all) != 60 {
			t.Fatalf("%d have completed", len(all))
		}
		for i, d := range all {
			if d.text != fmt.Sprint(i) {
				t.Fatalf("completed %s", texts(all))
			}
		}
		expect(t, "read", texts(n.everything()), texts(all))
		if n.current().ID < 3 {
			t.Errorf("not rolled: %s", n.current())
		}
	})
}

func TestRolloverByAge(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		first := n.current()
		pass(9 * time.Hour)
		if n.current() != first {
			t.Error("an empty ledger was rolled")
		}
		n.add("a")
		pass(5 * time.Hour)
		synctest.Wait()
		if n.current() == first {
			t.Error("an old ledger was not rolled")
		}
		n.add("b")
		synctest.Wait()
		expect(t, "read", texts(n.everything()), "a b")
	})
}

// TestFullLedgerIsNotRolledBeforeItsTime: managedLedgerMinLedgerRolloverTimeMinutes.
func TestFullLedgerIsNotRolledBeforeItsTime(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{MaxBytesPerLedger: 100})
		n.mustOpen()
		first := n.current()
		for range 9 {
			n.add("12345678901234567890")
			pass(time.Minute)
		}
		if n.current() != first {
			t.Error("rolled before 10 minutes")
		}
		pass(2 * time.Minute)
		n.add("x")
		synctest.Wait()
		n.add("y")
		synctest.Wait()
		if n.current() == first {
			t.Error("not rolled after 10 minutes")
		}
	})
}

func TestCloseWaitsForPendingOps(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		w.cluster.Delay(1, 100*time.Millisecond)
		n.add("a", "b")
		if err := n.close(); err != nil {
			t.Error(err)
		}
		expect(t, "completed", texts(n.results()), "a b")
		info, err := managedledger.DecodeInfo(w.cluster.Item(topicKey).Value)
		if err != nil || len(info.Ledgers) != 1 || !info.Ledgers[0].Closed || info.Ledgers[0].Entries != 2 {
			t.Errorf("list %+v, %v", info, err)
		}
		n.add("too late")
		mustBe(t, n.close(), managedledger.ErrClosed)
	})
}

func TestCloseGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		for g := range ledger.GroupID(4) {
			w.cluster.Hold(g)
		}
		n.add("a")
		start := time.Now()
		mustBe(t, n.close(), ledger.ErrUnknown)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("took %s", took)
		}
		for g := range ledger.GroupID(4) {
			w.cluster.Release(g)
		}
	})
}

func TestOpenGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cluster.Down(0)
		n := w.node(1, managedledger.Options{})
		start := time.Now()
		mustBe(t, n.open(), ledger.ErrUnknown)
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("took %s", took)
		}
		w.cluster.Up(0)
		n.mustOpen()
	})
}

// TestNoLedgerTakesAnything: every group refuses every append for a while. Ledgers are not made by the thousand.
func TestNoLedgerTakesAnything(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		w.cluster.FailNext(bookietest.Append, 1<<30, ledger.ErrReadOnly)
		n.add("a")
		pass(10 * time.Second)
		synctest.Wait()
		if made := w.cluster.Count(bookietest.Create); made > 25 {
			t.Errorf("%d ledgers in 10 s", made)
		}
		if left := len(w.cluster.Ledgers()); left > 2 {
			t.Errorf("%d ledgers left", left)
		}
	})
}

// TestEntryThatNoLedgerTakes: going on would try for ever.
func TestEntryThatNoLedgerTakes(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		w.cluster.FailNext(bookietest.Append, 1, ledger.ErrBadCommand)
		n.add("a")
		synctest.Wait()
		mustBe(t, n.lostErr(), ledger.ErrBadCommand)
	})
}

// TestBrokenStreamAfterAStall: the stalled group comes back with an acknowledgement, but then its stream breaks, before
// the other ledger is there: there is no way back.
func TestBrokenStreamAfterAStall(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.wired(1, managedledger.Options{})
		var late ledger.Waiter
		n.wire.waiter = func(_ ledger.Ref, w ledger.Waiter) { late = w }
		n.mustOpen()
		old := n.current()
		w.cluster.LoseAcks(old.Group, true)
		n.add("a")
		synctest.Wait()
		w.cluster.Hold(0)
		pass(300 * time.Millisecond)
		w.cluster.LoseAcks(old.Group, false)
		synctest.Wait()
		expect(t, "completed", texts(n.results()), "a")
		late.Appended(old, 0, ledger.ErrUnknown)
		w.cluster.Release(0)
		synctest.Wait()
		if n.current() == old {
			t.Error("stays with a broken stream")
		}
		n.add("b")
		synctest.Wait()
		expect(t, "read", texts(n.everything()), "a b")
	})
}
