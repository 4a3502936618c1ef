package bookie

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// Whatever a call says, raft survives it, and stores nothing that it would not survive at its next start.
func TestCallsThatRaftWouldNotSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := testLinks(t, Member{})
		store := raft.NewInmemStore()
		n := node{health: newHealth(nil), log: links.log, wait: time.Second, stop: make(chan struct{})}
		n.startSilent(t, links, store)
		defer n.close(t.Context())
		service := &raftService{links: links, find: func(ledger.GroupID) *transport { return n.transport }, opts: RaftOptions{RPCTimeout: time.Second}}
		call := func(prev uint64, entries ...*raft.Log) *bookiepb.RaftResponse {
			header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("b"), Addr: []byte("b")}
			a := appendToPB(&raft.AppendEntriesRequest{RPCHeader: header, Term: 1, PrevLogEntry: prev, PrevLogTerm: min(prev, 1), Entries: entries})
			return service.answer(t.Context(), &bookiepb.RaftRequest{
				Id: 1, Group: 1, ClusterId: links.self.clusterID, Body: &bookiepb.RaftRequest_AppendEntries{AppendEntries: a},
			})
		}
		conf := raft.EncodeConfiguration(configurationOf([]string{"a", "b", "c"}))
		good := func(index uint64) *raft.Log {
			return &raft.Log{Index: index, Term: 1, Type: raft.LogConfiguration, Data: conf}
		}
		for name, entries := range map[string][]*raft.Log{
			"a type that is not known":     {good(1), {Index: 2, Term: 1, Type: raft.LogConfiguration + 1}},
			"a type of former times":       {good(1), {Index: 2, Term: 1, Type: raft.LogAddPeerDeprecated, Data: []byte("b")}},
			"another type of former times": {good(1), {Index: 2, Term: 1, Type: raft.LogRemovePeerDeprecated, Data: []byte("b")}},
			"half a configuration":         {good(1), {Index: 2, Term: 1, Type: raft.LogConfiguration, Data: conf[:len(conf)/2]}},
			"no configuration":             {good(1), {Index: 2, Term: 1, Type: raft.LogConfiguration}},
			"a gap":                        {good(1), good(3)},
			"a gap before all":             {good(2)},
		} {
			if resp := call(0, entries...); resp.GetError() == "" {
				t.Errorf("%s: %v", name, resp)
			}
		}
		if last, err := store.LastIndex(); last != 0 || err != nil {
			t.Errorf("%d entries are stored, error %v", last, err)
		}
		for i := range uint64(2) {
			if resp := call(i, good(i+1)); !resp.GetAppendEntries().GetSuccess() {
				t.Errorf("afterwards: %v", resp)
			}
		}
		if head, err := snapshotHeadFromPB(&bookiepb.InstallSnapshotHead{Configuration: conf[:len(conf)/2]}); err == nil {
			t.Errorf("%+v is taken", head)
		}
	})
}
