package bookie

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
)

// fsm applies the log of a ledger group: the pure ledger.Machine, and the index of where entries are.
//
// Raft calls it on one goroutine and hands work over through a short channel, so a slow Apply stops the group's main
// loop. It therefore does nothing but memory work. Readers share the lock only for a lookup, never for I/O.
//
// It is deterministic: two replicas that applied the same log have equal machines and equal indexes. After a restart
// both come from the newest snapshot and the log behind it.
type fsm struct {
	health   *health
	restored func(whole bool) // called, if not nil, before (false) and after a snapshot replaces the state; must not block
	whole    func() bool      // says, if not nil, whether all entries are here that the index names
	files    *snapshotStore   // where layers of the index go; nil: snapshots have all in them
	applied  atomic.Uint64    // index of the last command applied, or in the snapshot restored
	logged   atomic.Uint64    // index of the last command applied from this replica's own log
	applies  atomic.Uint64    // proposals applied, for the watchdog
	drops    atomic.Uint64    // ledgers deleted or cut since the start
	bytes    atomic.Int64     // of proposals applied that no snapshot covers

	mu      sync.RWMutex
	machine *ledger.Machine
	index   *index
	life    int      // how often a snapshot has replaced the state
	moments []moment // who waits for the state as of an index
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
		f.beforeLocked(log.Index)
		if log.Type == raft.LogCommand {
			out[i] = f.applyLocked(log)
		}
		f.bytes.Add(int64(len(log.Data)))
		f.applied.Store(log.Index)
		f.logged.Store(log.Index)
	}
	f.reachedLocked(f.applied.Load())
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
		if change.Deleted || change.Truncated {
			f.drops.Add(1)
		}
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

// located is what is known of a ledger and of where an entry of it is.
type located struct {
	ledger.State
	exists bool // the ledger does
	run    run
	found  bool // the entry is in the run
}

// find looks an entry up. Its ledger's state is right in any case; the error is that the index cannot be read.
func (f *fsm) find(id ledger.ID, entry ledger.EntryID) (located, error) {
	f.mu.RLock()
	st, exists := f.machine.State(id)
	r, found := f.index.findTail(id, entry)
	layers := f.index.layers
	f.mu.RUnlock()
	out := located{State: st, exists: exists}
	if !exists || entry < 0 || entry > st.Last {
		return out, nil
	}
	var err error
	if !found {
		r, found, err = findLayer(layers, id, entry)
	}
	out.run, out.found = r.clipped(st.Last), found
	return out, err
}

// view returns a copy of the state, with the runs shared.
func (f *fsm) view() *fsmState {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.stateLocked()
}

func (f *fsm) ledgers() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.machine.Len()
}

// Snapshot implements raft.FSM. It costs a small copy for each ledger; the runs are shared, and encoded later.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.health.ok() {
		return nil, errStopped
	}
	f.bytes.Store(0)
	return f.stateLocked(), nil
}

func (f *fsm) stateLocked() *fsmState {
	s := &fsmState{
		applied: f.applied.Load(), machine: f.machine.Clone(), index: f.index.clone(), life: f.life, files: f.files, taken: f.taken,
	}
	s.whole = f.whole != nil && f.whole()
	return s
}

// taken lets the tail go as far as a snapshot has it, unless another state has come meanwhile.
func (f *fsm) taken(s *fsmState, layers []*layer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life == s.life {
		f.index = f.index.without(s.applied, layers)
	}
}

// Restore implements raft.FSM. On an error nothing has changed.
func (f *fsm) Restore(r io.ReadCloser) error {
	s, err := readState(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("group state: %w", err)
	}
	if f.restored != nil {
		f.restored(false)
	}
	f.adopt(s)
	if f.restored != nil {
		f.restored(s.whole)
	}
	return nil
}

// readState reads a snapshot that was taken here, or all of one from elsewhere.
func readState(r io.Reader) (*fsmState, error) {
	if n, ok := underneath(r).(*namedState); ok {
		return n.restore()
	}
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot))
	if err != nil {
		return nil, err
	}
	return decodeState(b)
}

func (f *fsm) adopt(s *fsmState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.machine, f.index = s.machine, s.index
	f.life++
	f.applied.Store(s.applied)
	f.bytes.Store(0)
	f.reachedLocked(s.applied)
}
