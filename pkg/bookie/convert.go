package bookie

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"geminga/rpc/bookiepb"
)

// The functions below turn raft's messages into ours and back. They keep the payload slices: a message lives only
// until it is on the wire, and a decoded message owns its memory.

func headerToPB(h raft.RPCHeader) *bookiepb.RaftHeader {
	return &bookiepb.RaftHeader{ProtocolVersion: int32(h.ProtocolVersion), Id: h.ID, Addr: h.Addr}
}

func headerFromPB(h *bookiepb.RaftHeader) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(h.GetProtocolVersion()), ID: h.GetId(), Addr: h.GetAddr()}
}

func appendToPB(a *raft.AppendEntriesRequest) *bookiepb.AppendEntries {
	m := &bookiepb.AppendEntries{
		Header: headerToPB(a.RPCHeader), Term: a.Term, Leader: a.Leader, //nolint:staticcheck // still sent by the library
		PrevLogEntry: a.PrevLogEntry, PrevLogTerm: a.PrevLogTerm, LeaderCommitIndex: a.LeaderCommitIndex,
	}
	if len(a.Entries) == 0 {
		return m
	}
	logs := make([]bookiepb.RaftLog, len(a.Entries))
	m.Entries = make([]*bookiepb.RaftLog, len(a.Entries))
	for i, e := range a.Entries {
		l := &logs[i]
		l.Index, l.Term, l.Type, l.Data, l.Extensions = e.Index, e.Term, uint32(e.Type), e.Data, e.Extensions
		if !e.AppendedAt.IsZero() {
			l.AppendedAtNanos = e.AppendedAt.UnixNano()
		}
		m.Entries[i] = l
	}
	return m
}

func appendFromPB(m *bookiepb.AppendEntries) (*raft.AppendEntriesRequest, error) {
	a := &raft.AppendEntriesRequest{
		RPCHeader: headerFromPB(m.GetHeader()), Term: m.GetTerm(), Leader: m.GetLeader(),
		PrevLogEntry: m.GetPrevLogEntry(), PrevLogTerm: m.GetPrevLogTerm(), LeaderCommitIndex: m.GetLeaderCommitIndex(),
	}
	if len(m.GetEntries()) == 0 {
		return a, nil
	}
	logs := make([]raft.Log, len(m.Entries))
	a.Entries = make([]*raft.Log, len(m.Entries))
	next := m.GetPrevLogEntry() + 1
	for i, l := range m.Entries {
		if err := checkEntry(l, next); err != nil {
			return nil, err
		}
		next++
		e := &logs[i]
		e.Index, e.Term, e.Type, e.Data, e.Extensions = l.GetIndex(), l.GetTerm(), raft.LogType(l.GetType()), l.GetData(), l.GetExtensions()
		if n := l.GetAppendedAtNanos(); n != 0 {
			e.AppendedAt = time.Unix(0, n)
		}
		a.Entries[i] = e
	}
	return a, nil
}

// checkEntry refuses what raft would not survive: it panics on a log type that it does not know when it applies the entry, on
// every replica at once, and on a configuration that it cannot decode when the entry is durable already, so that the bookie
// would not start again either. The journal would make room for an entry that does not follow.
func checkEntry(l *bookiepb.RaftLog, index uint64) error {
	switch t := raft.LogType(l.GetType()); {
	case l.GetIndex() != index:
		return fmt.Errorf("log entry %d follows %d", l.GetIndex(), index-1)
	case l.GetType() > uint32(raft.LogConfiguration), t == raft.LogAddPeerDeprecated, t == raft.LogRemovePeerDeprecated:
		return fmt.Errorf("log entry %d has unknown type %d", l.GetIndex(), l.GetType())
	case t == raft.LogConfiguration:
		if err := checkConfiguration(l.GetData()); err != nil {
			return fmt.Errorf("log entry %d: %w", l.GetIndex(), err)
		}
	}
	return nil
}

// checkConfiguration says whether raft can decode a configuration, which it does not survive if it cannot.
func checkConfiguration(b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not a configuration: %v", p)
		}
	}()
	raft.DecodeConfiguration(b)
	return nil
}

func appendResultToPB(r *raft.AppendEntriesResponse) *bookiepb.AppendEntriesResult {
	return &bookiepb.AppendEntriesResult{
		Header: headerToPB(r.RPCHeader), Term: r.Term, LastLog: r.LastLog, Success: r.Success, NoRetryBackoff: r.NoRetryBackoff,
	}
}

func appendResultFromPB(m *bookiepb.AppendEntriesResult, r *raft.AppendEntriesResponse) {
	*r = raft.AppendEntriesResponse{
		RPCHeader: headerFromPB(m.GetHeader()), Term: m.GetTerm(), LastLog: m.GetLastLog(),
		Success: m.GetSuccess(), NoRetryBackoff: m.GetNoRetryBackoff(),
	}
}

func voteToPB(v *raft.RequestVoteRequest) *bookiepb.RequestVote {
	return &bookiepb.RequestVote{
		Header: headerToPB(v.RPCHeader), Term: v.Term, Candidate: v.Candidate, //nolint:staticcheck // still on the wire of the library
		LastLogIndex: v.LastLogIndex, LastLogTerm: v.LastLogTerm, LeadershipTransfer: v.LeadershipTransfer,
	}
}

func voteFromPB(m *bookiepb.RequestVote) *raft.RequestVoteRequest {
	return &raft.RequestVoteRequest{
		RPCHeader: headerFromPB(m.GetHeader()), Term: m.GetTerm(), Candidate: m.GetCandidate(),
		LastLogIndex: m.GetLastLogIndex(), LastLogTerm: m.GetLastLogTerm(), LeadershipTransfer: m.GetLeadershipTransfer(),
	}
}

func preVoteToPB(v *raft.RequestPreVoteRequest) *bookiepb.RequestPreVote {
	return &bookiepb.RequestPreVote{
		Header: headerToPB(v.RPCHeader), Term: v.Term, LastLogIndex: v.LastLogIndex, LastLogTerm: v.LastLogTerm,
	}
}

func preVoteFromPB(m *bookiepb.RequestPreVote) *raft.RequestPreVoteRequest {
	return &raft.RequestPreVoteRequest{
		RPCHeader: headerFromPB(m.GetHeader()), Term: m.GetTerm(), LastLogIndex: m.GetLastLogIndex(), LastLogTerm: m.GetLastLogTerm(),
	}
}

func snapshotHeadToPB(a *raft.InstallSnapshotRequest) *bookiepb.InstallSnapshotHead {
	return &bookiepb.InstallSnapshotHead{
		Header: headerToPB(a.RPCHeader), SnapshotVersion: uint64(a.SnapshotVersion), Term: a.Term, Leader: a.Leader,
		LastLogIndex: a.LastLogIndex, LastLogTerm: a.LastLogTerm, Peers: a.Peers,
		Configuration: a.Configuration, ConfigurationIndex: a.ConfigurationIndex, Size: a.Size,
	}
}

func snapshotHeadFromPB(m *bookiepb.InstallSnapshotHead) (*raft.InstallSnapshotRequest, error) {
	if err := checkConfiguration(m.GetConfiguration()); err != nil {
		return nil, fmt.Errorf("snapshot of index %d: %w", m.GetLastLogIndex(), err)
	}
	return &raft.InstallSnapshotRequest{
		RPCHeader: headerFromPB(m.GetHeader()), SnapshotVersion: raft.SnapshotVersion(m.GetSnapshotVersion()),
		Term: m.GetTerm(), Leader: m.GetLeader(), LastLogIndex: m.GetLastLogIndex(), LastLogTerm: m.GetLastLogTerm(),
		Peers: m.GetPeers(), Configuration: m.GetConfiguration(), ConfigurationIndex: m.GetConfigurationIndex(), Size: m.GetSize(),
	}, nil
}

// requestFromPB gives raft's form of a call.
func requestFromPB(m *bookiepb.RaftRequest) (any, error) {
	switch b := m.GetBody().(type) {
	case *bookiepb.RaftRequest_AppendEntries:
		return appendFromPB(b.AppendEntries)
	case *bookiepb.RaftRequest_RequestVote:
		return voteFromPB(b.RequestVote), nil
	case *bookiepb.RaftRequest_RequestPreVote:
		return preVoteFromPB(b.RequestPreVote), nil
	case *bookiepb.RaftRequest_TimeoutNow:
		return &raft.TimeoutNowRequest{RPCHeader: headerFromPB(b.TimeoutNow.GetHeader())}, nil
	}
	return nil, fmt.Errorf("unknown raft call %T", m.GetBody())
}

// outcomeToPB puts the answer to a call into its message: what raft says, or why it says nothing. What an error says is made
// valid UTF-8, or the message could not be encoded, and would take the lane with it.
func outcomeToPB(result any, err error, to *bookiepb.RaftResponse) {
	if err != nil {
		to.Error = strings.ToValidUTF8(err.Error(), "?")
		return
	}
	responseToPB(result, to)
}

// responseToPB fills the answer to a call.
func responseToPB(resp any, m *bookiepb.RaftResponse) {
	switch r := resp.(type) {
	case *raft.AppendEntriesResponse:
		m.Body = &bookiepb.RaftResponse_AppendEntries{AppendEntries: appendResultToPB(r)}
	case *raft.RequestVoteResponse:
		m.Body = &bookiepb.RaftResponse_RequestVote{RequestVote: &bookiepb.VoteResult{
			Header: headerToPB(r.RPCHeader), Term: r.Term, Peers: r.Peers, Granted: r.Granted,
		}}
	case *raft.RequestPreVoteResponse:
		m.Body = &bookiepb.RaftResponse_RequestPreVote{RequestPreVote: &bookiepb.VoteResult{
			Header: headerToPB(r.RPCHeader), Term: r.Term, Granted: r.Granted,
		}}
	case *raft.TimeoutNowResponse:
		m.Body = &bookiepb.RaftResponse_TimeoutNow{TimeoutNow: &bookiepb.TimeoutNowResult{Header: headerToPB(r.RPCHeader)}}
	case *raft.InstallSnapshotResponse:
		m.Body = &bookiepb.RaftResponse_InstallSnapshot{InstallSnapshot: &bookiepb.SnapshotResult{
			Header: headerToPB(r.RPCHeader), Term: r.Term, Success: r.Success,
		}}
	default:
		m.Error = fmt.Sprintf("unexpected answer %T", resp)
	}
}
