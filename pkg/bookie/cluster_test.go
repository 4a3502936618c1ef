package bookie

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcmeta "google.golang.org/grpc/metadata"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// A cluster mostly waits for its elections, so one more of them runs than the usual two cores suggest.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "3"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The library may drop a future when it stops: what was committed and not yet applied then. Who waits for one is left behind.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hashicorp/raft.(*deferError).Error"))
}

// cluster is some bookies in this process, on loopback ports, each with a directory and a disk that can be made to
// fail. Names are a, b, c….
type cluster struct {
	t       testing.TB
	dir     string
	change  func(*Options)
	members []Member
	nodes   map[string]*testBookie
	conns   map[string]*grpc.ClientConn
	retries int // of commands by execute: each may be in the log
}

type testBookie struct {
	*Bookie
	id   string
	addr string
	fs   *vfs.Inject
	disk *vfs.Mem
	data string
}

const patience = 60 * time.Second

func newCluster(t testing.TB, n int, change func(*Options)) *cluster {
	t.Helper()
	return newClusterOn(t, n, false, change)
}

// newClusterOn uses the real disk if asked to.
func newClusterOn(t testing.TB, n int, onDisk bool, change func(*Options)) *cluster {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	c := &cluster{t: t, dir: t.TempDir(), change: change, nodes: map[string]*testBookie{}, conns: map[string]*grpc.ClientConn{}}
	listeners := map[string]net.Listener{}
	for i := range n {
		id := string(rune('a' + i))
		l := listen(t, "127.0.0.1:0")
		listeners[id] = l
		mem := vfs.NewMem()
		b := &testBookie{id: id, addr: l.Addr().String(), disk: mem, fs: vfs.NewInject(mem), data: "/data"}
		if onDisk {
			b.fs, b.data = vfs.NewInject(vfs.Disk{}), filepath.Join(c.dir, "data-"+id)
		}
		c.nodes[id] = b
		if i < 5 {
			c.members = append(c.members, Member{id, l.Addr().String()})
		}
	}
	for id, b := range c.nodes {
		c.init(b)
		c.start(id, listeners[id])
	}
	t.Cleanup(c.close)
	for id := range c.nodes {
		c.ready(id)
	}
	return c
}

// join adds a bookie that is no member of the metadata group.
func (c *cluster) join(id string) {
	c.t.Helper()
	l := listen(c.t, "127.0.0.1:0")
	mem := vfs.NewMem()
	b := &testBookie{id: id, addr: l.Addr().String(), disk: mem, fs: vfs.NewInject(mem), data: "/data"}
	c.nodes[id] = b
	c.init(b)
	c.start(id, l)
	c.ready(id)
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (c *cluster) init(b *testBookie) {
	c.t.Helper()
	_, err := Init(InitOptions{
		DataDir: b.data, MetadataDir: filepath.Join(c.dir, b.id), FS: b.fs, BookieID: b.id, ClusterID: "test", Metadata: c.members,
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) options(b *testBookie, l net.Listener) Options {
	o := Options{
		DataDir: b.data, MetadataDir: filepath.Join(c.dir, b.id), FS: b.fs, Listener: l, ListenAddress: b.addr,
		Journal: JournalOptions{SegmentSize: 4 << 20, WriteTimeout: 2 * time.Second},
		Raft: RaftOptions{
			PreferredTimeout: 400 * time.Millisecond, FollowerTimeout: 800 * time.Millisecond, MetadataTimeout: 500 * time.Millisecond,
			RPCTimeout: 2 * time.Second,
		},
		MinFreeSpace: 1, Reserve: 1 << 20, ProbeInterval: 100 * time.Millisecond, LeadAfter: -1,
		Logger: testLogger(c.t),
	}
	if c.change != nil {
		c.change(&o)
	}
	return o
}

func testLogger(t testing.TB) *slog.Logger {
	w := io.Discard
	if os.Getenv("BOOKIE_TEST_LOG") != "" {
		w = os.Stderr
	}
	level, _ := strconv.Atoi(os.Getenv("BOOKIE_TEST_LOG"))
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(level)})).With("test", t.Name())
}

// start opens a bookie at its address.
func (c *cluster) start(id string, l net.Listener) {
	c.t.Helper()
	b := c.nodes[id]
	var err error
	if b.Bookie, err = Open(context.Background(), c.options(b, l)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) ready(id string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.nodes[id].Ready(ctx); err != nil {
		c.t.Fatal(err)
	}
}

// subtest is a part of a test that shares its cluster.
type subtest struct {
	name string
	run  func(*testing.T, *cluster)
}

func (c *cluster) run(t *testing.T, all []subtest) {
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			old := c.t
			defer func() { c.t = old }()
			c.t = t
			f.run(t, c)
		})
	}
}

func (c *cluster) stop(id string) {
	c.t.Helper()
	b := c.nodes[id]
	if b.Bookie == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		c.t.Errorf("closing %s: %v", id, err)
	}
	b.Bookie = nil
}

// stopAll closes all bookies at once.
func (c *cluster) stopAll() {
	var wg sync.WaitGroup
	for id := range c.nodes {
		wg.Go(func() { c.stop(id) })
	}
	wg.Wait()
}

func (c *cluster) close() {
	c.stopAll()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *cluster) conn(id string) *grpc.ClientConn {
	c.t.Helper()
	if conn := c.conns[id]; conn != nil {
		return conn
	}
	conn, err := grpc.NewClient("passthrough:///"+c.nodes[id].addr,
		append(bookiepb.ClientOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.conns[id] = conn
	return conn
}

func (c *cluster) bookie(id string) bookiepb.BookieClient {
	return bookiepb.NewBookieClient(c.conn(id))
}
func (c *cluster) metadata(id string) bookiepb.MetadataClient {
	return bookiepb.NewMetadataClient(c.conn(id))
}

// leader waits until a bookie other than those in not is the ready leader of a group.
func (c *cluster) leader(group ledger.GroupID, not ...string) string {
	c.t.Helper()
	var found string
	c.eventually(fmt.Sprintf("group %d has a leader", group), func() bool {
		for id, b := range c.nodes {
			if b.Bookie == nil || containsString(not, id) {
				continue
			}
			if group == ledger.MetadataGroup && b.meta() != nil && b.meta().isReady() {
				found = id
				return true
			}
			if g := b.groups.get(group); group != 0 && g != nil && g.isReady() {
				found = id
				return true
			}
		}
		return false
	})
	return found
}

func containsString(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (c *cluster) eventually(what string, cond func() bool) {
	c.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("did not come true: %s", what)
		}
	}
}

// execute runs one command at the group's leader until the outcome is known.
func (c *cluster) execute(group ledger.GroupID, cmd ledger.Command) *bookiepb.Result {
	c.t.Helper()
	var res *bookiepb.Result
	c.eventually(cmd.String(), func() bool {
		res = c.executeAt(c.leader(group), group, cmd)
		switch res.GetCode() {
		case bookiepb.Code_UNKNOWN, bookiepb.Code_NOT_LEADER, bookiepb.Code_NO_GROUP, bookiepb.Code_OVERLOADED:
			c.retries++
			return false
		}
		return true
	})
	return res
}

func (c *cluster) executeAt(id string, group ledger.GroupID, cmd ledger.Command) *bookiepb.Result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := c.bookie(id).Execute(ctx, &bookiepb.ExecuteRequest{Group: uint32(group), Command: cmd.AppendTo(nil)})
	if err != nil {
		return &bookiepb.Result{Code: bookiepb.Code_UNKNOWN, Message: err.Error()}
	}
	return resp.GetResult()
}

func (c *cluster) want(res *bookiepb.Result, code bookiepb.Code, last int64) {
	c.t.Helper()
	if res.GetCode() != code || res.GetLast() != last {
		c.t.Fatalf("result %v, want %s with last %d", res, code, last)
	}
}

// open starts an append stream.
func (c *cluster) openStream(ctx context.Context, id string, group ledger.GroupID) grpc.BidiStreamingClient[bookiepb.AppendRequest, bookiepb.AppendResponse] {
	c.t.Helper()
	ctx = grpcmeta.AppendToOutgoingContext(ctx, bookiepb.GroupHeader, strconv.Itoa(int(group)), bookiepb.ClusterHeader, "test")
	s, err := c.bookie(id).Append(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// read reads from one bookie.
func (c *cluster) read(id string, req *bookiepb.ReadRequest) ([]string, *bookiepb.Result) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if req.MaxEntries == 0 {
		req.MaxEntries = 1 << 20
	}
	if req.MaxBytes == 0 {
		req.MaxBytes = 1 << 30
	}
	s, err := c.bookie(id).Read(ctx, req)
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	next := req.First
	for {
		m, err := s.Recv()
		if err != nil {
			c.t.Fatalf("read of %v from %s: %v", req, id, err)
		}
		if m.Count > 0 && m.First != next {
			c.t.Fatalf("read of %v: chunk starts at %d, want %d", req, m.First, next)
		}
		next += int64(m.Count)
		body := m.Entries
		for range m.Count {
			var p []byte
			if p, body, err = ledger.NextEntry(body); err != nil {
				c.t.Fatal(err)
			}
			out = append(out, string(p))
		}
		if m.Result != nil {
			return out, m.Result
		}
	}
}
