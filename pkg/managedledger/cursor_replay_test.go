package managedledger_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// replays has a cursor, and counts what its ReadAts cost.
type replays struct {
	*node
	c   *managedledger.Cursor
	all []done
}

func (n *node) replays() *replays {
	pass(5 * time.Second) // out of the cache
	return &replays{n, n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest}), n.results()}
}

// every returns the entries from one on, each so many behind the one before.
func (r *replays) every(first, step int) (ds []done) {
	for i := first; i < len(r.all); i += step {
		ds = append(ds, r.all[i])
	}
	return ds
}

// read returns what a ReadAt gives.
func (r *replays) read(asked []done) (got []done) {
	r.w.t.Helper()
	ps := make([]ledger.Position, len(asked))
	for i, d := range asked {
		ps[i] = d.pos
	}
	on(r.sub, func() {
		r.c.ReadAt(ps, func(es []ledger.Entry, err error) {
			mustBe(r.w.t, err, nil)
			for _, e := range es {
				got = append(got, done{e.Position, string(e.Payload.Data)})
				e.Payload.Release()
			}
		})
	})
	synctest.Wait()
	return got
}

// cost reads entries, all of which must come, and returns the number of reads of the bookies.
func (r *replays) cost(asked []done) int {
	r.w.t.Helper()
	was := r.w.cluster.Count(bookietest.Read)
	expect(r.w.t, "replay", texts(r.read(asked)), texts(asked))
	return r.w.cluster.Count(bookietest.Read) - was
}

// TestReplayGoesOverSmallGaps: what consumers of a subscription left behind is mixed, and each asks for its own. One read
// brings what is asked for, and what the others will ask for.
func TestReplayGoesOverSmallGaps(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.filled(1000, 5000).replays()
		if reads := r.cost(r.every(0, 111)); reads != 1 { // from the first entry to the last
			t.Errorf("%d reads of entries near each other", reads)
		}
		for i := range 20 {
			if reads := r.cost(r.every(i, 20)); reads != 0 {
				t.Errorf("%d reads of what had been read before", reads)
			}
		}
	})
}

func TestReplayDoesNotReadLargeGaps(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.filled(1000, 5000).replays()
		want := r.every(0, 300)
		if reads := r.cost(want); reads != len(want) {
			t.Errorf("%d reads for %d entries far from each other", reads, len(want))
		}
		if n := r.cache.Entries(); n != 0 {
			t.Errorf("%d entries in the cache that nobody else wants", n)
		}
	})
}

// TestReplayReadsFewBytesInVain: between large entries what was not asked for costs more than a request.
func TestReplayReadsFewBytesInVain(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(0, 5000)
		const size = 100 << 10
		for range 60 {
			n.add(strings.Repeat("x", size))
		}
		synctest.Wait()
		r := n.replays()
		r.cost(r.every(0, 20))
		if got, most := r.cache.Bytes(), int64(3*3*size); got > most {
			t.Errorf("%d bytes were read for three entries of %d", got, size)
		}
	})
}

// TestReplayGapsEndAtLedgers: positions of several ledgers, deleted ones and positions out of order.
func TestReplayGapsEndAtLedgers(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.filled(100, 30).replays()
		on(r.sub, func() { r.c.Delete([]ledger.Position{r.all[0].pos, r.all[10].pos, r.all[20].pos}, nil) })
		ps := r.every(0, 5)
		want := ps[:0:0]
		for i, d := range ps {
			if i != 0 && i != 2 && i != 4 {
				want = append(want, d)
			}
		}
		expect(t, "without deleted ones", texts(r.read(ps)), texts(want))
		if reads := w.cluster.Count(bookietest.Read); reads != 4 {
			t.Errorf("%d reads of four ledgers", reads)
		}
		pass(5 * time.Second)
		r.cost([]done{r.all[5], r.all[36]}) // neighbours by number alone
		if n := r.cache.Entries(); n != 0 {
			t.Errorf("%d entries in the cache that nobody asked for", n)
		}
		mixed := []done{r.all[40], r.all[33], r.all[50], r.all[33]}
		expect(t, "out of order", texts(r.read(mixed)), texts(mixed))
	})
}

// TestReaderThatFallsBehindStaysInTheCache: a cursor that reads finds what was added meanwhile in the cache after several
// times its time, and so does one that comes to entries once more, if it has said so. For one that has stopped reading
// nothing is kept.
func TestReaderThatFallsBehindStaysInTheCache(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(10, 5000)
		r := &replays{n, n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Latest}), nil}
		read := func(what string, entries int, want string, fromBookies int) {
			t.Helper()
			was := w.cluster.Count(bookietest.Read)
			got, err := n.read(r.c, entries)
			mustBe(t, err, nil)
			expect(t, what, texts(got), want)
			if n := w.cluster.Count(bookietest.Read) - was; n != fromBookies {
				t.Errorf("%s: %d reads of the bookies", what, n)
			}
			r.all = append(r.all, got...)
		}
		read("waits", 1, "", 0)
		n.add("a", "b", "c")
		synctest.Wait()
		read("at once", 1, "a", 0)
		pass(2100 * time.Millisecond)
		read("later", 5, "b c", 0)
		on(n.sub, func() { r.c.WillReadAt([]ledger.Position{r.all[0].pos, r.all[1].pos, r.all[2].pos}) })
		pass(2100 * time.Millisecond)
		if reads := r.cost(r.all); reads != 0 {
			t.Errorf("%d reads of the bookies for what was to be read again", reads)
		}
		pass(2100 * time.Millisecond)
		if reads := r.cost(r.all); reads != 1 {
			t.Errorf("%d reads of the bookies for what was not", reads)
		}
		pass(10 * time.Second)
		n.add("d")
		pass(3 * time.Second)
		read("after a long time", 5, "d", 1)
	})
}
