package managedledger_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
)

// trimmer keeps nothing that cursors do not need.
func trimmer() managedledger.Options {
	return managedledger.Options{MaxEntriesPerLedger: 10, MinRolloverTime: 1, RetentionTime: 1}
}

// addSlowly adds n entries, so that ledgers are rolled as soon as they are full.
func (n *node) addSlowly(count int) {
	for range count {
		n.add(fmt.Sprint(len(n.results())))
		pass(time.Millisecond)
	}
	synctest.Wait()
}

func (n *node) receive(what string, f func(done func(error))) {
	n.w.t.Helper()
	ch := make(chan error, 1)
	on(n.sub, func() { f(func(err error) { ch <- err }) })
	if err := <-ch; err != nil {
		n.w.t.Errorf("%s: %v", what, err)
	}
	synctest.Wait()
}

// listed returns the topic's list in the metadata.
func (w *world) listed() managedledger.Info {
	w.t.Helper()
	info, err := managedledger.DecodeInfo(w.cluster.Items(topicKey)[0].Value)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

func durableAt(name string, p ledger.Position) managedledger.CursorOptions {
	return managedledger.CursorOptions{Name: name, Durable: true, Initial: p, Inclusive: true}
}

// TestTrim: a ledger goes when the last of all durable cursors has stored that it is behind it, whatever others do.
func TestTrim(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, trimmer())
		n.mustOpen()
		a := n.mustCursor(durableAt("a", ledger.Earliest))
		b := n.mustCursor(durableAt("b", ledger.Earliest))
		reader := n.mustCursor(managedledger.CursorOptions{Name: "reader", Initial: ledger.Earliest})
		n.addSlowly(55)
		all := n.results()
		first := func(want int) {
			t.Helper()
			if got := n.ml.First(); got != all[want].pos {
				t.Errorf("first is %s, want %s", got, all[want].pos)
			}
		}
		n.receive("hole", func(done func(error)) { reader.Delete([]ledger.Position{all[8].pos, all[33].pos}, done) })
		n.receive("a", func(done func(error)) { a.MarkDelete(all[34].pos, done) })
		first(0)
		n.receive("b", func(done func(error)) { b.MarkDelete(all[18].pos, done) })
		ledgers := 0
		for ledgers = range all {
			if all[ledgers].pos.Ledger == all[18].pos.Ledger {
				break
			}
		}
		first(ledgers)
		n.receive("b, the last entry of a ledger", func(done func(error)) { b.MarkDelete(last(all, 18), done) })
		start := after(all, last(all, 18))
		first(start)
		if info := w.listed(); info.Ledgers[0].ID != all[start].pos.Ledger {
			t.Errorf("list %v", info)
		}
		for _, ref := range w.cluster.Ledgers() {
			if slices.ContainsFunc(all[:start], func(d done) bool { return d.pos.Ledger == ref.ID }) {
				t.Errorf("ledger %s is still there", ref)
			}
		}
		on(n.sub, func() {
			for _, c := range []*managedledger.Cursor{a, b, reader} {
				c.CheckInvariants()
			}
			if a.Backlog() != 20 || b.Backlog() != int64(55-start) || reader.Backlog() != int64(55-start-1) {
				t.Errorf("backlogs %d, %d, %d", a.Backlog(), b.Backlog(), reader.Backlog())
			}
		})
		expect(t, "reader", positions(n.readAll(reader)), positions(append(append([]done{}, all[start:33]...), all[34:]...)))
		n.receive("seek", func(done func(error)) { a.Seek(all[3].pos, done) })
		expect(t, "after a seek to what is gone", positions(n.readAll(a)), positions(all[start:]))
		expect(t, "everything", positions(n.everything()), positions(all[start:]))
		n.kill()
		n = w.node(2, trimmer())
		n.mustOpen()
		expect(t, "the next owner", positions(n.everything()), positions(all[start:]))
		b = n.mustCursor(durableAt("b", ledger.Earliest))
		on(n.sub, func() {
			if b.Backlog() != int64(55-start) {
				t.Errorf("backlog %d", b.Backlog())
			}
		})
	})
}

// last returns the last entry of the ledger of entry i; after the index of the entry behind p.
func last(all []done, i int) ledger.Position {
	for i+1 < len(all) && all[i+1].pos.Ledger == all[i].pos.Ledger {
		i++
	}
	return all[i].pos
}

func after(all []done, p ledger.Position) int {
	for i := range all {
		if p.Less(all[i].pos) {
			return i
		}
	}
	return len(all)
}

// TestTrimWithoutCursors: without durable cursors every full ledger goes at once, and the metadata stays small however
// many there were; a Hold keeps what is behind it.
func TestTrimWithoutCursors(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, trimmer())
		n.mustOpen()
		n.addSlowly(25)
		all := n.results()
		on(n.exec, func() { n.ml.Hold(all[len(all)-1].pos) })
		held := all[len(all)-1].pos.Ledger
		n.addSlowly(40)
		if got := n.ml.First().Ledger; got != held {
			t.Errorf("first is in %d, %d is held", got, held)
		}
		for range 40 {
			n.addSlowly(25)
			on(n.exec, func() { n.ml.Hold(n.ml.LastConfirmed()) })
		}
		synctest.Wait()
		if info := w.listed(); len(info.Ledgers) > 5 || len(info.Deleting) > 5 {
			t.Errorf("list %v", info)
		}
		if got := len(w.cluster.Ledgers()); got > 5 {
			t.Errorf("%d ledgers", got)
		}
	})
}

// TestRetention: what is young enough, and not too much, is kept although nobody needs it.
func TestRetention(t *testing.T) {
	for _, tc := range []struct {
		time  time.Duration
		bytes int64
		kept  bool // at once; after an hour
		later bool
	}{
		{time: time.Minute, bytes: -1, kept: true},
		{time: -1, bytes: 1 << 20, kept: true, later: true},
		{time: -1, bytes: 10},
		{time: time.Minute, bytes: 10},
	} {
		inWorld(t, func(w *world) {
			o := trimmer()
			o.RetentionTime, o.RetentionBytes = tc.time, tc.bytes
			n := w.node(1, o)
			n.mustOpen()
			n.addSlowly(35)
			if kept := n.ml.First() == n.results()[0].pos; kept != tc.kept {
				t.Errorf("%v: kept at once: %t", tc, kept)
			}
			pass(time.Hour)
			if kept := n.ml.First() == n.results()[0].pos; kept != tc.later {
				t.Errorf("%v: kept for an hour: %t", tc, kept)
			}
		})
	}
}

// TestFailedDeletionsAreMadeUpFor: the bookies refuse deletions, then the owner dies; the next one deletes, and the list
// forgets.
func TestFailedDeletionsAreMadeUpFor(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, trimmer())
		n.mustOpen()
		n.client.FailNext(bookietest.Delete, 100, ledger.ErrReadOnly)
		n.addSlowly(35)
		if info := w.listed(); len(info.Deleting) < 2 {
			t.Fatalf("list %v", info)
		}
		n.kill()
		n = w.node(2, trimmer())
		n.mustOpen()
		pass(5 * time.Minute)
		synctest.Wait()
		info := w.listed()
		if len(info.Deleting) != 0 || len(w.cluster.Ledgers()) != len(info.Ledgers) {
			t.Errorf("list %v, ledgers %v", info, w.cluster.Ledgers())
		}
	})
}

// TestTrimCrashAtEveryRequest: an owner that trims dies at the n-th request, for every n. The list names no ledger that is
// gone; all that is not acknowledged is read; ledgers that were once in the list and are no more are gone in the end.
func TestTrimCrashAtEveryRequest(t *testing.T) {
	steps := 0
	for n := 0; n <= steps; n++ {
		for _, carriedOut := range []bool{false, true} {
			inWorld(t, func(w *world) {
				wire := &tripwire{Client: w.cluster.Client()}
				what := fmt.Sprintf("crash at request %d, carried out %t", n, carriedOut)
				acked := w.trimmingLife(wire, n, carriedOut)
				if n == 0 {
					steps = wire.calls
				}
				w.checkTrimmed(what, acked)
			})
		}
	}
	if steps < 30 {
		t.Errorf("%d requests", steps)
	}
}

// trimmingLife adds and acknowledges in order until the wire trips; it returns how many had been asked to be deleted.
func (w *world) trimmingLife(wire *tripwire, trip int, after bool) (asked int) {
	n := w.node(1, trimmer())
	n.opts.MaxEntriesPerLedger, n.opts.CursorMaxEntriesPerLedger = 4, 5
	n.client.Kill() // the wire's is used
	n.wire = wire
	n.mustOpen()
	c := n.mustCursor(durableAt("s", ledger.Earliest))
	wire.calls, wire.left, wire.after = 0, trip, after
	for i := range 20 {
		n.add(strconv.Itoa(i))
		pass(time.Millisecond)
		synctest.Wait()
		if all := n.results(); i%3 == 2 && len(all) > i-1 {
			on(n.sub, func() { c.MarkDelete(all[i-1].pos, func(error) {}) })
			asked = i
			synctest.Wait()
		}
	}
	n.kill()
	return asked
}

func (w *world) checkTrimmed(what string, asked int) {
	w.t.Helper()
	before := w.listed()
	for _, l := range before.Ledgers {
		if _, ok := w.cluster.State(ledger.Ref{ID: l.ID, Group: l.Group}); !ok {
			w.t.Errorf("%s: ledger %d is in the list, and gone", what, l.ID)
		}
	}
	n := w.node(2, trimmer())
	n.mustOpen()
	all := n.everything()
	for i, d := range all {
		if v, _ := strconv.Atoi(d.text); i == 0 && v > asked || i > 0 && d.text != strconv.Itoa(atoi(all[i-1].text)+1) {
			w.t.Errorf("%s: read %s, %d may be gone", what, texts(all), asked)
			break
		}
	}
	n.mustCursor(durableAt("s", ledger.Earliest))
	pass(5 * time.Minute)
	synctest.Wait()
	now := w.listed()
	if len(now.Deleting) > 0 {
		w.t.Errorf("%s: still to be deleted: %v", what, now.Deleting)
	}
	for _, d := range before.Deleting {
		if _, ok := w.cluster.State(ledger.Ref{ID: d.ID, Group: d.Group}); ok {
			w.t.Errorf("%s: ledger %d is left over", what, d.ID)
		}
	}
}

func atoi(s string) int {
	v, _ := strconv.Atoi(s)
	return v
}

// TestDeletedTopicLeavesNoTrimmedLedger: a topic is deleted while its bookies still have what was trimmed.
func TestDeletedTopicLeavesNoTrimmedLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, trimmer())
		n.mustOpen()
		w.cluster.FailNext(bookietest.Delete, 2, ledger.ErrReadOnly)
		n.addSlowly(35)
		ch := make(chan error, 1)
		on(n.exec, func() { n.ml.Delete(func(err error) { ch <- err }) })
		mustBe(t, <-ch, nil)
		synctest.Wait()
		if left := w.cluster.Ledgers(); len(left) != 0 || len(w.cluster.Items(metadata.CursorPrefix(topicKey))) != 0 {
			t.Errorf("left: %v", left)
		}
	})
}
