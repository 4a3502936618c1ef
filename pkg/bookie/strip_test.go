package bookie

import (
	"testing"

	"github.com/hashicorp/raft"
)

// What a call says beyond what is applied stays as it is, is compared when it continues something else, and commits nothing
// behind it.
func TestStrip(t *testing.T) {
	const term, applied = 5, 100
	for _, c := range []struct {
		name               string
		term, prev, commit uint64
		entries            int
		wantPrev           uint64
		wantFirst          uint64 // 0: none
		wantCommit         uint64
	}{
		{"continues what is applied", 5, 100, 103, 3, 0, 101, 103},
		{"begins before, and goes on", 5, 90, 103, 13, 0, 101, 103},
		{"says nothing new", 5, 90, 103, 10, 0, 0, 100},
		{"says less", 6, 90, 93, 4, 0, 0, 93},
		{"no entries", 5, 90, 120, 0, 0, 0, 90},
		{"the very first, sent again", 5, 0, 120, 3, 0, 0, 3},
		{"the very first, and more", 5, 0, 120, 103, 0, 101, 103},
		{"the very first, of an old leader", 4, 0, 120, 3, 0, 1, 3},
		{"heartbeat", 5, 0, 0, 0, 0, 0, 0},
		{"beyond", 5, 110, 111, 2, 110, 111, 111},
		{"beyond, and more is committed", 5, 110, 150, 2, 110, 111, 112},
		{"of an old leader", 4, 90, 103, 13, 90, 91, 103},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := &transport{progress: func() (uint64, uint64) { return term, applied }}
			req := &raft.AppendEntriesRequest{Term: c.term, PrevLogEntry: c.prev, PrevLogTerm: c.prev % 7, LeaderCommitIndex: c.commit}
			for i := range c.entries {
				index := c.prev + 1 + uint64(i)
				req.Entries = append(req.Entries, &raft.Log{Index: index, Term: index % 7})
			}
			tr.strip(req)
			first, last := uint64(0), c.prev+uint64(c.entries)
			if len(req.Entries) > 0 {
				first = req.Entries[0].Index
				if end := req.Entries[len(req.Entries)-1].Index; end != last {
					t.Errorf("ends at %d, want %d", end, last)
				}
			}
			if req.PrevLogEntry != c.wantPrev || req.PrevLogTerm != c.wantPrev%7 || first != c.wantFirst || req.LeaderCommitIndex != c.wantCommit {
				t.Errorf("continues %d of term %d from %d on, commit %d", req.PrevLogEntry, req.PrevLogTerm, first, req.LeaderCommitIndex)
			}
		})
	}
}

// A snapshot that says nothing new is not taken, and a leader of an older term learns of the newer one from raft.
func TestCovered(t *testing.T) {
	const term, applied = 5, 100
	for _, c := range []struct {
		name        string
		term, index uint64
		raft, fails bool
	}{
		{"new", 5, 101, true, false},
		{"new, of an older term", 4, 101, true, false},
		{"known", 5, 100, false, false},
		{"known, of an older term", 4, 100, true, false},
		{"long known, of an older term", 4, 7, true, false},
		{"known, of a newer term", 6, 100, false, true},
	} {
		tr := &transport{progress: func() (uint64, uint64) { return term, applied }, health: newHealth(nil)}
		resp, err := tr.covered(&raft.InstallSnapshotRequest{Term: c.term, LastLogIndex: c.index})
		if (err != nil) != c.fails || (resp == nil && err == nil) != c.raft {
			t.Errorf("%s: %+v, %v", c.name, resp, err)
		}
		if resp != nil && (!resp.Success || resp.Term != term) {
			t.Errorf("%s: %+v", c.name, resp)
		}
	}
}
