package bookie

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

func (c *cluster) commit(txn metadata.Txn) *bookiepb.CommitResponse {
	c.t.Helper()
	var resp *bookiepb.CommitResponse
	c.eventually("commit", func() bool {
		var err error
		resp, err = c.metadata(c.leader(0)).Commit(context.Background(), &bookiepb.CommitRequest{Txn: txn.Encode()})
		return err == nil && resp.Result.Code != bookiepb.Code_NOT_LEADER && resp.Result.Code != bookiepb.Code_UNKNOWN
	})
	return resp
}

type watchStream = grpc.ServerStreamingClient[bookiepb.WatchResponse]

// next returns the events up to and including a message that is synced.
func nextEvents(t *testing.T, w watchStream) []string {
	t.Helper()
	var out []string
	for {
		m, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range m.Events {
			out = append(out, fmt.Sprintf("%s=%s", ev.Item.Key, ev.Item.Value))
		}
		if m.Result != nil {
			return append(out, m.Result.Code.String())
		}
		if m.Synced {
			return out
		}
	}
}

func testMetadataService(t *testing.T, c *cluster) {
	lead := c.leader(0)
	ctx := t.Context()
	put := func(key, value string) metadata.Txn { return metadata.Txn{}.Then(metadata.Put(key, []byte(value))) }

	first := c.commit(put("/t/a", "1"))
	if first.Result.Code != bookiepb.Code_OK || len(first.Versions) != 1 {
		t.Fatalf("commit: %v", first)
	}
	if r := c.commit(put("/t/a", "2").If("/t/a", 0)); r.Result.Code != bookiepb.Code_BAD_VERSION || r.Failed != 0 {
		t.Errorf("condition that does not hold: %v", r)
	}
	if r := c.commit(metadata.Txn{}.Then(metadata.Add("/t/n", 5))); r.Versions[0] != 5 {
		t.Errorf("counter: %v", r)
	}
	if r, err := c.metadata(lead).Commit(ctx, &bookiepb.CommitRequest{Txn: []byte("junk")}); err != nil || r.Result.Code != bookiepb.Code_BAD_REQUEST {
		t.Errorf("junk: %v %v", r, err)
	}
	got, err := c.metadata(lead).Get(ctx, &bookiepb.GetRequest{Key: "/t/a"})
	if err != nil || string(got.Item.GetValue()) != "1" || got.Item.Version != first.Versions[0] {
		t.Errorf("get: %v %v", got, err)
	}
	if got, err := c.metadata(lead).Get(ctx, &bookiepb.GetRequest{Key: "/t/none"}); err != nil || got.Item.GetVersion() != 0 || got.Result.Code != bookiepb.Code_OK {
		t.Errorf("get of nothing: %v %v", got, err)
	}
	list, err := c.metadata(lead).List(ctx, &bookiepb.ListRequest{Prefix: "/t/", Limit: 1})
	if err != nil || len(list.Items) != 1 || !list.More {
		t.Errorf("first page: %v %v", list, err)
	}
	list, err = c.metadata(lead).List(ctx, &bookiepb.ListRequest{Prefix: "/t/", After: "/t/a", KeysOnly: true})
	if err != nil || len(list.Items) != 1 || list.More || list.Items[0].Key != "/t/n" || list.Items[0].Value != nil {
		t.Errorf("second page: %v %v", list, err)
	}
	for id := range c.nodes {
		if id == lead {
			continue
		}
		c.eventually("a follower names the leader", func() bool {
			r, err := c.metadata(id).Get(ctx, &bookiepb.GetRequest{Key: "/t/a"})
			return err == nil && r.Result.Code == bookiepb.Code_NOT_LEADER && r.Result.Leader == c.nodes[lead].addr
		})
		if r, err := c.metadata(id).Commit(ctx, &bookiepb.CommitRequest{Txn: (&metadata.Txn{}).Encode()}); err != nil || r.Result.Code != bookiepb.Code_NOT_LEADER {
			t.Errorf("commit at a follower: %v %v", r, err)
		}
	}

	w, err := c.metadata(lead).Watch(ctx, &bookiepb.WatchRequest{Prefix: "/t/"})
	if err != nil {
		t.Fatal(err)
	}
	wantSlice(t, "initial items", nextEvents(t, w), "/t/a=1", "/t/n=5")
	c.commit(put("/other", "x"))
	c.commit(put("/t/b", "3"))
	wantSlice(t, "change", nextEvents(t, w), "/t/b=3")
	c.commit(metadata.Txn{}.Then(metadata.Delete("/t/a"), metadata.Put("/t/c", []byte("4"))))
	wantSlice(t, "transaction", nextEvents(t, w), "/t/a=", "/t/c=4")

	// The lead is lost: the watch ends, and one that begins at the next leader has missed nothing.
	c.stop(lead)
	for err == nil {
		var m *bookiepb.WatchResponse
		if m, err = w.Recv(); err == nil && m.Result.GetCode() != bookiepb.Code_NOT_LEADER {
			t.Errorf("after the lead was lost: %v", m)
		}
	}
	next := c.leader(0, lead)
	if w, err = c.metadata(next).Watch(ctx, &bookiepb.WatchRequest{Prefix: "/t/"}); err != nil {
		t.Fatal(err)
	}
	wantSlice(t, "after the change of leaders", nextEvents(t, w), "/t/b=3", "/t/c=4", "/t/n=5")
	c.start(lead, listen(t, c.nodes[lead].addr))
	c.ready(lead)
}

// A watcher that does not keep up is cut off, not waited for.
func TestSlowWatcherIsCutOff(t *testing.T) {
	f := newMetaFSM(newHealth(nil), 10)
	_, slow := f.watch("/a/")
	_, other := f.watch("/b/")
	for i := range 12 {
		txn := metadata.Txn{}.Then(metadata.Put(fmt.Sprint("/a/", i), nil))
		f.Apply(&raft.Log{Type: raft.LogCommand, Data: txn.Encode()})
	}
	if ev, _, ended := slow.take(); !ended || len(ev) != 0 {
		t.Errorf("slow watcher: %d events, ended %t", len(ev), ended)
	}
	if _, _, ended := other.take(); ended || len(f.watchers) != 1 {
		t.Error("the other watcher was cut off, too")
	}
}

func TestMetadataSnapshotRestores(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.Raft.SnapshotEvery = 5 })
	for i := range 20 {
		c.commit(metadata.Txn{}.Then(metadata.Put(fmt.Sprint("/k/", i), []byte("v"))))
	}
	if err := c.nodes["a"].meta().raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.commit(metadata.Txn{}.Then(metadata.Put("/k/after", nil)))
	c.stop("a")
	c.start("a", listen(t, c.nodes["a"].addr))
	c.ready("a")
	list, err := c.metadata("a").List(t.Context(), &bookiepb.ListRequest{Prefix: "/k/"})
	if err != nil || len(list.Items) != 21 {
		t.Fatalf("after restart: %d items, %v", len(list.GetItems()), err)
	}
}

// A member that was away gets a snapshot when the log behind it is compacted, even with entries of its own that nobody
// else has.
func TestMetadataMemberCatchesUpBySnapshot(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) {
		patientElections(o)
		o.Raft.TrailingLogs = 1
	})
	lead := c.leader(0)
	away := map[string]string{"a": "b", "b": "c", "c": "a"}[lead]
	c.stop(away)
	// It comes back with entries of a term that was never elected.
	bolt, err := openBolt(c.options(c.nodes[away], nil).MetadataDir)
	if err != nil {
		t.Fatal(err)
	}
	last, _ := bolt.LastIndex()
	if err := bolt.StoreLogs(testLogs(last+1, last+40, 1)); err != nil {
		t.Fatal(err)
	}
	if err := bolt.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		c.commit(metadata.Txn{}.Then(metadata.Put(fmt.Sprint("/k/", i), []byte("v"))))
	}
	if err := c.nodes[c.leader(0)].meta().raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	c.start(away, listen(t, c.nodes[away].addr))
	caughtUp := func() bool {
		_, rev := c.nodes[away].meta().fsm.get("")
		_, want := c.nodes[c.leader(0)].meta().fsm.get("")
		return rev == want
	}
	// Nearly always the snapshot comes first and disagrees with the log. A call from before the compaction, which was
	// still waiting for the member, may come before it and cut the log.
	c.eventually("the member catches up, or notices that its log disagrees", func() bool {
		return caughtUp() || !c.nodes[away].health.ok()
	})
	if err := c.nodes[away].health.err(); err != nil {
		if !errors.Is(err, errDiverged) {
			t.Fatal(err)
		}
		c.stop(away) // a supervisor would
		c.start(away, listen(t, c.nodes[away].addr))
	}
	c.eventually("the member catches up", caughtUp)
	c.commit(metadata.Txn{}.Then(metadata.Put("/k/more", nil)))
	c.eventually("the member follows", func() bool {
		it, _ := c.nodes[away].meta().fsm.get("/k/more")
		return it.Version != 0
	})
}

// A log that disagrees with the newest snapshot goes before raft sees it; one that agrees stays.
func TestHealLog(t *testing.T) {
	for _, c := range []struct {
		term uint64 // of the snapshot's last entry
		want uint64 // last index afterwards
	}{{1, 9}, {2, 0}} {
		store := raft.NewInmemStore()
		if err := store.StoreLogs(testLogs(1, 9, 1)); err != nil {
			t.Fatal(err)
		}
		snapshots := raft.NewInmemSnapshotStore()
		_, trans := raft.NewInmemTransport("a")
		sink, err := snapshots.Create(1, 5, c.term, raft.Configuration{}, 1, trans)
		if err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		var reported error
		locked := &lockedSnapshots{SnapshotStore: snapshots, log: store, diverged: func(err error) { reported = err }}
		if _, r, err := locked.Open(sink.ID()); err != nil || r.Close() != nil || (reported != nil) != (c.term == 2) {
			t.Errorf("term %d: reported %v (%v)", c.term, reported, err)
		}
		if err := healLog(store, snapshots, testLogger(t)); err != nil {
			t.Fatal(err)
		}
		if last, _ := store.LastIndex(); last != c.want {
			t.Errorf("term %d: the log ends at %d, want %d", c.term, last, c.want)
		}
	}
}

// A round of verification answers only those who came before it began.
func TestVerifierCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := make(chan chan error)
		v := newVerifier(func(context.Context) error {
			answer := make(chan error)
			rounds <- answer
			return <-answer
		})
		defer v.close()
		var mu sync.Mutex
		var done []string
		read := func(name string) {
			go func() {
				err := v.verify(context.Background())
				mu.Lock()
				defer mu.Unlock()
				done = append(done, fmt.Sprint(name, err))
			}()
			synctest.Wait()
		}
		read("a")
		first := <-rounds
		read("b")
		read("b")
		first <- nil
		second := <-rounds
		synctest.Wait()
		mu.Lock()
		wantSlice(t, "after one round", done, "a<nil>")
		mu.Unlock()
		second <- ledger.ErrNotLeader
		synctest.Wait()
		mu.Lock()
		wantSlice(t, "after two rounds", done, "a<nil>", "b"+ledger.ErrNotLeader.Error(), "b"+ledger.ErrNotLeader.Error())
		mu.Unlock()
	})
}

func TestVerifierRespectsContext(t *testing.T) {
	v := newVerifier(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := v.verify(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("verify: %v", err)
	}
	v.close()
	if err := v.verify(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("after close: %v", err)
	}
}
