package bookieclient

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcmeta "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCluster is bookies over the real machines, without Raft: all share one state, which is what a group that lost
// nothing looks like from outside. What goes wrong is up to the hooks.
type fakeCluster struct {
	t       *testing.T
	bookies []*fakeBookie

	mu      sync.Mutex
	groups  map[ledger.GroupID]*fakeGroup
	meta    *metadata.Machine
	watches map[chan []metadata.Item]string
	commits int
	hooks   hooks
}

// hooks decide about faults. All are called without the lock.
type hooks struct {
	append  func(b *fakeBookie, g *fakeGroup, c *ledger.Command) act
	execute func(b *fakeBookie, c *ledger.Command) act
	read    func(b *fakeBookie, req *bookiepb.ReadRequest) bookiepb.Code
	commit  func(b *fakeBookie) act
}

// act is what happens to a command.
type act uint8

const (
	doIt       act = iota
	loseAck        // applied, then the stream breaks
	breakOff       // not applied, the stream breaks
	sayUnknown     // not applied, UNKNOWN; later commands are looked at
	applyUnknown
	overload
	readOnly
	moveLeader // NOT_LEADER with a hint; another one leads
	hideLeader // the same without a hint
	late       // the stream breaks, the command is applied some time later
	badRequest // the whole message is refused
	swallow    // applied, never answered, nor anything after it
)

type fakeGroup struct {
	id      ledger.GroupID
	leader  int // index; -1 none
	machine *ledger.Machine
	content map[ledger.ID][][]byte
}

type fakeBookie struct {
	bookiepb.UnimplementedBookieServer
	bookiepb.UnimplementedMetadataServer
	cluster  *fakeCluster
	index    int
	address  string
	server   *grpc.Server
	listener atomic.Pointer[bufconn.Listener]
	down     atomic.Bool
}

// metaServer separates the services, whose methods have other names but live on one fake.
type metaServer struct {
	bookiepb.UnimplementedMetadataServer
	b *fakeBookie
}

func newFakeCluster(t *testing.T, bookies int, groups ...ledger.GroupID) *fakeCluster {
	f := &fakeCluster{t: t, groups: map[ledger.GroupID]*fakeGroup{}, meta: metadata.NewMachine(), watches: map[chan []metadata.Item]string{}}
	for i, id := range groups {
		f.groups[id] = &fakeGroup{id: id, leader: i % bookies, machine: ledger.NewMachine(), content: map[ledger.ID][][]byte{}}
	}
	for i := range bookies {
		b := &fakeBookie{cluster: f, index: i, address: fmt.Sprintf("bookie%d:3181", i)}
		b.start()
		f.bookies = append(f.bookies, b)
		record, _ := json.Marshal(metadata.BookieInfo{ID: fmt.Sprint("b", i), Address: b.address})
		f.commit(metadata.Txn{}.Then(metadata.Put(metadata.BookieKey(fmt.Sprint("b", i)), record)))
	}
	t.Cleanup(func() {
		for _, b := range f.bookies {
			b.stop()
		}
	})
	return f
}

func (b *fakeBookie) start() {
	l := bufconn.Listen(1 << 18)
	b.listener.Store(l)
	b.server = grpc.NewServer(bookiepb.ServerOptions()...)
	bookiepb.RegisterBookieServer(b.server, b)
	bookiepb.RegisterMetadataServer(b.server, &metaServer{b: b})
	b.down.Store(false)
	go b.server.Serve(l)
}

func (b *fakeBookie) stop() {
	b.down.Store(true)
	b.server.Stop()
}

func (f *fakeCluster) client(t *testing.T, change func(*Options)) *Client {
	opts := Options{
		Bookies: []string{"bookie0:3181"},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			for _, b := range f.bookies {
				if b.address == address && !b.down.Load() {
					return b.listener.Load().DialContext(ctx)
				}
			}
			return nil, fmt.Errorf("no route to %s", address)
		},
		ConnectTimeout: 500 * time.Millisecond, TryTimeout: time.Second, CallTimeout: 10 * time.Second,
		AnswerTimeout: 500 * time.Millisecond, RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond,
		StatusInterval: 50 * time.Millisecond,
	}
	if os.Getenv("CLIENT_LOG") != "" {
		opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&opts)
	}
	c, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Shutdown)
	return c
}

func (f *fakeCluster) setHooks(h hooks) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks = h
}

func (f *fakeCluster) getHooks() hooks {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hooks
}

func (f *fakeCluster) apply(g *fakeGroup, c *ledger.Command) ledger.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := c.CheckBody(); err != nil {
		f.t.Errorf("bad body: %v", err)
	}
	res, change := g.machine.Apply(c)
	if change.Appended {
		for body := c.Body; len(body) > 0; {
			payload, rest, err := ledger.NextEntry(body)
			if err != nil {
				f.t.Errorf("applied a bad entry: %v", err)
				break
			}
			g.content[c.Ledger] = append(g.content[c.Ledger], append([]byte(nil), payload...))
			body = rest
		}
	}
	return res
}

func (f *fakeCluster) state(ref ledger.Ref) ledger.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	st, ok := f.groups[ref.Group].machine.State(ref.ID)
	if !ok {
		st.Last = ledger.NoEntry
	}
	return st
}

// must applies a command behind the client's back.
func (f *fakeCluster) must(ref ledger.Ref, c ledger.Command) {
	c.Ledger = ref.ID
	if r := f.apply(f.groups[ref.Group], &c); r.Err != nil {
		f.t.Fatalf("%v: %v", &c, r.Err)
	}
}

func (f *fakeCluster) setLeader(g *fakeGroup, index int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g.leader = index
}

// leaderOf returns -1 without a leader.
func (f *fakeCluster) leaderOf(g *fakeGroup) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return g.leader
}

func (f *fakeCluster) hint(g *fakeGroup) string {
	if i := f.leaderOf(g); i >= 0 {
		return f.bookies[i].address
	}
	return ""
}

func toCode(err error) bookiepb.Code {
	for code := range bookiepb.Code_name {
		if o := outcomeOf(bookiepb.Code(code)); o.err == err {
			return bookiepb.Code(code)
		}
	}
	return bookiepb.Code_UNKNOWN
}

func toResult(r ledger.Result) *bookiepb.Result {
	return &bookiepb.Result{Code: toCode(r.Err), Ledger: uint64(r.Ledger), Last: int64(r.Last), Epoch: uint64(r.Epoch)}
}

func (b *fakeBookie) Append(s grpc.BidiStreamingServer[bookiepb.AppendRequest, bookiepb.AppendResponse]) error {
	md, _ := grpcmeta.FromIncomingContext(s.Context())
	n, err := strconv.Atoi(md.Get(bookiepb.GroupHeader)[0])
	if err != nil {
		return err
	}
	g := b.cluster.groups[ledger.GroupID(n)]
	for {
		req, err := s.Recv()
		if err != nil {
			return nil
		}
		resp, end := b.appendMessage(g, req.Commands)
		if len(resp.Results) > 0 {
			if err := s.Send(resp); err != nil {
				return err
			}
		}
		switch end {
		case endClean:
			return nil
		case endBroken:
			return status.Error(codes.Unavailable, "broken off")
		case endSilent:
			<-s.Context().Done()
			return nil
		}
	}
}

type ending uint8

const (
	goOn ending = iota
	endClean
	endBroken
	endSilent
)

func (b *fakeBookie) appendMessage(g *fakeGroup, commands []byte) (*bookiepb.AppendResponse, ending) {
	f := b.cluster
	resp := &bookiepb.AppendResponse{}
	add := func(r *bookiepb.Result) { resp.Results = append(resp.Results, r) }
	hook := f.getHooks().append
	for rest := commands; len(rest) > 0; {
		if f.leaderOf(g) != b.index {
			add(&bookiepb.Result{Code: bookiepb.Code_NOT_LEADER, Leader: f.hint(g)})
			return resp, endClean
		}
		c, tail, err := ledger.NextCommand(rest)
		if err != nil {
			f.t.Errorf("bad command: %v", err)
			return resp, endBroken
		}
		rest = tail
		what := doIt
		if hook != nil {
			what = hook(b, g, &c)
		}
		fail := func(code bookiepb.Code) { add(&bookiepb.Result{Code: code, Ledger: uint64(c.Ledger), Last: -1}) }
		switch what {
		case doIt:
			add(toResult(f.apply(g, &c)))
		case loseAck:
			f.apply(g, &c)
			return resp, endBroken
		case breakOff:
			return resp, endBroken
		case sayUnknown:
			fail(bookiepb.Code_UNKNOWN)
		case applyUnknown:
			f.apply(g, &c)
			fail(bookiepb.Code_UNKNOWN)
		case overload:
			fail(bookiepb.Code_OVERLOADED)
		case moveLeader, hideLeader:
			f.setLeader(g, (b.index+1)%len(f.bookies))
			r := &bookiepb.Result{Code: bookiepb.Code_NOT_LEADER}
			if what == moveLeader {
				r.Leader = f.hint(g)
			}
			add(r)
			return resp, endClean
		case late:
			time.AfterFunc(3*time.Millisecond, func() { f.apply(g, &c) })
			return resp, endBroken
		case badRequest:
			return &bookiepb.AppendResponse{Results: []*bookiepb.Result{{Code: bookiepb.Code_BAD_REQUEST, Last: -1}}}, endClean
		case swallow:
			f.apply(g, &c)
			return resp, endSilent
		}
	}
	return resp, goOn
}

func (b *fakeBookie) Execute(ctx context.Context, req *bookiepb.ExecuteRequest) (*bookiepb.ExecuteResponse, error) {
	f := b.cluster
	g := f.groups[ledger.GroupID(req.Group)]
	if f.leaderOf(g) != b.index {
		return &bookiepb.ExecuteResponse{Result: &bookiepb.Result{Code: bookiepb.Code_NOT_LEADER, Leader: f.hint(g)}}, nil
	}
	c, _, err := ledger.NextCommand(req.Command)
	if err != nil {
		return nil, err
	}
	what := doIt
	if hook := f.getHooks().execute; hook != nil {
		what = hook(b, &c)
	}
	switch what {
	case loseAck:
		f.apply(g, &c)
		return nil, status.Error(codes.Unavailable, "lost")
	case breakOff:
		return nil, status.Error(codes.Unavailable, "lost")
	case sayUnknown:
		return &bookiepb.ExecuteResponse{Result: &bookiepb.Result{Code: bookiepb.Code_UNKNOWN}}, nil
	case overload:
		return &bookiepb.ExecuteResponse{Result: &bookiepb.Result{Code: bookiepb.Code_OVERLOADED}}, nil
	case readOnly:
		return &bookiepb.ExecuteResponse{Result: &bookiepb.Result{Code: bookiepb.Code_READ_ONLY}}, nil
	case swallow:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &bookiepb.ExecuteResponse{Result: toResult(f.apply(g, &c))}, nil
}

func (b *fakeBookie) Read(req *bookiepb.ReadRequest, s grpc.ServerStreamingServer[bookiepb.ReadResponse]) error {
	f := b.cluster
	if hook := f.getHooks().read; hook != nil {
		switch code := hook(b, req); code {
		case bookiepb.Code_OK:
		case bookiepb.Code_UNKNOWN:
			return status.Error(codes.Unavailable, "broken off")
		case bookiepb.Code_READ_ONLY: // stands for damage on the way
			body := ledger.AppendEntry(nil, []byte("damaged"))
			body[len(body)-1] ^= 1
			return s.Send(&bookiepb.ReadResponse{First: req.First, Count: 1, Entries: body, Result: &bookiepb.Result{}})
		default:
			return s.Send(&bookiepb.ReadResponse{Result: &bookiepb.Result{Code: code}})
		}
	}
	f.mu.Lock()
	entries := f.groups[ledger.GroupID(req.Group)].content[ledger.ID(req.Ledger)]
	f.mu.Unlock()
	if int(req.First) >= len(entries) {
		return s.Send(&bookiepb.ReadResponse{Result: &bookiepb.Result{Code: bookiepb.Code_NO_ENTRY}})
	}
	size := 0
	for i := int(req.First); i < len(entries) && i <= int(req.Confirmed) && i < int(req.First)+int(req.MaxEntries); i++ {
		if size += len(entries[i]); i > int(req.First) && size > int(req.MaxBytes) {
			break
		}
		if err := s.SendMsg(&bookiepb.ReadBody{First: int64(i), Count: 1, Entries: ledger.AppendEntry(nil, entries[i])}); err != nil {
			return err
		}
	}
	return s.SendMsg(&bookiepb.ReadBody{Result: &bookiepb.Result{}})
}

func (b *fakeBookie) Status(context.Context, *bookiepb.StatusRequest) (*bookiepb.StatusResponse, error) {
	f := b.cluster
	out := &bookiepb.StatusResponse{BookieId: fmt.Sprint("b", b.index), Address: b.address}
	var ids []string
	for _, other := range f.bookies {
		ids = append(ids, fmt.Sprint("b", other.index))
	}
	for _, g := range f.groups {
		st := &bookiepb.GroupStatus{Group: uint32(g.id), Replicas: ids, Ready: f.leaderOf(g) == b.index, Term: 1}
		if g.id == ledger.MetadataGroup {
			out.Metadata = st
		} else {
			out.Groups = append(out.Groups, st)
		}
	}
	return out, nil
}

// metaRefusal is nil at the leader of group 0, which is bookie 0 when there is no such group.
func (m *metaServer) refusal() *bookiepb.Result {
	f := m.b.cluster
	leader := 0
	if g := f.groups[ledger.MetadataGroup]; g != nil {
		leader = f.leaderOf(g)
	}
	if leader == m.b.index {
		return nil
	}
	r := &bookiepb.Result{Code: bookiepb.Code_NOT_LEADER}
	if leader >= 0 {
		r.Leader = f.bookies[leader].address
	}
	return r
}

func toItem(it metadata.Item) *bookiepb.Item {
	return &bookiepb.Item{Key: it.Key, Value: it.Value, Version: it.Version}
}

func (m *metaServer) Get(_ context.Context, req *bookiepb.GetRequest) (*bookiepb.GetResponse, error) {
	if r := m.refusal(); r != nil {
		return &bookiepb.GetResponse{Result: r}, nil
	}
	f := m.b.cluster
	f.mu.Lock()
	defer f.mu.Unlock()
	it, _ := f.meta.Get(req.Key)
	return &bookiepb.GetResponse{Result: &bookiepb.Result{}, Item: toItem(it)}, nil
}

func (m *metaServer) List(_ context.Context, req *bookiepb.ListRequest) (*bookiepb.ListResponse, error) {
	if r := m.refusal(); r != nil {
		return &bookiepb.ListResponse{Result: r}, nil
	}
	f := m.b.cluster
	f.mu.Lock()
	defer f.mu.Unlock()
	items, more := f.meta.List(req.Prefix, req.After, 3) // small pages, to see them joined
	resp := &bookiepb.ListResponse{Result: &bookiepb.Result{}, More: more}
	for _, it := range items {
		resp.Items = append(resp.Items, toItem(it))
	}
	return resp, nil
}

func (m *metaServer) Commit(_ context.Context, req *bookiepb.CommitRequest) (*bookiepb.CommitResponse, error) {
	if r := m.refusal(); r != nil {
		return &bookiepb.CommitResponse{Result: r}, nil
	}
	txn, err := metadata.DecodeTxn(req.Txn)
	if err != nil {
		return &bookiepb.CommitResponse{Result: &bookiepb.Result{Code: bookiepb.Code_BAD_REQUEST}}, nil
	}
	f := m.b.cluster
	what := doIt
	if hook := f.getHooks().commit; hook != nil {
		what = hook(m.b)
	}
	switch what {
	case breakOff:
		return nil, status.Error(codes.Unavailable, "lost")
	case sayUnknown:
		return &bookiepb.CommitResponse{Result: &bookiepb.Result{Code: bookiepb.Code_UNKNOWN}}, nil
	case overload:
		return &bookiepb.CommitResponse{Result: &bookiepb.Result{Code: bookiepb.Code_OVERLOADED}}, nil
	}
	out := f.commit(txn)
	if what == loseAck {
		return nil, status.Error(codes.Unavailable, "lost")
	}
	resp := &bookiepb.CommitResponse{Result: &bookiepb.Result{}, Versions: out.Versions, Revision: out.Revision, Failed: int32(out.Failed)}
	if out.Err != nil {
		resp.Result.Code, resp.Result.Message = bookiepb.Code_BAD_VERSION, out.Err.Error()
	}
	return resp, nil
}

func (f *fakeCluster) commit(txn metadata.Txn) metadata.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits++
	out, events := f.meta.Apply(txn)
	for ch, prefix := range f.watches {
		var mine []metadata.Item
		for _, ev := range events {
			if len(ev.Key) >= len(prefix) && ev.Key[:len(prefix)] == prefix {
				mine = append(mine, ev)
			}
		}
		if len(mine) > 0 {
			ch <- mine
		}
	}
	return out
}

func (m *metaServer) Watch(req *bookiepb.WatchRequest, s grpc.ServerStreamingServer[bookiepb.WatchResponse]) error {
	if r := m.refusal(); r != nil {
		return s.Send(&bookiepb.WatchResponse{Result: r})
	}
	f := m.b.cluster
	ch := make(chan []metadata.Item, 100)
	f.mu.Lock()
	items, _ := f.meta.List(req.Prefix, "", 0)
	f.watches[ch] = req.Prefix
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, ch)
	}()
	send := func(items []metadata.Item, synced bool) error {
		resp := &bookiepb.WatchResponse{Synced: synced}
		for _, it := range items {
			resp.Events = append(resp.Events, &bookiepb.Event{Item: toItem(it)})
		}
		return s.Send(resp)
	}
	if err := send(items, false); err != nil {
		return err
	}
	if err := send(nil, true); err != nil {
		return err
	}
	for {
		select {
		case <-s.Context().Done():
			return nil
		case items := <-ch:
			if err := send(items, true); err != nil {
				return err
			}
		}
	}
}
