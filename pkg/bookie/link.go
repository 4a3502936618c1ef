package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// links holds the connections to the other bookies for calls of Raft: two for each, made at the first call.
type links struct {
	self  identity
	book  *addressBook
	conns *conns
	log   *slog.Logger
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup

	refused complaints        // peers that were
	rooms   rooms             // what peers say of their disks
	full    func() bool       // what they are told of this one
	lost    func(peer string) // a connection that was good broke; does not block

	mu     sync.Mutex
	byLane map[lane]*link
}

// bulkMessage is the size from which a message travels on the bulk lane.
const bulkMessage = 256 << 10

// lane names one of the two connections to a peer. What is large has one of its own: a follower of one group that catches
// up with calls of tens of MiB must not delay the heartbeats and votes of all other groups behind them. Raft does not need
// the order of calls; every call has a goroutine of its own at the other end anyway.
type lane struct {
	peer string
	bulk bool
}

// laneFor chooses the connection for a call.
func laneFor(peer string, req *bookiepb.RaftRequest) lane {
	size := 0
	for _, e := range req.GetAppendEntries().GetEntries() {
		size += len(e.GetData()) + len(e.GetExtensions())
	}
	return lane{peer, size >= bulkMessage}
}

func newLinks(self identity, book *addressBook, conns *conns, log *slog.Logger) *links {
	ctx, cancel := context.WithCancel(context.Background())
	return &links{self: self, book: book, conns: conns, log: log, ctx: ctx, stop: cancel, lost: func(string) {}, full: func() bool { return false }, byLane: map[lane]*link{}}
}

func (ls *links) get(to lane) *link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byLane[to]
	if l == nil {
		l = &link{owner: ls, peer: to.peer, out: make(chan *linkCall), pending: map[uint64]*linkCall{}}
		ls.byLane[to] = l
		if ls.ctx.Err() == nil {
			ls.wg.Go(l.run)
		}
	}
	return l
}

func (ls *links) close() {
	ls.mu.Lock()
	ls.stop()
	ls.mu.Unlock()
	ls.wg.Wait()
}

// link is one lane to a peer, which carries the calls of all groups. One goroutine sends, one receives; calls are matched
// with their answers by id.
type link struct {
	owner *links
	peer  string
	out   chan *linkCall

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]*linkCall // sent, not answered
}

// linkCall is one call on its way.
type linkCall struct {
	req    *bookiepb.RaftRequest
	answer chan *bookiepb.RaftResponse // holds one; nil: the connection broke
}

// call sends a request and waits for its answer. While the link is down it waits for it to come back: an election
// should not be lost because a connection was still being made.
func (l *link) call(req *bookiepb.RaftRequest, timeout time.Duration, closed <-chan struct{}) (*bookiepb.RaftResponse, error) {
	req.ClusterId = l.owner.self.clusterID
	c := &linkCall{req: req, answer: make(chan *bookiepb.RaftResponse, 1)}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case l.out <- c:
	case <-timer.C:
		return nil, fmt.Errorf("%w: %s", errUnavailable, l.peer)
	case <-closed:
		return nil, errStopped
	case <-l.owner.ctx.Done():
		return nil, errStopped
	}
	select {
	case resp := <-c.answer:
		if resp == nil {
			return nil, fmt.Errorf("%w: %s: connection lost", errUnavailable, l.peer)
		}
		return resp, nil
	case <-timer.C:
		l.forget(c)
		return nil, fmt.Errorf("%s gave no answer for %s", l.peer, timeout)
	case <-closed:
		l.forget(c)
		return nil, errStopped
	case <-l.owner.ctx.Done():
		return nil, errStopped
	}
}

// run keeps a connection open until the bookie closes.
func (l *link) run() {
	const least, most = 50 * time.Millisecond, 2 * time.Second
	wait := least
	for l.owner.ctx.Err() == nil {
		started := time.Now()
		good, err := l.session()
		if good {
			l.owner.lost(l.peer)
		}
		if time.Since(started) > most {
			wait = least
		}
		l.owner.log.Debug("link to bookie is down", "peer", l.peer, "error", err)
		select {
		case <-time.After(wait):
		case <-l.owner.ctx.Done():
		}
		wait = min(2*wait, most)
	}
}

// session makes one connection and sends until it breaks. good says whether the peer had answered as it should.
func (l *link) session() (good bool, err error) {
	ctx, cancel := context.WithCancel(l.owner.ctx)
	defer cancel()
	conn, lane, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	l.owner.log.Debug("link to bookie is up", "peer", l.peer)
	silence := time.AfterFunc(laneSilence, func() { _ = conn.Close() })
	defer silence.Stop()
	broken := make(chan error, 1)
	l.owner.wg.Go(func() {
		broken <- l.receive(lane, silence)
		_ = conn.Close() // a write that waits for room ends, too
	})
	defer l.dropPending()
	ping := time.NewTicker(lanePing)
	defer ping.Stop()
	for {
		select {
		case c := <-l.out:
			l.put(lane, c)
		case <-ping.C:
			lane.PutPing()
		case err := <-broken:
			return true, err
		}
		l.gather(lane)
		if lane.Flush() != nil {
			_ = conn.Close() // receive says why
			return true, <-broken
		}
	}
}

const (
	// lanePing is how often a bookie pings those that it has a lane to.
	lanePing = 5 * time.Second
	// laneSilence is after how long without an answer to a ping the caller takes a lane for broken, and without a ping
	// the other end.
	laneSilence = 20 * time.Second
	// laneGreeting bounds dialling and the two hellos, each.
	laneGreeting = bookiepb.Greeting
	// laneBurst is how many bytes are gathered from calls that wait before they are sent.
	laneBurst = 256 << 10
)

// connect makes a lane that ends with ctx.
func (l *link) connect(ctx context.Context) (net.Conn, *bookiepb.Lane, error) {
	addr, ok := l.owner.book.address(l.peer)
	if !ok {
		return nil, nil, fmt.Errorf("%w: address of bookie %q is not known", errUnavailable, l.peer)
	}
	dialing, cancel := context.WithTimeout(ctx, laneGreeting)
	conn, err := l.owner.conns.dial(dialing, addr)
	cancel()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	// A listener that accepts and never answers must not hold the link: calls would wait for it one by one.
	timer := time.AfterFunc(laneGreeting, func() { _ = conn.Close() })
	defer timer.Stop()
	lane := bookiepb.NewLane(conn)
	hello, err := lane.Call(l.owner.self.hello())
	if err == nil && hello.GetError() != "" {
		err = fmt.Errorf("%s refuses us: %s", l.peer, hello.GetError())
	}
	if err == nil {
		err = l.owner.checkPeer(identityOf(hello), l.peer)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, lane, nil
}

// put adds a call to what is sent next. One that cannot be sent fails alone.
func (l *link) put(lane *bookiepb.Lane, c *linkCall) {
	l.remember(c)
	if err := lane.PutRequest(c.req); err != nil {
		l.answer(c.req.Id, &bookiepb.RaftResponse{Error: err.Error()})
	}
}

// gather adds the calls that wait already.
func (l *link) gather(lane *bookiepb.Lane) {
	for lane.Buffered() < laneBurst {
		select {
		case c := <-l.out:
			l.put(lane, c)
		default:
			return
		}
	}
}

func (l *link) conn() (*grpc.ClientConn, error) {
	addr, ok := l.owner.book.address(l.peer)
	if !ok {
		return nil, fmt.Errorf("%w: address of bookie %q is not known", errUnavailable, l.peer)
	}
	return l.owner.conns.get(addr)
}

func (l *link) receive(lane *bookiepb.Lane, silence *time.Timer) error {
	for {
		resp, err := lane.ReadResponse()
		if err != nil {
			return err
		}
		silence.Reset(laneSilence)
		if resp == nil {
			continue // the answer to a ping
		}
		l.owner.rooms.heard(l.peer, resp.GetFull(), time.Now())
		l.answer(resp.GetId(), resp)
	}
}

func (l *link) remember(c *linkCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextID++
	c.req.Id = l.nextID
	l.pending[c.req.Id] = c
}

// forget drops a call that nobody waits for any more.
func (l *link) forget(c *linkCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, p := range l.pending {
		if p == c {
			delete(l.pending, id)
		}
	}
}

func (l *link) answer(id uint64, resp *bookiepb.RaftResponse) {
	l.mu.Lock()
	c := l.pending[id]
	delete(l.pending, id)
	l.mu.Unlock()
	if c != nil {
		c.answer <- resp
	}
}

// dropPending fails all calls that were sent and not answered. Those that still wait to be sent go on waiting.
func (l *link) dropPending() {
	l.mu.Lock()
	all := l.pending
	l.pending = map[uint64]*linkCall{}
	l.mu.Unlock()
	for _, c := range all {
		c.answer <- nil
	}
}

// snapshotChunk is what one message of a snapshot carries.
const snapshotChunk = 256 << 10

func (l *link) sendSnapshot(ctx context.Context, group ledger.GroupID, args *raft.InstallSnapshotRequest, data io.Reader) (*bookiepb.RaftResponse, error) {
	conn, err := l.conn()
	if err != nil {
		return nil, err
	}
	stream, err := bookiepb.NewRaftClient(conn).InstallSnapshot(l.owner.self.outgoing(ctx))
	if err != nil {
		return nil, err
	}
	chunk := &bookiepb.SnapshotChunk{Group: uint32(group), ClusterId: l.owner.self.clusterID, Head: snapshotHeadToPB(args)}
	buf := make([]byte, snapshotChunk)
	for {
		if err := stream.Send(chunk); err != nil {
			if errors.Is(err, io.EOF) { // the peer has answered already, or the stream is broken: CloseAndRecv says which
				break
			}
			return nil, err
		}
		n, err := io.ReadFull(data, buf)
		if n == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		chunk = &bookiepb.SnapshotChunk{Data: buf[:n]}
	}
	resp, err := stream.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	if head, herr := stream.Header(); herr == nil {
		err = l.owner.checkPeer(identityIn(head), l.peer)
	}
	return resp, err
}

// Keys of the stream metadata by which bookies recognize one another.
const (
	fromKey     = "geminga-bookie"
	instanceKey = "geminga-instance"
)

// outgoing adds who we are.
func (id identity) outgoing(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, id.pairs())
}

func (id identity) pairs() metadata.MD {
	return metadata.Pairs(bookiepb.ClusterHeader, id.clusterID, fromKey, id.bookieID, instanceKey, id.instance)
}

// hello is what it says on a lane.
func (id identity) hello() *bookiepb.RaftHello {
	return &bookiepb.RaftHello{ClusterId: id.clusterID, BookieId: id.bookieID, Instance: id.instance}
}

func identityOf(h *bookiepb.RaftHello) identity {
	return identity{clusterID: h.GetClusterId(), bookieID: h.GetBookieId(), instance: h.GetInstance()}
}

// identityIn is what the metadata of a stream says.
func identityIn(md metadata.MD) identity {
	get := func(key string) string {
		if v := md.Get(key); len(v) == 1 {
			return v[0]
		}
		return ""
	}
	return identity{clusterID: get(bookiepb.ClusterHeader), bookieID: get(fromKey), instance: get(instanceKey)}
}

// checkPeer compares what a peer says of itself with what the cluster knows. A bookie whose disk was wiped comes back
// under its id with another instance: it has forgotten its votes and its entries, and must not be counted. One that is
// not registered here yet is refused too, and tries again: raft itself would take entries from anybody.
func (ls *links) checkPeer(is identity, want string) error {
	switch {
	case is.clusterID != ls.self.clusterID:
		return fmt.Errorf("%w: peer is of cluster %q, this is %q", ErrWrongCluster, is.clusterID, ls.self.clusterID)
	case want != "" && is.bookieID != want:
		return fmt.Errorf("%w: expected bookie %q, found %q at its address", ErrIdentity, want, is.bookieID)
	case !ls.book.known(is.bookieID):
		return fmt.Errorf("%w: %q is not registered", errStranger, is.bookieID)
	}
	if known, ok := ls.book.instance(is.bookieID); ok && known != is.instance {
		return fmt.Errorf("%w: bookie %q is registered as instance %s, this is %s", ErrIdentity, is.bookieID, known, is.instance)
	}
	return nil
}
