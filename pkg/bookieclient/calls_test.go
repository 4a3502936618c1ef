package bookieclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// The seams that the client is made for.
var (
	_ managedledger.Bookies = (*Client)(nil)
	_ managedledger.Store   = (*Client)(nil)
)

// wait turns a callback into a result, and sees that it does not come from inside the call.
type wait[T any] struct {
	ch     chan T
	errs   chan error
	inside atomic.Bool
}

func await[T any](t *testing.T, call func(done func(T, error))) (T, error) {
	t.Helper()
	w := &wait[T]{ch: make(chan T, 2), errs: make(chan error, 2)}
	w.inside.Store(true)
	returned := make(chan struct{})
	call(func(v T, err error) {
		<-returned // would hang if it came inline
		w.ch <- v
		w.errs <- err
	})
	close(returned)
	select {
	case v := <-w.ch:
		return v, <-w.errs
	case <-time.After(60 * time.Second):
		t.Fatal("no callback")
		panic("unreachable")
	}
}

func awaitErr(t *testing.T, call func(done func(error))) error {
	t.Helper()
	_, err := await(t, func(done func(struct{}, error)) { call(func(err error) { done(struct{}{}, err) }) })
	return err
}

func create(t *testing.T, c *Client, avoid ledger.GroupID) ledger.Ref {
	t.Helper()
	ref, err := await(t, func(done func(ledger.Ref, error)) { c.Create(testEpoch, avoid, done) })
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// ready waits until the client knows a ready leader of every group.
func ready(t *testing.T, c *Client, groups int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		v, n := c.topology.current(), 0
		for _, id := range v.ids {
			if !v.groups[id].ready.IsZero() {
				n++
			}
		}
		if n == groups {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d groups ready", n)
		}
		<-time.After(time.Millisecond)
	}
}

func TestCreateSpreadsAndAvoids(t *testing.T) {
	f := newFakeCluster(t, 3, 1, 2, 3)
	c := f.client(t, nil)
	ready(t, c, 3)
	count := map[ledger.GroupID]int{}
	last := ledger.ID(0)
	for range 9 {
		ref := create(t, c, 0)
		if ref.ID <= last {
			t.Fatalf("id %d after %d", ref.ID, last)
		}
		last = ref.ID
		count[ref.Group]++
		if st := f.state(ref); st.Owner != testEpoch {
			t.Fatalf("%v: %+v", ref, st)
		}
	}
	for g, n := range count {
		if n != 3 {
			t.Errorf("group %d holds %d of 9", g, n)
		}
	}
	for range 6 {
		if ref := create(t, c, 2); ref.Group == 2 {
			t.Fatal("group 2 was to be avoided")
		}
	}
}

func TestCreateSkipsUnhealthyGroups(t *testing.T) {
	f := newFakeCluster(t, 3, 1, 2)
	c := f.client(t, nil)
	ready(t, c, 2)
	// Appends to group 1 stand still, though its leader still says that it is well.
	w := newWaitLog(t, f)
	a := f.author(ledger.Ref{ID: 1000, Group: 1})
	f.setHooks(hooks{append: func(*fakeBookie, *fakeGroup, *ledger.Command) act { return swallow }})
	a.append(c, w, 10)
	for !c.streams.get(1).troubled(time.Now(), time.Now()) {
		<-time.After(5 * time.Millisecond)
	}
	for range 4 {
		if ref := create(t, c, 0); ref.Group != 2 {
			t.Fatalf("%v", ref)
		}
	}
	if ref := create(t, c, 2); ref.Group != 2 {
		t.Fatalf("%v: a healthy group that is to be avoided is better than a broken one", ref)
	}
	c.Abandon(a.ref)
}

// TestCreateOnOtherGroupAfterTrouble: an unanswered create is left behind under its id, and taken away later.
func TestCreateOnOtherGroupAfterTrouble(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2, 1, 2)
	c := f.client(t, nil)
	ready(t, c, 2)
	var mu sync.Mutex
	tried := map[ledger.ID]int{}
	f.setHooks(hooks{execute: func(b *fakeBookie, cmd *ledger.Command) act {
		mu.Lock()
		defer mu.Unlock()
		if cmd.Op == ledger.OpCreate && b.index == 0 {
			tried[cmd.Ledger]++
			f.apply(f.groups[1], cmd)
			return swallow
		}
		return doIt
	}})
	for range 2 {
		if ref := create(t, c, 0); ref.Group != 2 {
			t.Fatalf("%v", ref)
		}
	}
	f.setHooks(hooks{})
	for deadline := time.Now().Add(5 * time.Second); ; <-time.After(5 * time.Millisecond) {
		f.mu.Lock()
		left := f.groups[1].machine.Len()
		f.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d ledgers left behind", left)
		}
	}
	if len(tried) == 0 {
		t.Fatal("group 1 was never tried")
	}
}

// A group that takes nothing is left at once for the next one, and with the id, because nothing was done.
func TestCreateLeavesFullGroups(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2, 1, 2)
	c := f.client(t, nil)
	ready(t, c, 2)
	var mu sync.Mutex
	tried := map[ledger.ID]int{}
	f.setHooks(hooks{execute: func(b *fakeBookie, cmd *ledger.Command) act {
		if cmd.Op == ledger.OpCreate && b.index == 0 {
			mu.Lock()
			defer mu.Unlock()
			tried[cmd.Ledger]++
			return readOnly
		}
		return doIt
	}})
	first := create(t, c, 0)
	second := create(t, c, 0)
	if first.Group != 2 || second.Group != 2 || second.ID != first.ID+1 {
		t.Errorf("%v, %v", first, second)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(tried) == 0 || tried[first.ID] > 1 || tried[second.ID] > 1 {
		t.Errorf("group 1 was tried so often: %v", tried)
	}
}

// When all groups take nothing, that is the reason, though the last attempt of many has been cut short.
func TestCreateOnFullDisksSaysSo(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2, 1, 2)
	c := f.client(t, func(o *Options) { o.CallTimeout, o.TryTimeout = 300*time.Millisecond, time.Minute })
	ready(t, c, 2)
	var n atomic.Int64
	f.setHooks(hooks{execute: func(_ *fakeBookie, cmd *ledger.Command) act {
		if cmd.Op == ledger.OpCreate && n.Add(1) > 3 {
			return swallow
		}
		return readOnly
	}})
	_, err := await(t, func(done func(ledger.Ref, error)) { c.Create(1, 0, done) })
	if !errors.Is(err, ledger.ErrNoBookies) || !errors.Is(err, ledger.ErrReadOnly) || errors.Is(err, ledger.ErrUnknown) {
		t.Errorf("%v after %d attempts", err, n.Load())
	}
}

func TestCreateWithoutBookies(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	f.bookies[0].stop()
	c := f.client(t, func(o *Options) { o.CallTimeout = 200 * time.Millisecond })
	if _, err := await(t, func(done func(ledger.Ref, error)) { c.Create(1, 0, done) }); err == nil {
		t.Fatal("created without bookies")
	}
	f.bookies[0].start()
	if _, err := await(t, func(done func(ledger.Ref, error)) { c.Create(1, 0, done) }); !errors.Is(err, ledger.ErrNoBookies) {
		t.Fatalf("err = %v", err)
	}
}

// TestCallsFollowTheLeader: fence, close and delete succeed over lost answers and changes of the leader.
func TestCallsFollowTheLeader(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 3, 1)
	c := f.client(t, nil)
	a := f.author(ledger.Ref{ID: 5, Group: 1})
	w := newWaitLog(t, f)
	a.append(c, w, 1, 1, 1)
	w.awaitLast(a.ref, 2)
	var n atomic.Int64
	f.setHooks(hooks{execute: func(b *fakeBookie, _ *ledger.Command) act {
		f.setLeader(f.groups[1], (b.index+1)%3)
		return []act{breakOff, loseAck, sayUnknown, overload, doIt}[n.Add(1)%5]
	}})
	last, err := await(t, func(done func(ledger.EntryID, error)) { c.Fence(a.ref, testEpoch+1, done) })
	if err != nil || last != 2 {
		t.Fatal(last, err)
	}
	if _, err := await(t, func(done func(ledger.EntryID, error)) { c.Fence(a.ref, testEpoch, done) }); !errors.Is(err, ledger.ErrFenced) {
		t.Fatal(err)
	}
	if err := awaitErr(t, func(done func(error)) { c.Close(a.ref, 1, done) }); err != nil {
		t.Fatal(err)
	}
	if st := f.state(a.ref); !st.Closed || st.Last != 1 {
		t.Fatalf("%+v", st)
	}
	if err := awaitErr(t, func(done func(error)) { c.Close(a.ref, 0, done) }); !errors.Is(err, ledger.ErrClosed) {
		t.Fatal(err)
	}
	for range 2 {
		if err := awaitErr(t, func(done func(error)) { c.Delete(a.ref, done) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := await(t, func(done func(ledger.EntryID, error)) { c.Fence(a.ref, testEpoch, done) }); !errors.Is(err, ledger.ErrNoLedger) {
		t.Fatal(err)
	}
}

// TestUnansweredCallIsUnknown: a call that may have been carried out says so; one that certainly was not says why.
func TestUnansweredCallIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, func(o *Options) { o.CallTimeout = 200 * time.Millisecond })
	a := f.author(ledger.Ref{ID: 5, Group: 1})
	fence := func() error {
		_, err := await(t, func(done func(ledger.EntryID, error)) { c.Fence(a.ref, testEpoch+1, done) })
		return err
	}
	for tries := 0; ; tries++ { // the connection is up before calls have so little time
		if err := fence(); err == nil {
			break
		} else if tries == 100 {
			t.Fatal(err)
		}
	}
	f.setHooks(hooks{execute: func(*fakeBookie, *ledger.Command) act { return loseAck }})
	if err := fence(); !errors.Is(err, ledger.ErrUnknown) {
		t.Fatal(err)
	}
	certain := func(want error) {
		t.Helper()
		for range 10 { // the last try may have been under way when the time was up, which is unknown again
			if err := fence(); !errors.Is(err, ledger.ErrUnknown) {
				if !errors.Is(err, want) {
					t.Fatal(err)
				}
				return
			}
		}
		t.Fatal("always unknown")
	}
	f.setHooks(hooks{execute: func(*fakeBookie, *ledger.Command) act { return overload }})
	certain(ledger.ErrOverloaded)
	f.setLeader(f.groups[1], -1)
	certain(ledger.ErrNotLeader)
}

// TestCallbacksAfterShutdown: everything under way, and everything later, ends with ErrShutdown.
func TestCallbacksAfterShutdown(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	c := f.client(t, nil)
	f.setLeader(f.groups[1], -1)
	errs := make(chan error, 10)
	calls := func() {
		ref := ledger.Ref{ID: 1, Group: 1}
		c.Close(ref, 0, func(err error) { errs <- err })
		c.Delete(ref, func(err error) { errs <- err })
		c.Fence(ref, 1, func(_ ledger.EntryID, err error) { errs <- err })
	}
	calls()
	c.Shutdown()
	calls()
	c.Get("/x", func(_ metadata.Item, err error) { errs <- err })
	c.Read(ledger.Ref{ID: 1, Group: 1}, 0, 0, ledger.Limits{}, func(_ []ledger.Entry, err error) { errs <- err })
	for range 8 {
		if err := <-errs; !errors.Is(err, ledger.ErrShutdown) {
			t.Fatal(err)
		}
	}
	c.Shutdown() // again: nothing
}

func (f *fakeCluster) readable(t *testing.T, c *Client, entries int) *author {
	t.Helper()
	a := f.author(ledger.Ref{ID: 6, Group: 1})
	w := newWaitLog(t, f)
	for i := range entries {
		a.append(c, w, 10+i)
	}
	w.awaitLast(a.ref, ledger.EntryID(entries-1))
	return a
}

func read(t *testing.T, c *Client, ref ledger.Ref, first, confirmed ledger.EntryID, max ledger.Limits) ([]ledger.Entry, error) {
	return await(t, func(done func([]ledger.Entry, error)) { c.Read(ref, first, confirmed, max, done) })
}

func TestRead(t *testing.T) {
	f := newFakeCluster(t, 3, 1)
	c := f.client(t, func(o *Options) { o.CallTimeout = time.Second })
	ready(t, c, 1)
	a := f.readable(t, c, 20)
	for _, test := range []struct {
		first, confirmed ledger.EntryID
		max              ledger.Limits
		want             int
	}{
		{0, 19, ledger.Limits{Entries: 100, Bytes: 1 << 20}, 20},
		{5, 19, ledger.Limits{Entries: 4, Bytes: 1 << 20}, 4},
		{5, 6, ledger.Limits{Entries: 4, Bytes: 1 << 20}, 2},
		{5, 19, ledger.Limits{Entries: 4, Bytes: 1}, 1},
		{19, 19, ledger.Limits{}, 1},
	} {
		entries, err := read(t, c, a.ref, test.first, test.confirmed, test.max)
		if err != nil || len(entries) != test.want {
			t.Fatalf("%+v: %d entries, %v", test, len(entries), err)
		}
		for i, e := range entries {
			id := test.first + ledger.EntryID(i)
			if e.Position != (ledger.Position{Ledger: a.ref.ID, Entry: id}) || string(e.Payload.Data) != string(a.entries[id]) {
				t.Fatalf("entry %d is %v", id, e.Position)
			}
			e.Payload.Release()
		}
	}
	if _, err := read(t, c, a.ref, 3, 2, ledger.Limits{}); !errors.Is(err, ledger.ErrBadCommand) {
		t.Fatal(err)
	}
}

// TestReadAsksOtherReplicas: whatever two of three replicas say, the third one's entries are the answer; only what two
// replicas prove absent is absent.
func TestReadAsksOtherReplicas(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 3, 1)
	c := f.client(t, func(o *Options) { o.CallTimeout = 500 * time.Millisecond })
	ready(t, c, 1)
	a := f.readable(t, c, 3)
	all := func(code bookiepb.Code, good int) {
		f.setHooks(hooks{read: func(b *fakeBookie, _ *bookiepb.ReadRequest) bookiepb.Code {
			if b.index == good {
				return bookiepb.Code_OK
			}
			return code
		}})
	}
	for code, want := range map[bookiepb.Code]error{
		bookiepb.Code_BEHIND: ledger.ErrUnknown, bookiepb.Code_UNREADABLE: ledger.ErrUnreadable,
		bookiepb.Code_UNKNOWN: ledger.ErrUnknown, bookiepb.Code_NO_GROUP: ledger.ErrUnknown,
		bookiepb.Code_READ_ONLY: ledger.ErrUnreadable, // damage on the way
		bookiepb.Code_NO_ENTRY:  ledger.ErrNoEntry, bookiepb.Code_NO_LEDGER: ledger.ErrNoLedger,
	} {
		for good := range 3 {
			all(code, good)
			entries, err := read(t, c, a.ref, 0, 2, ledger.Limits{Entries: 3, Bytes: 100})
			if proof := want == ledger.ErrNoEntry || want == ledger.ErrNoLedger; proof && err != nil {
				if !errors.Is(err, want) {
					t.Fatalf("%v: %v", code, err)
				}
				continue // two have said so before the good one was asked
			}
			if err != nil || len(entries) != 3 {
				t.Fatalf("%v, bookie %d is good: %d entries, %v", code, good, len(entries), err)
			}
		}
		all(code, -1)
		if _, err := read(t, c, a.ref, 0, 2, ledger.Limits{}); !errors.Is(err, want) {
			t.Fatalf("%v everywhere: %v", code, err)
		}
	}
	f.setHooks(hooks{read: func(b *fakeBookie, _ *bookiepb.ReadRequest) bookiepb.Code {
		if b.index == 1 {
			return bookiepb.Code_NO_ENTRY
		}
		return bookiepb.Code_BEHIND
	}})
	if _, err := read(t, c, a.ref, 0, 2, ledger.Limits{}); !errors.Is(err, ledger.ErrUnknown) {
		t.Fatalf("one replica alone proved absence: %v", err)
	}
}

func TestStore(t *testing.T) {
	f := newFakeCluster(t, 3, ledger.MetadataGroup)
	f.setLeader(f.groups[0], 2) // found by hints from the only seed
	c := f.client(t, nil)
	ctx := context.Background()
	if it, err := c.GetSync(ctx, "/a/0"); err != nil || it.Version != 0 || it.Key != "/a/0" {
		t.Fatal(it, err)
	}
	for i := range 10 {
		out, err := await(t, func(done func(metadata.Outcome, error)) {
			c.Commit(metadata.Txn{}.Then(metadata.Put(fmt.Sprint("/a/", i), []byte{byte(i)})), done)
		})
		if err != nil || out.Err != nil || len(out.Versions) != 1 {
			t.Fatal(out, err)
		}
	}
	f.setLeader(f.groups[0], 1)
	items, err := await(t, func(done func([]metadata.Item, error)) { c.List("/a/", done) })
	if err != nil || len(items) != 10 || items[9].Key != "/a/9" || items[9].Value[0] != 9 {
		t.Fatal(items, err)
	}
	it, err := await(t, func(done func(metadata.Item, error)) { c.Get("/a/3", done) })
	if err != nil || it.Version == 0 || it.Value[0] != 3 {
		t.Fatal(it, err)
	}
	out, err := c.CommitSync(ctx, metadata.Txn{}.If("/a/3", it.Version+1).Then(metadata.Put("/a/3", nil)))
	if err != nil || !errors.Is(out.Err, metadata.ErrBadVersion) || out.Failed != 0 {
		t.Fatal(out, err)
	}
	out, err = c.CommitSync(ctx, metadata.Txn{}.Then(metadata.Put("nonsense", nil)))
	if err != nil || !errors.Is(out.Err, metadata.ErrBadTxn) {
		t.Fatal(out, err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.ListSync(canceled, "/"); err == nil {
		t.Fatal("a call without time succeeded")
	}
}

// TestCommitUnknown: a commit whose answer is lost is sent again only when it guards itself; what then stays open is
// unknown, and nothing is applied twice.
func TestCommitUnknown(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.client(t, func(o *Options) { o.CallTimeout = 2 * time.Second })
	ctx := context.Background()
	first := func(what act) {
		var n atomic.Int64
		f.setHooks(hooks{commit: func(*fakeBookie) act {
			if n.Add(1) == 1 {
				return what
			}
			return doIt
		}})
	}
	put := metadata.Txn{}.Then(metadata.Put("/k", []byte("1")))
	for _, what := range []act{loseAck, breakOff, sayUnknown} {
		first(what)
		f.commits = 0
		if _, err := c.CommitSync(ctx, put); !errors.Is(err, ledger.ErrUnknown) || f.commits > 1 {
			t.Fatalf("%d: %d commits, %v", what, f.commits, err)
		}
	}
	first(overload)
	if out, err := c.CommitSync(ctx, put); err != nil || out.Err != nil {
		t.Fatal(out, err) // nothing was done, so it is sent again
	}
	guarded := func() metadata.Txn {
		it, err := c.GetSync(ctx, "/k")
		if err != nil {
			t.Fatal(err)
		}
		return metadata.Txn{}.If("/k", it.Version).Then(metadata.Put("/k", []byte("2")))
	}
	txn := guarded()
	first(breakOff)
	if out, err := c.CommitSync(ctx, txn); err != nil || out.Err != nil {
		t.Fatal(out, err) // not applied the first time: applied by the second
	}
	txn = guarded()
	first(loseAck)
	if _, err := c.CommitSync(ctx, txn); !errors.Is(err, ledger.ErrUnknown) {
		t.Fatal(err) // applied the first time: the second cannot tell
	}
	first(doIt)
	if out, err := c.CommitSync(ctx, txn); err != nil || !errors.Is(out.Err, metadata.ErrBadVersion) {
		t.Fatal(out, err)
	}
}

func TestGuardsItself(t *testing.T) {
	for _, test := range []struct {
		txn  metadata.Txn
		want bool
	}{
		{metadata.Txn{}.Then(metadata.Put("/a", nil)), false},
		{metadata.Txn{}.If("/b", 1).Then(metadata.Put("/a", nil)), false},
		{metadata.Txn{}.If("/a", 1).Then(metadata.Put("/a", nil)), true},
		{metadata.Txn{}.If("/a", 0).Then(metadata.Put("/a", nil)), true},
		{metadata.Txn{}.If("/a", 1).Then(metadata.Delete("/a")), true},
		{metadata.Txn{}.If("/a", 0).Then(metadata.Delete("/a")), false},
		{metadata.Txn{}.If("/a", 1).If("/b", 2).Then(metadata.Put("/c", nil), metadata.Add("/b", 1)), true},
	} {
		if got := guardsItself(&test.txn); got != test.want {
			t.Errorf("%+v: %v", test.txn, got)
		}
	}
}

// TestWatch: items, changes, and after an interruption what changed meanwhile, deletions included.
func TestWatch(t *testing.T) {
	f := newFakeCluster(t, 2, ledger.MetadataGroup)
	put := func(key, value string) { f.commit(metadata.Txn{}.Then(metadata.Put(key, []byte(value)))) }
	put("/w/a", "1")
	put("/w/b", "1")
	put("/other", "1")
	c := f.client(t, func(o *Options) { o.Bookies = []string{"bookie0:3181", "bookie1:3181"} })
	var mu sync.Mutex
	state, synced := map[string]string{}, false
	changed := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	c.Watch(ctx, "/w/", func(items []metadata.Item, s bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, it := range items {
			if it.Version == 0 {
				delete(state, it.Key)
			} else {
				state[it.Key] = string(it.Value)
			}
		}
		synced = s
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	expect := func(want string) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			mu.Lock()
			got, ok := fmt.Sprint(state), synced
			mu.Unlock()
			if ok && got == want {
				return
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("%s, want %s", got, want)
			}
		}
	}
	expect("map[/w/a:1 /w/b:1]")
	put("/w/c", "2")
	expect("map[/w/a:1 /w/b:1 /w/c:2]")
	f.setLeader(f.groups[0], 1)
	f.bookies[0].stop()
	put("/w/b", "3")
	f.commit(metadata.Txn{}.Then(metadata.Delete("/w/a")))
	expect("map[/w/b:3 /w/c:2]")
	cancel()
}

// TestTopologyFromMetadata: the records of bookies and groups are followed.
func TestTopologyFromMetadata(t *testing.T) {
	f := newFakeCluster(t, 1)
	c := f.client(t, nil)
	record := func(key string, value any) {
		b, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		f.commit(metadata.Txn{}.Then(metadata.Put(key, b)))
	}
	record(metadata.BookieKey("x"), metadata.BookieInfo{ID: "x", Address: "x:1"})
	record(metadata.BookieKey("y"), metadata.BookieInfo{ID: "y", Address: "y:1"})
	record(metadata.GroupKey(4), metadata.GroupInfo{ID: 4, Replicas: []string{"y", "x", "unknown"}})
	f.commit(metadata.Txn{}.Then(metadata.Put(metadata.GroupsPrefix+"nonsense", []byte("{"))))
	expect := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); ; <-time.After(time.Millisecond) {
			got := strings.Join(c.topology.replicas(4), " ")
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("replicas %q, want %q", got, want)
			}
		}
	}
	expect("x:1 y:1")
	record(metadata.BookieKey("x"), metadata.BookieInfo{ID: "x", Address: "x:2"})
	expect("x:2 y:1")
	f.commit(metadata.Txn{}.Then(metadata.Delete(metadata.BookieKey("y"))))
	expect("x:2")
}

func TestOptions(t *testing.T) {
	if _, err := Open(Options{}); err == nil {
		t.Fatal("no bookies, no error")
	}
	bad := Options{Bookies: []string{"nowhere"}, RetryMin: time.Second, RetryMax: time.Millisecond, MaxBatchBytes: -1, TryTimeout: -1}
	bad.EnsureDefaults()
	err := bad.Validate()
	for _, want := range []string{"nowhere", "RetryMax", "MaxBatchBytes", "TryTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not reported: %v", want, err)
		}
	}
}

// TestCodesAndErrors: every code of the protocol has a row, and no two share an error.
func TestCodesAndErrors(t *testing.T) {
	seen := map[error]bookiepb.Code{}
	for n := range bookiepb.Code_name {
		code := bookiepb.Code(n)
		o := outcomeOf(code)
		if other, twice := seen[o.err]; twice {
			t.Errorf("%v and %v are one error", code, other)
		}
		seen[o.err] = code
		if err := describe(bookiepb.PlainResult{Code: code, Message: "m"}); !errors.Is(err, o.err) {
			t.Errorf("%v: %v", code, err)
		}
	}
	if o := outcomeOf(999); o.err != ledger.ErrUnknown || o.verdict != maybe {
		t.Errorf("a code of the future is %v", o)
	}
}
