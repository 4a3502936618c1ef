package ledger

import "geminga/pkg/invariant"

// check proves the Machine's invariants for one step, from the state of the ledger before it. It runs in invariants
// builds only.
func (m *Machine) check(c *Command, before State, existed bool, res Result, change Change) {
	after, exists := m.State(c.Ledger)
	if fault := stepFault(c, step{before, after, existed, exists, res, change}); fault != "" {
		invariant.Broken("ledger %d: %s: %s: %+v -> %+v, %+v, %+v", c.Ledger, c.String(), fault, before, after, res, change)
	}
}

type step struct {
	before, after   State
	existed, exists bool
	res             Result
	change          Change
}

// stepFault names the invariant that a step broke, or is empty.
func stepFault(c *Command, s step) string {
	if s.res.Err != nil || s.change == (Change{}) {
		if s.existed != s.exists {
			return "existence changed without a change"
		}
		// Fence has no Change: it may raise the epoch, of a ledger that is not closed.
		if s.before != s.after && (c.Op != OpFence || s.res.Err != nil) {
			return "refused or repeated, yet changed"
		}
	}
	if !s.exists {
		return ""
	}
	if s.res.Last != s.after.Last || s.res.Epoch != s.after.Epoch {
		return "result is not the state"
	}
	if fault := s.after.fault(); fault != "" {
		return fault
	}
	if !s.existed {
		return ""
	}
	return transitionFault(c, s)
}

func transitionFault(c *Command, s step) string {
	before, after := s.before, s.after
	switch {
	case before.Closed && before != after:
		return "closed ledger changed"
	case after.Epoch < before.Epoch || after.Owner != before.Owner:
		return "epoch fell"
	case before.Fenced && (!after.Fenced || s.change.Appended):
		return "fence undone"
	case s.change.Appended:
		return appendFault(c, before, after)
	}
	return keepFault(c, s)
}

// appendFault looks at a step that added entries.
func appendFault(c *Command, before, after State) string {
	if c.Epoch != before.Owner || c.First != before.Last+1 || after.Last != before.Last+EntryID(c.Count) {
		return "append by somebody else, or not at the end"
	}
	return ""
}

// keepFault looks at a step that added none.
func keepFault(c *Command, s step) string {
	before, after := s.before, s.after
	switch {
	case after.Checksum != before.Checksum || after.Bytes != before.Bytes || after.Summed != before.Summed:
		return "content changed without append"
	case after.Last != before.Last && !s.change.Truncated:
		return "entries vanished"
	case s.change.Truncated && (c.Op != OpClose || !after.Closed || after.Last >= before.Last):
		return "entries discarded without close"
	}
	return ""
}
