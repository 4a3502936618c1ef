package bookieclient

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"geminga/pkg/bookie"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/pkg/vfs"
)

// realBookies are three bookies in this process, over Raft, on loopback.
type realBookies struct {
	t       *testing.T
	dir     string
	members []bookie.Member
	disks   []*vfs.Mem
	running []*bookie.Bookie
}

func startBookies(t *testing.T) *realBookies {
	t.Helper()
	r := &realBookies{t: t, dir: t.TempDir(), running: make([]*bookie.Bookie, 3)}
	var listeners []net.Listener
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		r.members = append(r.members, bookie.Member{ID: fmt.Sprint("b", i), Address: l.Addr().String()})
		r.disks = append(r.disks, vfs.NewMem())
	}
	for i := range 3 {
		_, err := bookie.Init(bookie.InitOptions{
			DataDir: "/data", MetadataDir: r.metadataDir(i), FS: r.disks[i], BookieID: r.members[i].ID, ClusterID: "test",
			Metadata: r.members,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.start(i, listeners[i]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := range r.running {
			r.stop(i)
		}
	})
	return r
}

func (r *realBookies) metadataDir(i int) string { return filepath.Join(r.dir, r.members[i].ID) }

func (r *realBookies) start(i int, l net.Listener) error {
	b, err := bookie.Open(context.Background(), bookie.Options{
		DataDir: "/data", MetadataDir: r.metadataDir(i), FS: r.disks[i], Listener: l, ListenAddress: r.members[i].Address,
		Journal: bookie.JournalOptions{SegmentSize: 4 << 20}, MinFreeSpace: 1,
		Raft: bookie.RaftOptions{
			PreferredTimeout: 600 * time.Millisecond, FollowerTimeout: 1200 * time.Millisecond, // starved machines elect for ever with less
			MetadataTimeout: 800 * time.Millisecond, RPCTimeout: 2 * time.Second,
		},
	})
	r.running[i] = b
	return err
}

func (r *realBookies) stop(i int) {
	if r.running[i] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r.running[i].Close(ctx)
	r.running[i] = nil
}

func (r *realBookies) addresses() []string {
	var out []string
	for _, m := range r.members {
		out = append(out, m.Address)
	}
	return out
}

// progress is a Waiter that only counts.
type progress struct {
	t       *testing.T
	mu      sync.Mutex
	last    map[ledger.ID]ledger.EntryID
	changed chan struct{}
}

func (p *progress) Appended(ref ledger.Ref, last ledger.EntryID, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.last[ref.ID]; err != nil || ok && last <= old {
		p.t.Errorf("%v: told %d, %v after %d", ref, last, err, old)
	}
	p.last[ref.ID] = last
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *progress) await(ref ledger.Ref, last ledger.EntryID) {
	p.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		p.mu.Lock()
		got, ok := p.last[ref.ID]
		p.mu.Unlock()
		if ok && got >= last {
			return
		}
		select {
		case <-p.changed:
		case <-deadline:
			p.t.Fatalf("%v: told %d, want %d", ref, got, last)
		}
	}
}

// TestRealBookies: with three real bookies, the one that leads the group of the ledgers stops in the middle of the
// appends and comes back later. Everything is acknowledged in the end, and read back once and in order; then fence,
// close and delete.
func TestRealBookies(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := startBookies(t)
	opts := Options{Bookies: r.addresses(), ClusterID: "test", StatusInterval: 200 * time.Millisecond, CallTimeout: 40 * time.Second}
	if os.Getenv("CLIENT_LOG") != "" {
		opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Shutdown()
	p := &progress{t: t, last: map[ledger.ID]ledger.EntryID{}, changed: make(chan struct{}, 1)}
	refs := []ledger.Ref{create(t, c, 0), create(t, c, 0), create(t, c, 0)}

	const entries = 300
	payload := func(ref ledger.Ref, i int) []byte { return fmt.Appendf(make([]byte, (i%5)*1300), "%d/%d", ref.ID, i) }
	for i := range entries {
		for _, ref := range refs {
			c.Append(ref, testEpoch, ledger.EntryID(i), []ledger.Payload{{Data: payload(ref, i)}}, p)
		}
		if i == entries/2 {
			p.await(refs[0], 10)
			address := c.topology.leader(refs[0].Group)
			for n, m := range r.members {
				if m.Address == address {
					r.stop(n)
					defer r.restartLater(n)()
				}
			}
		}
	}
	for _, ref := range refs {
		p.await(ref, entries-1)
	}
	for _, ref := range refs {
		for next := 0; next < entries; {
			got, err := read(t, c, ref, ledger.EntryID(next), entries-1, ledger.Limits{Entries: 100, Bytes: 200 << 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range got {
				if string(e.Payload.Data) != string(payload(ref, next)) || e.Position.Entry != ledger.EntryID(next) {
					t.Fatalf("%v: entry %d differs", ref, next)
				}
				next++
			}
		}
		last, err := await(t, func(done func(ledger.EntryID, error)) { c.Fence(ref, testEpoch+1, done) })
		if err != nil || last != entries-1 {
			t.Fatal(last, err)
		}
		if err := awaitErr(t, func(done func(error)) { c.Close(ref, last, done) }); err != nil {
			t.Fatal(err)
		}
		if err := awaitErr(t, func(done func(error)) { c.Delete(ref, done) }); err != nil {
			t.Fatal(err)
		}
	}
	out, err := c.CommitSync(t.Context(), metadata.Txn{}.If("/test", 0).Then(metadata.Put("/test", []byte("1"))))
	if err != nil || out.Err != nil {
		t.Fatal(out, err)
	}
}

// restartLater brings a bookie back while the test goes on; the result waits for it.
func (r *realBookies) restartLater(i int) func() {
	var wg sync.WaitGroup
	wg.Go(func() {
		l, err := net.Listen("tcp", r.members[i].Address)
		if err == nil {
			err = r.start(i, l)
		}
		if err != nil {
			r.t.Error(err)
		}
	})
	return wg.Wait
}
