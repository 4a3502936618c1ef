package bookie

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.opentelemetry.io/otel/metric/noop"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// fakeRaft answers proposals when the test says so.
type fakeRaft struct {
	mu     sync.Mutex
	leader bool
	all    []*fakeFuture
}

type fakeFuture struct {
	data     string
	answered chan struct{}
	err      error
	resp     any
}

func (f *fakeFuture) Error() error  { <-f.answered; return f.err }
func (f *fakeFuture) Response() any { return f.resp }
func (f *fakeFuture) Index() uint64 { return 0 }
func (f *fakeFuture) answer(n int, err error) {
	if err == nil {
		f.resp = make([]ledger.Result, n)
	}
	f.err = err
	close(f.answered)
}

func (r *fakeRaft) apply(b []byte, _ time.Duration) raft.ApplyFuture {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &fakeFuture{data: string(b), answered: make(chan struct{})}
	r.all = append(r.all, f)
	return f
}

func (r *fakeRaft) leads() bool { return r.leader }

func (r *fakeRaft) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, f := range r.all {
		out = append(out, f.data)
	}
	return out
}

func startProposer(t *testing.T, change func(*Options)) (*proposer, *fakeRaft, func(string) *outcomeLog) {
	t.Helper()
	o := &Options{MaxProposalBytes: 10, MaxInFlight: 2, MaxQueueBytes: 20, QueueTimeout: time.Second, ApplyTimeout: 10 * time.Second}
	if change != nil {
		change(o)
	}
	m, err := newMetrics(noop.NewMeterProvider())
	if err != nil {
		t.Fatal(err)
	}
	r := &fakeRaft{leader: true}
	p := newProposer(o, m)
	p.start(r.apply, r.leads)
	log := &outcomeLog{}
	return p, r, func(data string) *outcomeLog {
		s := &submission{data: []byte(data), count: 1}
		s.done = func(_ []ledger.Result, err error) { log.add(data, err) }
		if err := p.submit(context.Background(), s); err != nil {
			log.add(data, fmt.Errorf("refused: %w", err))
		}
		return log
	}
}

type outcomeLog struct {
	mu    sync.Mutex
	lines []string
	errs  []error
}

func (l *outcomeLog) add(data string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.errs = append(l.lines, data), append(l.errs, err)
}

func (l *outcomeLog) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func wantSlice(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

// A disk that gets full while entries wait to be proposed: they are refused in their turn, and what takes no lasting space
// goes on.
func TestProposerRefusesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, submit := startProposer(t, func(o *Options) { o.MaxQueueBytes = 1000 })
		defer p.close()
		var full atomic.Bool
		p.refuses = full.Load
		entry := string(testAppend(7, 1, 0, "x"))
		remove := string((&ledger.Command{Op: ledger.OpDelete, Ledger: 7}).AppendTo(nil))
		for range 3 {
			submit(entry)
			synctest.Wait()
		}
		log := submit(remove)
		full.Store(true)
		first, second := r.all[0], r.all[1]
		first.answer(1, nil)
		second.answer(1, nil)
		synctest.Wait()
		wantSlice(t, "proposed", r.seen(), entry, entry, remove)
		r.all[2].answer(1, nil)
		synctest.Wait()
		wantSlice(t, "answers", log.order(), entry, entry, entry, remove)
		if got := fmt.Sprint(log.errs); got != fmt.Sprint([]error{nil, nil, ledger.ErrReadOnly, nil}) {
			t.Error(got)
		}
	})
}

// An idle group proposes one append at once; what comes while all slots are in use goes out together.
func TestProposerGathersWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, submit := startProposer(t, nil)
		defer p.close()
		submit("a")
		synctest.Wait()
		wantSlice(t, "proposed when idle", r.seen(), "a")
		submit("b")
		synctest.Wait()
		for _, s := range []string{"c", "d", "e", "0123456789", "f"} {
			submit(s)
		}
		synctest.Wait()
		wantSlice(t, "slots in use", r.seen(), "a", "b")
		r.all[0].answer(1, nil)
		synctest.Wait()
		wantSlice(t, "one slot free", r.seen(), "a", "b", "cde")
		r.all[1].answer(1, nil)
		synctest.Wait()
		r.all[2].answer(3, nil)
		synctest.Wait()
		wantSlice(t, "size limit", r.seen(), "a", "b", "cde", "0123456789", "f")
		r.all[3].answer(1, nil)
		r.all[4].answer(1, nil)
		synctest.Wait()
		log := submit("z")
		wantSlice(t, "answers", log.order(), "a", "b", "c", "d", "e", "0123456789", "f")
		synctest.Wait()
		r.all[5].answer(1, nil)
		synctest.Wait()
		if n := p.pending(); n != 0 {
			t.Errorf("%d pending", n)
		}
	})
}

// Results come in the order of the log even when the library answers in another one.
func TestProposerAnswersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, submit := startProposer(t, nil)
		defer p.close()
		submit("a")
		synctest.Wait()
		log := submit("b")
		synctest.Wait()
		r.all[1].answer(1, nil)
		synctest.Wait()
		wantSlice(t, "too early", log.order())
		r.all[0].answer(1, nil)
		synctest.Wait()
		wantSlice(t, "answers", log.order(), "a", "b")
	})
}

// Only what surely was not proposed is refused. The rest is unknown: lost leadership, errors of the store, silence.
func TestProposerOutcomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{
		{raft.ErrNotLeader, ledger.ErrNotLeader},
		{fmt.Errorf("%w: of a leader", journal.ErrNoSpace), ledger.ErrReadOnly},
		{raft.ErrLeadershipTransferInProgress, ledger.ErrNotLeader},
		{raft.ErrEnqueueTimeout, ledger.ErrOverloaded},
		{raft.ErrLeadershipLost, ledger.ErrUnknown},
		{raft.ErrRaftShutdown, ledger.ErrUnknown},
		{errors.New("disk on fire"), ledger.ErrUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, r, submit := startProposer(t, nil)
			defer p.close()
			log := submit("a")
			synctest.Wait()
			r.all[0].answer(0, c.err)
			synctest.Wait()
			if !errors.Is(log.errs[0], c.want) {
				t.Errorf("%v became %v, want %v", c.err, log.errs[0], c.want)
			}
		})
	}
}

func TestProposerDeadlineIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, submit := startProposer(t, nil)
		log := submit("a")
		<-time.After(11 * time.Second)
		synctest.Wait()
		if len(log.errs) != 1 || !errors.Is(log.errs[0], ledger.ErrUnknown) {
			t.Errorf("after the deadline: %v", log.errs)
		}
		r.all[0].answer(1, nil) // too late: nobody is told twice
		p.close()
		synctest.Wait()
		if len(log.errs) != 1 {
			t.Errorf("answered again: %v", log.errs)
		}
	})
}

// A full queue holds a stream back, then refuses; room lets it go on.
func TestProposerQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, submit := startProposer(t, nil)
		defer p.close()
		submit("a")
		synctest.Wait()
		submit("b")
		synctest.Wait()
		submit("0123456789")
		log := submit("9876543210")
		began := time.Now()
		submit("over")
		if d := time.Since(began); d != time.Second || !errors.Is(log.errs[0], ledger.ErrOverloaded) {
			t.Errorf("a full queue refused with %v after %s", log.errs, d)
		}
		go func() {
			<-time.After(500 * time.Millisecond)
			r.all[0].answer(1, nil)
		}()
		began = time.Now()
		submit("later")
		if d := time.Since(began); d != 500*time.Millisecond {
			t.Errorf("room was seen after %s", d)
		}
		for range 5 {
			synctest.Wait()
			for _, f := range r.all {
				if f.resp == nil {
					f.answer(2, nil)
				}
			}
		}
		synctest.Wait()
	})
}

func TestProposerCloseAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r, submit := startProposer(t, nil)
		submit("a")
		synctest.Wait()
		submit("b")
		synctest.Wait()
		log := submit("c")
		p.close()
		if len(log.errs) != 3 || !errors.Is(log.errs[0], ledger.ErrUnknown) || !errors.Is(log.errs[1], ledger.ErrUnknown) ||
			!errors.Is(log.errs[2], ledger.ErrShutdown) {
			t.Errorf("outcomes %v", log.errs)
		}
		submit("d")
		if !errors.Is(log.errs[3], ledger.ErrShutdown) {
			t.Errorf("after close: %v", log.errs[3])
		}
		for _, f := range r.all {
			f.answer(1, nil)
		}
	})
}

func TestSplit(t *testing.T) {
	o := &Options{MaxProposalBytes: 4096, MaxCommandBytes: 8192}
	cmd := func(n int) []byte {
		return testAppend(1, 1, 0, string(make([]byte, n)))
	}
	var req []byte
	for _, n := range []int{100, 100, 5000, 100, 3000, 1500} {
		req = append(req, cmd(n)...)
	}
	pieces, err := split(req, o)
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	var whole []byte
	for _, p := range pieces {
		counts = append(counts, p.sub.count)
		whole = append(whole, p.sub.data...)
	}
	if fmt.Sprint(counts) != "[2 1 2 1]" || string(whole) != string(req) {
		t.Errorf("pieces of %v commands", counts)
	}
	for name, b := range map[string][]byte{
		"too large": cmd(9000),
		"cut":       cmd(100)[:60],
		"bad crc":   func() []byte { b := cmd(100); b[len(b)-1]++; return b }(),
		"garbage":   []byte("GET / HTTP/1.1 and so on for a while"),
	} {
		if _, err := split(b, o); !errors.Is(err, ledger.ErrBadCommand) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testAppend encodes an append command.
func testAppend(id ledger.ID, epoch ledger.Epoch, first ledger.EntryID, payloads ...string) []byte {
	c := ledger.Command{Op: ledger.OpAppend, Ledger: id, Epoch: epoch, First: first, Count: len(payloads)}
	for _, p := range payloads {
		c.Body = ledger.AppendEntry(c.Body, []byte(p))
	}
	return c.AppendTo(nil)
}
