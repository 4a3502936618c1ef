package bookieclient

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

const testEpoch = ledger.Epoch(7)

// owner counts references, and poisons the memory when the last one is gone.
type owner struct {
	refs atomic.Int64
	all  *atomic.Int64
	data []byte
}

func (o *owner) Retain() { o.refs.Add(1) }
func (o *owner) Release() {
	switch n := o.refs.Add(-1); {
	case n == 0:
		for i := range o.data {
			o.data[i] = 0xdd
		}
		o.all.Add(-1)
	case n < 0:
		panic("released too often")
	}
}

// log is a Waiter that checks the promises made to it.
type waitLog struct {
	t       *testing.T
	cluster *fakeCluster
	mu      sync.Mutex
	last    map[ledger.ID]ledger.EntryID
	err     map[ledger.ID]error
	changed chan struct{}
}

func newWaitLog(t *testing.T, f *fakeCluster) *waitLog {
	return &waitLog{t: t, cluster: f, last: map[ledger.ID]ledger.EntryID{}, err: map[ledger.ID]error{}, changed: make(chan struct{}, 1)}
}

func (w *waitLog) Appended(ref ledger.Ref, last ledger.EntryID, err error) {
	if stored := w.cluster.state(ref).Last; last > stored {
		w.t.Errorf("%v: told %d, stored %d", ref, last, stored)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, ok := w.last[ref.ID]; ok && (last < old || last == old && err == nil) {
		w.t.Errorf("%v: told %d after %d", ref, last, old)
	}
	if w.err[ref.ID] != nil {
		w.t.Errorf("%v: told %d, %v after the end, %v", ref, last, err, w.err[ref.ID])
	}
	w.last[ref.ID], w.err[ref.ID] = last, err
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *waitLog) get(ref ledger.Ref) (ledger.EntryID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[ref.ID]; ok {
		return last, w.err[ref.ID]
	}
	return ledger.NoEntry, nil
}

// until waits for a condition on what was told.
func (w *waitLog) until(what string, cond func() bool) {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-w.changed:
		case <-deadline:
			w.t.Fatalf("%s: told %v, errors %v", what, w.last, w.err)
		}
	}
}

func (w *waitLog) awaitLast(ref ledger.Ref, last ledger.EntryID) {
	w.t.Helper()
	w.until(fmt.Sprintf("%v up to %d", ref, last), func() bool { got, err := w.get(ref); return got == last && err == nil })
}

func (w *waitLog) awaitError(ref ledger.Ref, want error) {
	w.t.Helper()
	w.until(fmt.Sprintf("%v: %v", ref, want), func() bool { _, err := w.get(ref); return errors.Is(err, want) })
}

// author writes one ledger and remembers what.
type author struct {
	ref     ledger.Ref
	entries [][]byte
	live    *atomic.Int64
}

func (a *author) append(c *Client, w ledger.Waiter, sizes ...int) {
	first := ledger.EntryID(len(a.entries))
	var payloads []ledger.Payload
	for i, size := range sizes {
		data := bytes.Repeat([]byte{byte(a.ref.ID), byte(len(a.entries)), byte(i)}, size/3+1)[:size]
		a.entries = append(a.entries, bytes.Clone(data))
		o := &owner{all: a.live, data: data}
		a.live.Add(1)
		o.Retain()
		payloads = append(payloads, ledger.Payload{Data: data, Owner: o})
	}
	c.Append(a.ref, testEpoch, first, payloads, w)
	for i := range payloads {
		payloads[i].Release() // the client has its own
		payloads[i] = ledger.Payload{}
	}
}

func (f *fakeCluster) author(ref ledger.Ref) *author {
	f.must(ref, ledger.Command{Op: ledger.OpCreate, Epoch: testEpoch})
	return &author{ref: ref, live: &atomic.Int64{}}
}

// check compares the machine's content with what was written.
func (f *fakeCluster) check(t *testing.T, a *author) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	got := f.groups[a.ref.Group].content[a.ref.ID]
	if len(got) != len(a.entries) {
		t.Fatalf("%v: %d entries stored, %d written", a.ref, len(got), len(a.entries))
	}
	for i := range got {
		if !bytes.Equal(got[i], a.entries[i]) {
			t.Fatalf("%v: entry %d differs", a.ref, i)
		}
	}
}

// awaitReleased waits until no payload is referred to. Some of the references may be the garbage collector's to find.
func (a *author) awaitReleased(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); a.live.Load() != 0; runtime.Gosched() {
		runtime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("%v: %d payloads never released", a.ref, a.live.Load())
		}
	}
}

// TestAckedPrefixIsWhatTheMachineHolds: whatever happens to streams, leaders and answers, every entry is stored once, in
// order, with its content, and nothing is told that is not stored.
func TestAckedPrefixIsWhatTheMachineHolds(t *testing.T) {
	t.Parallel()
	faults := []act{loseAck, breakOff, sayUnknown, applyUnknown, overload, moveLeader, hideLeader, late, swallow}
	for seed := range int64(4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			f := newFakeCluster(t, 3, 1, 2)
			var mu sync.Mutex
			rng := rand.New(rand.NewSource(seed))
			swallowed := 0
			f.setHooks(hooks{append: func(*fakeBookie, *fakeGroup, *ledger.Command) act {
				mu.Lock()
				defer mu.Unlock()
				if rng.Intn(10) > 0 {
					return doIt
				}
				what := faults[rng.Intn(len(faults))]
				if what == swallow {
					if swallowed++; swallowed > 2 { // each costs an AnswerTimeout
						return loseAck
					}
				}
				return what
			}})
			c := f.client(t, func(o *Options) {
				o.MaxBatchBytes = 700
				o.MaxMessagesInFlight = 3
				o.AnswerTimeout = 100 * time.Millisecond
			})
			w := newWaitLog(t, f)
			var authors []*author
			for i := range 6 {
				authors = append(authors, f.author(ledger.Ref{ID: ledger.ID(10 + i), Group: ledger.GroupID(1 + i%2)}))
			}
			sizes := rand.New(rand.NewSource(seed + 100))
			for range 80 {
				for _, a := range authors {
					batch := make([]int, 1+sizes.Intn(4))
					for i := range batch {
						batch[i] = sizes.Intn(200)
						if sizes.Intn(20) == 0 {
							batch[i] = bookiepb.RefThreshold + sizes.Intn(2000)
						}
					}
					a.append(c, w, batch...)
				}
				if sizes.Intn(4) == 0 {
					w.until("some progress", func() bool { last, _ := w.get(authors[0].ref); return int(last) >= len(authors[0].entries)/2-1 })
				}
			}
			for _, a := range authors {
				w.awaitLast(a.ref, ledger.EntryID(len(a.entries)-1))
				f.check(t, a)
			}
			f.setHooks(hooks{})
			for _, a := range authors {
				a.awaitReleased(t)
			}
		})
	}
}

// TestLedgerLost: each of the answers that end a ledger reaches the waiter once, after what was stored, and other
// ledgers go on.
func TestLedgerLost(t *testing.T) {
	for name, test := range map[string]struct {
		trouble func(*fakeCluster, ledger.Ref)
		want    error
	}{
		"fenced": {func(f *fakeCluster, r ledger.Ref) {
			f.must(r, ledger.Command{Op: ledger.OpFence, Epoch: testEpoch + 1})
		}, ledger.ErrFenced},
		"closed":  {func(f *fakeCluster, r ledger.Ref) { f.must(r, ledger.Command{Op: ledger.OpClose, Last: 2}) }, ledger.ErrClosed},
		"deleted": {func(f *fakeCluster, r ledger.Ref) { f.must(r, ledger.Command{Op: ledger.OpDelete}) }, ledger.ErrNoLedger},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t, 2, 1)
			c := f.client(t, nil)
			w := newWaitLog(t, f)
			a, b := f.author(ledger.Ref{ID: 1, Group: 1}), f.author(ledger.Ref{ID: 2, Group: 1})
			a.append(c, w, 10, 10, 10)
			w.awaitLast(a.ref, 2)
			test.trouble(f, a.ref)
			lw := &lossLog{lost: make(chan error, 4)}
			a.append(c, lw, 10, 5000)
			if err := <-lw.lost; !errors.Is(err, test.want) {
				t.Fatalf("err = %v", err)
			}
			b.append(c, w, 10)
			w.awaitLast(b.ref, 0)
			a.awaitReleased(t)
			if len(lw.lost) != 0 {
				t.Fatal("told twice")
			}
		})
	}
}

// lossLog collects errors only.
type lossLog struct{ lost chan error }

func (l *lossLog) Appended(_ ledger.Ref, _ ledger.EntryID, err error) {
	if err != nil {
		l.lost <- err
	}
}

// ignore is a Waiter that wants to know nothing.
type ignore struct{}

func (ignore) Appended(ledger.Ref, ledger.EntryID, error) {}

// TestNotNext: a first append that cannot be next is refused for good, after a few looks.
func TestNotNext(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, nil)
	w := newWaitLog(t, f)
	a := f.author(ledger.Ref{ID: 1, Group: 1})
	a.append(c, w, 1, 1)
	w.awaitLast(a.ref, 1)
	lw := &lossLog{lost: make(chan error, 4)}
	c.Append(a.ref, testEpoch, 5, []ledger.Payload{{Data: []byte("x")}}, lw)
	if err := <-lw.lost; !errors.Is(err, ledger.ErrNotNext) {
		t.Fatal(err)
	}
	c.Append(a.ref, testEpoch, 1, []ledger.Payload{{Data: []byte("x")}, {Data: []byte("y")}}, lw) // overlaps
	if err := <-lw.lost; !errors.Is(err, ledger.ErrNotNext) {
		t.Fatal(err)
	}
}

// TestBadRequestHitsOnlyItsLedger: a bookie that refuses a whole message for one command costs only that ledger.
func TestBadRequestHitsOnlyItsLedger(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, nil)
	w := newWaitLog(t, f)
	good, bad := f.author(ledger.Ref{ID: 1, Group: 1}), f.author(ledger.Ref{ID: 2, Group: 1})
	f.setHooks(hooks{append: func(_ *fakeBookie, _ *fakeGroup, cmd *ledger.Command) act {
		if cmd.Ledger == bad.ref.ID {
			return badRequest
		}
		return doIt
	}})
	f.setLeader(f.groups[1], -1) // let the commands gather into one message
	for range 20 {
		good.append(c, w, 10)
		bad.append(c, w, 10)
	}
	f.setLeader(f.groups[1], 0)
	w.awaitError(bad.ref, ledger.ErrBadCommand)
	w.awaitLast(good.ref, 19)
	f.check(t, good)
	bad.awaitReleased(t)
}

// TestAbandon: nothing is told afterwards, the payloads are free, the group goes on for others.
func TestAbandon(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, nil)
	w := newWaitLog(t, f)
	a, b := f.author(ledger.Ref{ID: 1, Group: 1}), f.author(ledger.Ref{ID: 2, Group: 1})
	held := make(chan struct{})
	f.setHooks(hooks{append: func(_ *fakeBookie, _ *fakeGroup, cmd *ledger.Command) act {
		if cmd.Ledger == a.ref.ID {
			<-held
		}
		return doIt
	}})
	for range 50 {
		a.append(c, w, 10, 6000)
	}
	c.Abandon(a.ref)
	close(held)
	b.append(c, w, 10, 10)
	w.awaitLast(b.ref, 1)
	if last, err := w.get(a.ref); last != ledger.NoEntry || err != nil {
		t.Fatalf("told %d, %v", last, err)
	}
	a.awaitReleased(t)
	c.Abandon(ledger.Ref{ID: 99, Group: 9}) // unknown: nothing happens
}

// TestAbandonWhileSending: payloads are poisoned when released, and the bookie checks every checksum, so a command whose
// payloads are given back while it is being encoded shows.
func TestAbandonWhileSending(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, func(o *Options) { o.MaxBatchBytes = 64 << 10 })
	steady := f.author(ledger.Ref{ID: 1, Group: 1})
	w := newWaitLog(t, f)
	var authors []*author
	for i := range 40 {
		a := f.author(ledger.Ref{ID: ledger.ID(100 + i), Group: 1})
		authors = append(authors, a)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range i {
				runtime.Gosched()
			}
			c.Abandon(a.ref)
		})
		for range 10 {
			a.append(c, ignore{}, 3000, 200, 5000, 4000) // from the abandoning on with a gap
			steady.append(c, w, 50)
		}
		wg.Wait()
		c.Abandon(a.ref)
	}
	w.awaitLast(steady.ref, ledger.EntryID(len(steady.entries)-1))
	f.check(t, steady)
	for _, a := range authors {
		a.awaitReleased(t)
	}
}

// TestShutdownEndsAppends: what is not answered ends with ErrShutdown, once for each ledger, and so do later appends.
func TestShutdownEndsAppends(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, nil)
	w := newWaitLog(t, f)
	a, b := f.author(ledger.Ref{ID: 1, Group: 1}), f.author(ledger.Ref{ID: 2, Group: 1})
	a.append(c, w, 1)
	w.awaitLast(a.ref, 0)
	f.setLeader(f.groups[1], -1)
	for range 10 {
		a.append(c, w, 10)
		b.append(c, w, 10)
	}
	c.Shutdown()
	w.awaitError(a.ref, ledger.ErrShutdown)
	w.awaitError(b.ref, ledger.ErrShutdown)
	if last, _ := w.get(a.ref); last != 0 {
		t.Fatalf("told %d", last)
	}
	lw := &lossLog{lost: make(chan error, 1)}
	c.Append(a.ref, testEpoch, 5, []ledger.Payload{{Data: []byte("x")}}, lw)
	if err := <-lw.lost; !errors.Is(err, ledger.ErrShutdown) {
		t.Fatal(err)
	}
	a.awaitReleased(t)
	b.awaitReleased(t)
}

// TestBookieRestarts: a leader that is gone and comes back is found again.
func TestBookieRestarts(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, nil)
	w := newWaitLog(t, f)
	a := f.author(ledger.Ref{ID: 1, Group: 1})
	for i := range 3 {
		a.append(c, w, 10, 5000)
		w.awaitLast(a.ref, ledger.EntryID(4*i+1))
		f.bookies[0].stop()
		a.append(c, w, 10, 5000)
		f.bookies[0].start()
		w.awaitLast(a.ref, ledger.EntryID(4*i+3))
	}
	f.check(t, a)
	a.awaitReleased(t)
}

// BenchmarkAppend is the client's own cost: 128-byte entries of 100 ledgers over an in-memory network and a fake that
// only walks the commands.
func BenchmarkAppend(b *testing.B) {
	t := &testing.T{}
	f := newFakeCluster(t, 1, 1)
	f.bookies[0].stop()
	srv := &countingBookie{}
	l := bufconnListen()
	f.bookies[0].listener.Store(l)
	f.bookies[0].server = newServer(srv)
	f.bookies[0].down.Store(false)
	go f.bookies[0].server.Serve(l)
	defer f.bookies[0].stop()
	c := f.client(t, func(o *Options) { o.AnswerTimeout = 10 * time.Second })
	defer c.Shutdown()
	const ledgers = 100
	w := &counter{want: int64(b.N), done: make(chan struct{})}
	payload := []ledger.Payload{{Data: make([]byte, 128)}}
	next := [ledgers]ledger.EntryID{}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		l := i % ledgers
		c.Append(ledger.Ref{ID: ledger.ID(l), Group: 1}, 1, next[l], payload, w)
		next[l]++
		for i%64 == 0 && int64(i)-w.told.Load() > 20000 {
			runtime.Gosched()
		}
	}
	<-w.done
}
