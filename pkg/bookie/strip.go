package bookie

import "github.com/hashicorp/raft"

// strip takes what this replica has applied out of a leader's call. Raft looks up the entry that a call continues in the
// log, and refuses the call when the log was compacted beyond it, although it has that entry and all up to it: the call was
// long on its way, or is sent again. The leader then goes back, finds that its own log begins behind that, and sends its
// snapshot; the snapshot says nothing new (covered), and everything begins anew, without an end and without a pause.
// What is applied was committed, so a leader of this term has the same: nothing has to be compared.
//
// It also holds a replica to what the paper says of the commit index, which the library takes to the end of the log,
// whatever is there: an entry behind those of the call was not compared with the leader's.
func (t *transport) strip(req *raft.AppendEntriesRequest) {
	last := req.PrevLogEntry + uint64(len(req.Entries))
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, last)
	if t.progress == nil {
		return
	}
	term, applied := t.progress()
	if req.Term < term || req.PrevLogEntry > applied {
		return // raft refuses it, or compares
	}
	req.PrevLogEntry, req.PrevLogTerm = 0, 0
	for len(req.Entries) > 0 && req.Entries[0].Index <= applied {
		req.Entries = req.Entries[1:]
	}
}
