package managedledger_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// filled is a topic of several ledgers with n entries "0", "1", …
func (w *world) filled(n, perLedger int) *node {
	b := w.node(1, managedledger.Options{MaxEntriesPerLedger: int64(perLedger), MinRolloverTime: 1})
	b.mustOpen()
	for i := range n {
		b.add(fmt.Sprint(i))
		pass(time.Millisecond)
	}
	synctest.Wait()
	return b
}

// TestBacklogIsWhatCountingFinds does random things to a cursor and counts.
func TestBacklogIsWhatCountingFinds(t *testing.T) {
	for seed := range uint64(25) {
		inWorld(t, func(w *world) {
			n := w.filled(40, 7)
			rnd := rand.New(rand.NewPCG(seed, 5))
			c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
			deleted := map[ledger.Position]bool{}
			for range 80 {
				all := n.results()
				p := all[rnd.IntN(len(all))].pos
				on(n.sub, func() {
					switch rnd.IntN(12) {
					default:
						c.Delete([]ledger.Position{p}, nil)
						deleted[p] = true
					case 1:
						c.MarkDelete(p, nil)
						mark(deleted, all, func(q ledger.Position) bool { return q.Compare(p) <= 0 || deleted[q] })
					case 2:
						c.Seek(p, nil)
						mark(deleted, all, func(q ledger.Position) bool { return q.Less(p) })
					}
				})
				if rnd.IntN(6) == 0 {
					n.add("more")
					pass(time.Millisecond)
					all = n.results()
				}
				on(n.sub, func() { compareCursor(t, c, deleted, all) })
			}
			var want []done
			for _, d := range n.results() {
				if !deleted[d.pos] {
					want = append(want, d)
				}
			}
			on(n.sub, c.Rewind)
			expect(t, "read", positions(n.readAll(c)), positions(want))
		})
	}
}

func mark(deleted map[ledger.Position]bool, all []done, is func(ledger.Position) bool) {
	for _, d := range all {
		deleted[d.pos] = is(d.pos)
	}
}

func compareCursor(t *testing.T, c *managedledger.Cursor, deleted map[ledger.Position]bool, all []done) {
	t.Helper()
	c.CheckInvariants()
	var want int64
	more := false
	for _, d := range all {
		if c.IsDeleted(d.pos) != deleted[d.pos] {
			t.Fatalf("%s is deleted: %t", d.pos, c.IsDeleted(d.pos))
		}
		if !deleted[d.pos] {
			want++
			more = more || d.pos.Compare(c.ReadPosition()) >= 0
		}
	}
	if c.Backlog() != want || c.HasMore() != more {
		t.Fatalf("backlog %d, has more %t; want %d, %t", c.Backlog(), c.HasMore(), want, more)
	}
}

// TestReadEndsAtTheLastConfirmedEntry proves "complete with what it has, at once, where it was asked": the read asks for
// more than there is, and is done before Read returns.
func TestReadEndsAtTheLastConfirmedEntry(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		n.add("a", "b", "c")
		synctest.Wait()
		on(n.sub, func() {
			got := ""
			c.Read(ledger.Limits{Entries: 100, Bytes: 1 << 20}, func(es []ledger.Entry, err error) {
				for _, e := range es {
					got += string(e.Payload.Data)
					e.Payload.Release()
				}
			})
			expect(t, "read inline", got, "abc")
		})
		if reads := w.cluster.Count(bookietest.Read); reads != 0 {
			t.Errorf("%d reads went to the bookies", reads)
		}
	})
}

// TestReadDoesNotCrossLedgers: with something in hand, the next ledger is left to the next read.
func TestReadDoesNotCrossLedgers(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(20, 8)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		for {
			got, err := n.read(c, 100)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				break
			}
			if got[0].pos.Ledger != got[len(got)-1].pos.Ledger {
				t.Errorf("read %s", positions(got))
			}
		}
	})
}

// TestReadsInsideDoneDoNotRecurse reads 2,000 cached entries one by one, each from inside the done before.
func TestReadsInsideDoneDoNotRecurse(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		for range 20 {
			ts := make([]string, 100)
			n.add(ts...)
		}
		synctest.Wait()
		total, depth := 0, 0
		var again func(es []ledger.Entry, err error)
		again = func(es []ledger.Entry, err error) {
			depth++
			if depth > 1 {
				t.Fatal("done inside done")
			}
			total += len(es)
			for _, e := range es {
				e.Payload.Release()
			}
			c.Read(ledger.Limits{Entries: 1}, again)
			depth--
		}
		on(n.sub, func() { c.Read(ledger.Limits{Entries: 1}, again) })
		synctest.Wait()
		if total != 2000 {
			t.Errorf("%d entries", total)
		}
	})
}

func TestSeekDuringARead(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(20, 50)
		n.cache.Close() // all reads go to the bookies
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		w.cluster.Hold(1)
		var got []done
		on(n.sub, func() {
			c.Read(ledger.Limits{Entries: 3}, func(es []ledger.Entry, err error) {
				for _, e := range es {
					got = append(got, done{e.Position, string(e.Payload.Data)})
					e.Payload.Release()
				}
			})
			c.Seek(ledger.Position{Ledger: 1, Entry: 10}, nil)
			if c.CancelRead() {
				t.Error("a read under way was cancelled")
			}
		})
		w.cluster.Release(1)
		synctest.Wait()
		expect(t, "read", texts(got), "10 11 12")
		got = nil
		w.cluster.Hold(1)
		on(n.sub, func() {
			c.Read(ledger.Limits{Entries: 3}, func(es []ledger.Entry, err error) {
				for _, e := range es {
					got = append(got, done{e.Position, string(e.Payload.Data)})
					e.Payload.Release()
				}
			})
			c.Rewind()
		})
		w.cluster.Release(1)
		synctest.Wait()
		expect(t, "read after going back", texts(got), "10 11 12")
		on(n.sub, func() {
			c.Read(ledger.Limits{Entries: 3}, func([]ledger.Entry, error) { t.Error("done after close") })
			c.Close(nil)
		})
		synctest.Wait()
	})
}

func TestReadAt(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(20, 8)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		all := n.results()
		pick := func(is ...int) (ps []ledger.Position) {
			for _, i := range is {
				ps = append(ps, all[i].pos)
			}
			return ps
		}
		readAt := func(ps []ledger.Position) string {
			var got []done
			ch := make(chan error, 1)
			on(n.sub, func() {
				c.ReadAt(ps, func(es []ledger.Entry, err error) {
					for _, e := range es {
						got = append(got, done{e.Position, string(e.Payload.Data)})
						e.Payload.Release()
					}
					ch <- err
				})
			})
			err := <-ch
			return fmt.Sprintf("%s %v", texts(got), err)
		}
		pass(5 * time.Second) // out of the cache
		got := readAt(pick(1, 2, 3, 7, 9, 18, 19))
		expect(t, "from the bookies", got, "1 2 3 7 9 18 19 <nil>")
		on(n.sub, func() { c.Delete(pick(2, 9), nil) })
		expect(t, "without deleted ones", readAt(append(pick(1, 2, 3, 9), ledger.Position{Ledger: 999})), "1 3 <nil>")
		expect(t, "nothing", readAt(nil), " <nil>")
		pass(5 * time.Second) // what was read between them is out of the cache
		w.cluster.FailNext(bookietest.Read, 1, ledger.ErrUnreadable)
		expect(t, "failure", readAt(pick(1)), " "+ledger.ErrUnreadable.Error())
		expect(t, "again", readAt(pick(1)), "1 <nil>")
	})
}

// TestReadsGoOverSmallHoles: with every second entry deleted a read of the bookies still brings many; over a large hole it
// does not go.
func TestReadsGoOverSmallHoles(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(200, 500)
		pass(5 * time.Second) // out of the cache
		all := n.results()
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		var want []done
		on(n.sub, func() {
			for i, d := range all {
				if i%2 == 1 || i > 100 && i < 190 {
					c.Delete([]ledger.Position{d.pos}, nil)
				} else {
					want = append(want, d)
				}
			}
		})
		var got []done
		for {
			ds, err := n.read(c, 50)
			mustBe(t, err, nil)
			if len(ds) == 0 {
				break
			}
			got = append(got, ds...)
		}
		expect(t, "read", texts(got), texts(want))
		if reads := w.cluster.Count(bookietest.Read); reads != 4 {
			t.Errorf("%d reads", reads)
		}
	})
}

func TestReadErrorMovesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(5, 50)
		pass(5 * time.Second)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		w.cluster.FailNext(bookietest.Read, 1, ledger.ErrUnreadable)
		_, err := n.read(c, 2)
		mustBe(t, err, ledger.ErrUnreadable)
		got, err := n.read(c, 2)
		mustBe(t, err, nil)
		expect(t, "read", texts(got), "0 1")
	})
}

func TestInitialPositions(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(20, 8)
		all := n.results()
		for i, tc := range []struct {
			initial   ledger.Position
			inclusive bool
			backlog   int64
		}{
			{ledger.Earliest, false, 20},
			{ledger.Earliest, true, 20},
			{ledger.Position{}, false, 20 - 0},
			{ledger.Latest, false, 0},
			{ledger.Latest, true, 0},
			{all[9].pos, true, 11},
			{all[9].pos, false, 10},
			{ledger.Position{Ledger: all[8].pos.Ledger, Entry: ledger.NoEntry}, false, 12},
		} {
			c := n.mustCursor(managedledger.CursorOptions{Name: fmt.Sprint(i), Initial: tc.initial, Inclusive: tc.inclusive})
			on(n.sub, func() {
				if c.Backlog() != tc.backlog {
					t.Errorf("%s, inclusive %t: backlog %d, want %d", tc.initial, tc.inclusive, c.Backlog(), tc.backlog)
				}
			})
		}
		if _, err := n.cursor(managedledger.CursorOptions{Name: "0"}); err == nil {
			t.Error("opened twice")
		}
	})
}

// TestReceiptsGather: while one record is on its way, all acknowledgements that come make one more.
func TestReceiptsGather(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(20, 50)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest})
		all := n.results()
		answered := 0
		ack := func(i int) {
			c.Delete([]ledger.Position{all[i].pos}, func(err error) {
				if err == nil {
					answered++
				}
			})
		}
		on(n.sub, func() {
			ack(0)
			ack(0) // what is on its way is not durable yet
			if answered != 0 {
				t.Error("answered before it was durable")
			}
		})
		synctest.Wait()
		before := w.cluster.Count(bookietest.Append)
		on(n.sub, func() {
			ack(1)
			for i := 1; i < 20; i++ { // the first time, 1 again is on its way
				ack(i)
			}
			if answered != 2 {
				t.Error("answered before it was durable")
			}
		})
		synctest.Wait()
		if answered != 22 {
			t.Errorf("%d answered", answered)
		}
		if records := w.cluster.Count(bookietest.Append) - before; records != 2 {
			t.Errorf("%d records", records)
		}
		on(n.sub, func() { c.Delete([]ledger.Position{all[3].pos}, func(error) { answered++ }) })
		pass(time.Minute)
		if records := w.cluster.Count(bookietest.Append) - before; records != 2 || answered != 23 {
			t.Errorf("%d records, %d answered, though nothing has changed", records, answered)
		}
	})
}

// TestCursorLedgerMovesInTrouble: the cursor's group stops; another one takes the state, the old ledger goes.
func TestCursorLedgerMovesInTrouble(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.wired(1, managedledger.Options{})
		refs := map[ledger.ID]ledger.Ref{}
		var last ledger.Ref
		n.wire.waiter = func(ref ledger.Ref, _ ledger.Waiter) { refs[ref.ID], last = ref, ref }
		n.mustOpen()
		n.add("a", "b", "c")
		synctest.Wait()
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest})
		all := n.results()
		var answered atomic.Int32
		ack := func(i int) {
			on(n.sub, func() { c.Delete([]ledger.Position{all[i].pos}, func(err error) { answered.Add(1) }) })
			synctest.Wait()
		}
		ack(0)
		old := last
		w.cluster.LoseAcks(old.Group, true)
		ack(2)
		if answered.Load() != 1 {
			t.Errorf("%d answered", answered.Load())
		}
		pass(1100 * time.Millisecond)
		synctest.Wait()
		if answered.Load() != 2 || last.Group == old.Group {
			t.Errorf("%d answered, records go to %s", answered.Load(), last)
		}
		w.cluster.LoseAcks(old.Group, false)
		synctest.Wait()
		if _, ok := w.cluster.State(old); ok {
			t.Errorf("%s is still there", old)
		}
		n.kill()
		b := w.node(2, managedledger.Options{})
		b.mustOpen()
		c = b.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true})
		expect(t, "read", texts(b.readAll(c)), "b")
	})
}

func TestDeleteCursor(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(5, 50)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest})
		on(n.sub, func() { c.MarkDelete(n.results()[2].pos, func(error) {}) })
		synctest.Wait()
		ledgers := len(w.cluster.Ledgers())
		w.cluster.UnknownNext(bookietest.Commit, 1)
		ch := make(chan error, 1)
		on(n.exec, func() { n.ml.DeleteCursor("c", func(err error) { ch <- err }) })
		if err := <-ch; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(n.names()) != 0 || len(w.cluster.Items("/cursors")) != 0 || len(w.cluster.Ledgers()) != ledgers-1 {
			t.Errorf("left: %v %v %v", n.names(), w.cluster.Items("/cursors"), w.cluster.Ledgers())
		}
		on(n.sub, func() { c.MarkDelete(n.results()[3].pos, func(err error) { ch <- err }) })
		mustBe(t, <-ch, managedledger.ErrClosed)
		c = n.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest})
		on(n.sub, func() {
			if c.Backlog() != 5 {
				t.Errorf("backlog %d of a new cursor", c.Backlog())
			}
		})
	})
}

// TestCursorOfALostTopic: a newer owner has the cursor; the older one's next write fails, and its topic with it.
func TestCursorOfALostTopic(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.filled(5, 50)
		o := managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest}
		c := a.mustCursor(o)
		all := a.results()
		ch := make(chan error, 1)
		receipt := func(err error) { ch <- err }
		on(a.sub, func() { c.Delete([]ledger.Position{all[0].pos}, receipt) })
		mustBe(t, <-ch, nil)
		b := w.node(2, managedledger.Options{})
		b.mustOpen()
		d := b.mustCursor(o)
		on(a.sub, func() { c.Delete([]ledger.Position{all[1].pos}, receipt) })
		mustBe(t, <-ch, managedledger.ErrLost)
		synctest.Wait()
		mustBe(t, a.lostErr(), managedledger.ErrLost)
		late := w.node(1, managedledger.Options{})
		mustBe(t, late.open(), managedledger.ErrLost)
		on(b.sub, func() {
			if d.Backlog() != 4 {
				t.Errorf("backlog %d", d.Backlog())
			}
		})
	})
}

// TestCloseKeepsWhatIsTooMuchForTheMetadata: with many ranges the state stays in the cursor's ledger.
func TestCloseKeepsWhatIsTooMuchForTheMetadata(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{MaxUnackedRangesInMetadata: 3})
		n.mustOpen()
		n.add("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		synctest.Wait()
		all := n.results()
		for _, receipt := range []bool{true, false} {
			o := managedledger.CursorOptions{Name: fmt.Sprint("c", receipt), Durable: true, Initial: ledger.Earliest}
			c := n.mustCursor(o)
			ch := make(chan error, 2)
			on(n.sub, func() {
				done := func(err error) { ch <- err }
				if !receipt {
					done = nil
				}
				c.Delete([]ledger.Position{all[1].pos, all[3].pos, all[5].pos, all[7].pos}, done)
				c.Close(func(err error) { ch <- err })
			})
			mustBe(t, <-ch, nil)
			if receipt {
				mustBe(t, <-ch, nil)
			}
			synctest.Wait()
			if refs := w.cluster.Ledgers(); len(refs) < 2 {
				t.Errorf("ledgers %v", refs)
			}
			c = n.mustCursor(o)
			expect(t, "read", texts(n.readAll(c)), "0 2 4 6 8 9")
		}
	})
}

// TestNoLedgerTakesRecords: every record is refused for a while; the receipt comes when one is taken.
func TestNoLedgerTakesRecords(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(3, 50)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest})
		w.cluster.FailNext(bookietest.Append, 8, ledger.ErrReadOnly)
		var answered atomic.Int32
		on(n.sub, func() {
			c.MarkDelete(n.results()[1].pos, func(err error) {
				if err == nil {
					answered.Add(1)
				}
			})
		})
		pass(5 * time.Second)
		synctest.Wait()
		if answered.Load() != 1 {
			t.Error("no receipt")
		}
		if left := len(w.cluster.Ledgers()); left != 2 {
			t.Errorf("%d ledgers left", left)
		}
	})
}

func TestNonDurableCursorStoresNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(3, 50)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		commits, creates := w.cluster.Count(bookietest.Commit), w.cluster.Count(bookietest.Create)
		on(n.sub, func() {
			answered := 0
			receipt := func(err error) { mustBe(t, err, nil); answered++ }
			c.Delete([]ledger.Position{n.results()[2].pos}, receipt)
			c.MarkDelete(n.results()[0].pos, receipt)
			c.Seek(ledger.Earliest, receipt)
			c.Close(receipt)
			if answered != 4 {
				t.Errorf("%d answered", answered)
			}
			c.Close(func(err error) { mustBe(t, err, managedledger.ErrClosed) })
		})
		pass(time.Minute)
		synctest.Wait()
		if w.cluster.Count(bookietest.Commit) != commits || w.cluster.Count(bookietest.Create) != creates || len(n.names()) != 0 {
			t.Error("something was stored")
		}
	})
}

// TestNoWakeUpIsLost: readers park and are woken while entries are confirmed; a lost wake-up would leave one parked.
func TestNoWakeUpIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		const entries, readers = 1000, 4
		var total atomic.Int32
		pool := executor.NewPool(executor.Options{Name: "readers", Threads: readers})
		for i := range readers {
			o := managedledger.CursorOptions{Name: fmt.Sprint(i), Initial: ledger.Earliest, Executor: pool.Executors()[i]}
			on(n.exec, func() {
				n.ml.OpenCursor(o, func(c *managedledger.Cursor, err error) {
					next := 0
					var read func(es []ledger.Entry, err error)
					read = func(es []ledger.Entry, err error) {
						for _, e := range es {
							if string(e.Payload.Data) != fmt.Sprint(next) {
								t.Errorf("read %q, not %d", e.Payload.Data, next)
							}
							next++
							e.Payload.Release()
							total.Add(1)
						}
						c.Read(ledger.Limits{Entries: 10}, read)
					}
					read(nil, err)
				})
			})
		}
		for i := range entries {
			n.add(fmt.Sprint(i))
		}
		synctest.Wait()
		if got := total.Load(); got != entries*readers {
			t.Errorf("%d of %d were read", got, entries*readers)
		}
		pool.Close()
	})
}

// TestCursorOfANewerOwner: an owner that has not noticed yet that it is replaced does not get the cursor.
func TestCursorOfANewerOwner(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.node(1, managedledger.Options{}), w.node(2, managedledger.Options{})
		a.mustOpen()
		b.mustOpen()
		o := managedledger.CursorOptions{Name: "c", Durable: true, Initial: ledger.Earliest}
		b.mustCursor(o)
		_, err := a.cursor(o)
		mustBe(t, err, managedledger.ErrLost)
	})
}

// TestParkLooksTwice: an entry is confirmed after the read has found nothing and before it has parked. Nobody wakes it.
func TestParkLooksTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node(1, managedledger.Options{})
		n.mustOpen()
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest})
		n.add("a")
		synctest.Wait()
		on(n.sub, func() {
			if managedledger.ParkNow(c) {
				t.Error("parked beside an entry")
			}
		})
	})
}
