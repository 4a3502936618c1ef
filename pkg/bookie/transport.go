package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// transport is raft's view of the network for one group. All groups of a pair of bookies share one connection and its
// two streams (lane); a transport only adds the group's number and waits for answers.
//
// Servers are addressed by bookie id. Where a bookie listens is looked up when its connection is made, so a bookie may
// move without a change of any Raft configuration.
//
// There is no fast path for heartbeats: they go through Consumer like everything else, because the library handles
// them in its main loop only then. There is no pipeline either. Both have broken groups in other systems. How followers
// that lag catch up nevertheless: ahead.
type transport struct {
	group     ledger.GroupID
	self      string
	links     *links
	health    *health
	timeout   time.Duration
	snapshots time.Duration
	inbox     chan raft.RPC
	closed    chan struct{}
	progress  func() (term, applied uint64) // of the replica; nil: not known
	ahead     atomic.Pointer[ahead]         // nil: calls go as raft makes them
	lagging   *lagging
	silent    atomic.Bool // the replica is not asked for its vote, nor to stand for election
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
)

func newTransport(group ledger.GroupID, links *links, h *health, o RaftOptions) *transport {
	return &transport{
		group: group, self: links.self.bookieID, links: links, health: h,
		timeout: o.RPCTimeout, snapshots: o.SnapshotTimeout,
		inbox: make(chan raft.RPC), closed: make(chan struct{}), lagging: &lagging{},
	}
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.inbox }

// LocalAddr implements raft.Transport.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.self) }

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// SetHeartbeatHandler implements raft.Transport by ignoring the handler.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// EncodePeer implements raft.Transport.
func (t *transport) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }

// DecodePeer implements raft.Transport.
func (t *transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (err error) {
	a, n := t.ahead.Load(), len(args.Entries)
	a.extend(id, args)
	defer func() {
		took := err == nil && resp.Success
		a.ended(id, args, took)
		if took && n > 0 {
			t.lagging.appended(id, args.Entries[len(args.Entries)-1].Index, a != nil && n >= a.full)
		}
	}()
	m, err := t.call(id, &bookiepb.RaftRequest{Body: &bookiepb.RaftRequest_AppendEntries{AppendEntries: appendToPB(args)}})
	if err != nil {
		return err
	}
	r := m.GetAppendEntries()
	if r == nil {
		return wrongAnswer(m)
	}
	appendResultFromPB(r, resp)
	return nil
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	m, err := t.call(id, &bookiepb.RaftRequest{Body: &bookiepb.RaftRequest_RequestVote{RequestVote: voteToPB(args)}})
	if err != nil {
		return err
	}
	r := m.GetRequestVote()
	if r == nil {
		return wrongAnswer(m)
	}
	*resp = raft.RequestVoteResponse{RPCHeader: headerFromPB(r.GetHeader()), Term: r.GetTerm(), Peers: r.GetPeers(), Granted: r.GetGranted()}
	return nil
}

// RequestPreVote implements raft.WithPreVote. Without it the library silently turns pre-votes off.
func (t *transport) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	m, err := t.call(id, &bookiepb.RaftRequest{Body: &bookiepb.RaftRequest_RequestPreVote{RequestPreVote: preVoteToPB(args)}})
	if err != nil {
		return err
	}
	r := m.GetRequestPreVote()
	if r == nil {
		return wrongAnswer(m)
	}
	*resp = raft.RequestPreVoteResponse{RPCHeader: headerFromPB(r.GetHeader()), Term: r.GetTerm(), Granted: r.GetGranted()}
	return nil
}

// TimeoutNow implements raft.Transport.
func (t *transport) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	m, err := t.call(id, &bookiepb.RaftRequest{Body: &bookiepb.RaftRequest_TimeoutNow{
		TimeoutNow: &bookiepb.TimeoutNow{Header: headerToPB(args.RPCHeader)},
	}})
	if err != nil {
		return err
	}
	if m.GetTimeoutNow() == nil {
		return wrongAnswer(m)
	}
	resp.RPCHeader = headerFromPB(m.GetTimeoutNow().GetHeader())
	return nil
}

// timeoutNow tells a replica that its election timeout is over.
func (t *transport) timeoutNow(id string) error {
	return t.TimeoutNow(raft.ServerID(id), raft.ServerAddress(id), t.timeoutIsOver(), &raft.TimeoutNowResponse{})
}

// timeoutIsOver is the message with which this replica says so.
func (t *transport) timeoutIsOver() *raft.TimeoutNowRequest {
	self := []byte(t.self)
	return &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self}}
}

// InstallSnapshot implements raft.Transport, on a stream of its own.
func (t *transport) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) (err error) {
	t.lagging.sending(id, args.LastLogIndex, t.snapshots)
	defer func() { t.lagging.sent(id, args.LastLogIndex, err == nil && resp.Success) }()
	if err := t.mayspeak(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.links.ctx, t.snapshots)
	defer cancel()
	go func() { // ends with the call: raft's shutdown waits for it, and the peer may read nothing
		select {
		case <-t.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	m, err := t.links.get(lane{peer: string(id)}).sendSnapshot(ctx, t.group, args, data)
	if err != nil {
		return err
	}
	r := m.GetInstallSnapshot()
	if m.GetError() != "" || r == nil {
		return wrongAnswer(m)
	}
	*resp = raft.InstallSnapshotResponse{RPCHeader: headerFromPB(r.GetHeader()), Term: r.GetTerm(), Success: r.GetSuccess()}
	return nil
}

// covered answers for a snapshot that says nothing new: one that was long on its way. Raft would take it and go back to
// it, and not find the log that it compacted since. Nil: let raft see it. That is so for a leader of an older term, too,
// which has to hear of the newer one: it may have nothing else to send than this snapshot, again and again, while this
// replica refuses its heartbeats.
func (t *transport) covered(req *raft.InstallSnapshotRequest) (*raft.InstallSnapshotResponse, error) {
	if t.progress == nil {
		return nil, nil
	}
	term, applied := t.progress()
	switch {
	case req.LastLogIndex > applied, req.Term < term:
		return nil, nil
	case req.Term > term: // its heartbeats bring the term
		return nil, fmt.Errorf("group %d has applied %d, beyond a snapshot of %d", t.group, applied, req.LastLogIndex)
	}
	return &raft.InstallSnapshotResponse{RPCHeader: req.RPCHeader, Term: term, Success: true}, t.mayspeak()
}

func (t *transport) mayspeak() error {
	if err := t.health.err(); err != nil {
		return fmt.Errorf("%w: %w", errStopped, err)
	}
	return nil
}

func (t *transport) call(id raft.ServerID, req *bookiepb.RaftRequest) (*bookiepb.RaftResponse, error) {
	if err := t.mayspeak(); err != nil {
		return nil, err
	}
	req.Group = uint32(t.group)
	resp, err := t.links.get(laneFor(string(id), req)).call(req, t.timeout, t.closed)
	if err != nil {
		return nil, err
	}
	if resp.GetError() != "" {
		return nil, fmt.Errorf("%s: %s", id, resp.GetError())
	}
	return resp, nil
}

// errNoSay: the replica has no say in elections yet.
var errNoSay = errors.New("this replica has no say in elections yet")

func wrongAnswer(m *bookiepb.RaftResponse) error {
	if m.GetError() != "" {
		return fmt.Errorf("peer: %s", m.GetError())
	}
	return fmt.Errorf("peer answered with %T", m.GetBody())
}

// serve hands a call of a peer to raft and waits for its answer. It never holds up another group: every call has a
// goroutine of its own.
func (t *transport) serve(ctx context.Context, command any, data io.Reader, timeout time.Duration) (any, error) {
	if err := t.mayspeak(); err != nil {
		return nil, err
	}
	switch command.(type) {
	case *raft.RequestVoteRequest, *raft.RequestPreVoteRequest, *raft.TimeoutNowRequest:
		if t.silent.Load() {
			return nil, errNoSay
		}
	}
	answer := make(chan raft.RPCResponse, 1) // raft never waits for us
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case t.inbox <- raft.RPC{Command: command, Reader: data, RespChan: answer}:
	case <-t.closed:
		return nil, errStopped
	case <-t.health.failed:
		return nil, t.mayspeak()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("group %d took no call for %s", t.group, timeout)
	}
	select {
	case r := <-answer:
		if err := t.mayspeak(); err != nil {
			return nil, err // see health: what a failed replica says does not count
		}
		return r.Response, r.Error
	case <-t.closed:
		return nil, errStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("group %d gave no answer for %s", t.group, timeout)
	}
}

// close ends all waits, those of raft's own goroutines too, which its shutdown waits for: raft is to be shutting down.
func (t *transport) close() { close(t.closed) }
