package ledger

import (
	"iter"
	"maps"
	"slices"

	"geminga/pkg/invariant"
)

// State is all that the machine knows of one ledger.
//
//	          append (owner)
//	           ┌──────┐
//	           │      ▼
//	create ─▶ open ─────── fence(e) ──▶ fenced ──┐ fence(e' ≥ e)
//	           │                          │  ▲───┘
//	           └────── close(last) ───────┤
//	                                      ▼
//	                                    closed ──▶ (delete, from any state)
type State struct {
	Owner    Epoch   // epoch of creation: the only one that may append
	Epoch    Epoch   // the highest epoch that created, fenced or closed the ledger. INVARIANT: Epoch >= Owner
	Last     EntryID // last entry, NoEntry when empty
	Bytes    int64   // payload bytes ever appended, those that Close discarded included
	Checksum uint64  // running over (entry id, crc) of all entries up to Summed
	Summed   EntryID // INVARIANT: == Last until Close discards entries, then >= Last
	Fenced   bool
	Closed   bool
}

// Result is the outcome of a command, as its caller learns it.
type Result struct {
	Ledger ID
	Last   EntryID // last entry after the command; NoEntry when there is no ledger
	Epoch  Epoch   // the ledger's epoch after the command; 0 when there is no ledger
	Err    error   // nil, or one of this package's errors itself, never wrapped. Not nil: nothing changed
}

// Change is what a command did to the ledger: what the machine's shell has to do to its index of entries. It is the
// zero value for retries and refusals.
type Change struct {
	Created   bool
	Appended  bool    // entries First … First+Count-1 are new
	First     EntryID // of Appended
	Count     int     // of Appended
	Truncated bool    // entries after Last are discarded for ever
	Closed    bool
	Last      EntryID // of Closed
	Deleted   bool    // drop all of it
}

// Machine is the state of all ledgers of one group. It is pure: no clock, no I/O, no randomness; two machines that
// apply the same commands are equal. One goroutine uses it at a time. The payloads are not in it.
//
// Invariants, for each ledger, checked by check after every command in invariants builds:
//
//  1. An append applies only at Last+1. One that lies wholly at or before Last, with the epoch of the ledger's owner,
//     is a retry: it changes nothing and succeeds, even when the ledger is fenced or closed by now. Anything else is
//     refused, with the Last that the caller should go on from.
//  2. After Fence(e) no append of an epoch older than e applies, ever; nor does any other, because only the owner may
//     append and the owner is fenced. Recovery reads and closes, it never appends. Epoch never falls.
//  3. A closed ledger never changes. Close beyond Last is refused; entries after the closing entry are discarded.
//  4. Absence is proved: ErrNoLedger means that, at this point of the log, the ledger was not created or was deleted.
//  5. An entry id is written once. Checksum depends on every (id, crc) ever applied, in order, so replicas whose
//     contents differ have different checksums.
//
// Close carries the epoch of who asks. An older one than the ledger's is refused, or a delayed close of the old owner
// could discard entries that the new owner has counted already:
//
//	old owner (epoch 1)            new owner (epoch 2)
//	append 0…9, no answer
//	close(at 4), delayed
//	                               fence(2) → last 9
//	                               … serves 0…9 to readers
//	close(at 4) arrives            must not discard 5…9
//
// Epoch 0 skips that comparison. It is for callers that have the closing entry from the topic's list of ledgers: the
// list's version already made sure that there is one such decision. Rejected: to leave the epoch out of Close, which
// makes safety depend on every caller writing the list first.
type Machine struct {
	ledgers map[ID]*State
}

// NewMachine returns a machine without ledgers.
func NewMachine() *Machine { return &Machine{ledgers: map[ID]*State{}} }

// Len is the number of ledgers.
func (m *Machine) Len() int { return len(m.ledgers) }

// State returns a copy of what is known of a ledger.
func (m *Machine) State(id ID) (State, bool) {
	if st := m.ledgers[id]; st != nil {
		return *st, true
	}
	return State{}, false
}

// Ledgers yields all ledgers by ascending id. The machine must not change meanwhile.
func (m *Machine) Ledgers() iter.Seq2[ID, State] {
	return func(yield func(ID, State) bool) {
		for _, id := range slices.Sorted(maps.Keys(m.ledgers)) {
			if !yield(id, *m.ledgers[id]) {
				return
			}
		}
	}
}

// Clone returns an independent copy, at the cost of one small copy for each ledger.
func (m *Machine) Clone() *Machine {
	states := make([]State, 0, len(m.ledgers))
	out := make(map[ID]*State, len(m.ledgers))
	for id, st := range m.ledgers {
		states = append(states, *st)
		out[id] = &states[len(states)-1]
	}
	return &Machine{ledgers: out}
}

// Apply carries out one command. It keeps nothing of c. A command that fails changes nothing.
func (m *Machine) Apply(c *Command) (Result, Change) {
	if !invariant.Enabled {
		return m.apply(c)
	}
	before, existed := m.State(c.Ledger)
	res, change := m.apply(c)
	m.check(c, before, existed, res, change)
	return res, change
}

func (m *Machine) apply(c *Command) (Result, Change) {
	st := m.ledgers[c.Ledger]
	switch {
	case c.Op == OpCreate:
		return m.create(c, st)
	case c.Op == OpDelete:
		return m.delete(c, st)
	case st == nil:
		return Result{Ledger: c.Ledger, Last: NoEntry, Err: ErrNoLedger}, Change{}
	}
	var change Change
	err := ErrBadCommand
	switch c.Op {
	case OpAppend:
		change, err = st.append(c)
	case OpFence:
		err = st.fence(c.Epoch)
	case OpClose:
		change, err = st.close(c)
	}
	return st.result(c.Ledger, err), change
}

func (st *State) result(id ID, err error) Result {
	return Result{Ledger: id, Last: st.Last, Epoch: st.Epoch, Err: err}
}

// create is idempotent for the epoch that created the ledger, whatever became of the ledger since: that it is fenced
// or closed by now, the creator's first append tells.
func (m *Machine) create(c *Command, st *State) (Result, Change) {
	if st == nil {
		st = &State{Owner: c.Epoch, Epoch: c.Epoch, Last: NoEntry, Summed: NoEntry}
		m.ledgers[c.Ledger] = st
		return st.result(c.Ledger, nil), Change{Created: true}
	}
	if st.Owner != c.Epoch {
		return st.result(c.Ledger, ErrExists), Change{}
	}
	return st.result(c.Ledger, nil), Change{}
}

// delete is idempotent and takes any epoch: the list of the topic decides what is deleted. Nothing is remembered,
// because ids are never given out twice.
func (m *Machine) delete(c *Command, st *State) (Result, Change) {
	res := Result{Ledger: c.Ledger, Last: NoEntry}
	if st == nil {
		return res, Change{}
	}
	delete(m.ledgers, c.Ledger)
	return res, Change{Deleted: true}
}

func (st *State) append(c *Command) (Change, error) {
	if c.Count <= 0 || c.First < 0 || c.First+EntryID(c.Count) < 0 {
		return Change{}, ErrBadCommand
	}
	end := c.First + EntryID(c.Count) - 1
	switch {
	case c.Epoch == st.Owner && end <= st.Last:
		return Change{}, nil // a retry: all of it is kept
	case c.Epoch < st.Epoch:
		return Change{}, ErrFenced // before ErrClosed: the caller must learn that it lost the ledger
	case st.Closed:
		return Change{}, ErrClosed
	case st.Fenced:
		return Change{}, ErrFenced
	case c.Epoch != st.Owner:
		return Change{}, ErrExists // a newer epoch that never fenced: not the owner
	case c.First != st.Last+1:
		return Change{}, ErrNotNext
	}
	sum, bytes, ok := sumBody(st.Checksum, c.First, c.Count, c.Body)
	if !ok {
		return Change{}, ErrBadCommand
	}
	st.Last, st.Summed, st.Checksum = end, end, sum
	st.Bytes += bytes
	return Change{Appended: true, First: c.First, Count: c.Count}, nil
}

// fence raises the epoch. On a closed ledger there is nothing to fence, and the caller learns Last.
func (st *State) fence(epoch Epoch) error {
	switch {
	case st.Closed:
		return nil
	case epoch < st.Epoch:
		return ErrFenced
	}
	st.Epoch, st.Fenced = epoch, true
	return nil
}

func (st *State) close(c *Command) (Change, error) {
	switch {
	case c.Last < NoEntry:
		return Change{}, ErrBadCommand
	case st.Closed && c.Last == st.Last:
		return Change{}, nil // a retry, or another owner that came to the same decision
	case st.Closed:
		return Change{}, ErrClosed
	case c.Epoch != 0 && c.Epoch < st.Epoch:
		return Change{}, ErrFenced
	case c.Last > st.Last:
		return Change{}, ErrNotNext
	}
	change := Change{Closed: true, Last: c.Last, Truncated: c.Last < st.Last}
	st.Closed, st.Last = true, c.Last
	st.Epoch = max(st.Epoch, c.Epoch)
	return change, nil
}
