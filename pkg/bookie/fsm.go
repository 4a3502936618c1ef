package bookie

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
)

// errNoSnapshots: the log of a ledger group is its storage and is never compacted, so nothing is ever snapshotted.
var errNoSnapshots = errors.New("ledger groups have no snapshots")

// fsm applies the log of a ledger group: the pure ledger.Machine, and the index of where entries are.
//
// Raft calls it on one goroutine and hands work over through a short channel, so a slow Apply stops the group's main
// loop. It therefore does nothing but memory work. Readers share the lock only for a lookup, never for I/O.
//
// It is deterministic: two replicas that applied the same log have equal machines. The index is derived from the same
// log, and both are rebuilt by replaying it after a restart.
type fsm struct {
	health  *health
	applied atomic.Uint64 // index of the last entry applied
	applies atomic.Uint64 // proposals applied, for the watchdog

	mu      sync.RWMutex
	machine *ledger.Machine
	index   *index
}

var _ raft.BatchingFSM = (*fsm)(nil)

func newFSM(h *health) *fsm {
	return &fsm{health: h, machine: ledger.NewMachine(), index: newIndex()}
}

// Apply implements raft.FSM.
func (f *fsm) Apply(log *raft.Log) any { return f.ApplyBatch([]*raft.Log{log})[0] }

// ApplyBatch implements raft.BatchingFSM. The answer to a proposal is a []ledger.Result, one for each command.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, log := range logs {
		if !f.health.ok() {
			return out // what was read for a failed replica may not be what was written
		}
		if log.Type == raft.LogCommand {
			out[i] = f.applyLocked(log)
		}
		f.applied.Store(log.Index)
	}
	return out
}

func (f *fsm) applyLocked(log *raft.Log) []ledger.Result {
	f.applies.Add(1)
	results := make([]ledger.Result, 0, 8)
	for rest := log.Data; len(rest) > 0; {
		c, tail, err := ledger.NextCommand(rest)
		if err != nil {
			// Every command was checked before it was proposed. Should one be broken nevertheless, it is on all
			// replicas, which skip the same bytes.
			return append(results, ledger.Result{Last: ledger.NoEntry, Err: ledger.ErrBadCommand})
		}
		res, change := f.machine.Apply(&c)
		end := len(log.Data) - len(tail)
		f.index.update(c.Ledger, change, run{
			index: log.Index, offset: uint32(end - len(c.Body)), length: uint32(len(c.Body)),
		})
		results = append(results, res)
		rest = tail
	}
	return results
}

// state returns what is known of a ledger.
func (f *fsm) state(id ledger.ID) (ledger.State, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.machine.State(id)
}

// find returns a ledger's state and the run that holds an entry of it.
func (f *fsm) find(id ledger.ID, entry ledger.EntryID) (st ledger.State, exists bool, r run, found bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	st, exists = f.machine.State(id)
	r, found = f.index.find(id, entry)
	return st, exists, r, found
}

func (f *fsm) ledgers() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.machine.Len()
}

// Snapshot implements raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }

// Restore implements raft.FSM.
func (f *fsm) Restore(r io.ReadCloser) error {
	return errors.Join(errNoSnapshots, r.Close())
}
