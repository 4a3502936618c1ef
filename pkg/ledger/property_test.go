package ledger

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Three replicas apply one log, cut into proposals differently; one of them is restored from a snapshot on the way.
// Their answers, changes and states agree, and the history of every ledger keeps its promises (history).
func TestReplicasAgree(t *testing.T) {
	type answer struct {
		Result
		Change
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		replicas := []*Machine{NewMachine(), NewMachine(), NewMachine()}
		hist := history{}
		for step := range 400 {
			c := randomCommand(rng, replicas[0])
			wire := c.AppendTo(nil)
			var first answer
			for i, m := range replicas {
				decoded, rest, err := NextCommand(wire)
				if err != nil || len(rest) != 0 {
					t.Fatalf("seed %d step %d: %s: %v", seed, step, &c, err)
				}
				res, change := applyChecked(t, m, &decoded)
				got := answer{res, change}
				if i == 0 {
					first = got
					if fault := hist.observe(&c, res, change); fault != "" {
						t.Fatalf("seed %d step %d: %s: %s: %+v", seed, step, &c, fault, got)
					}
				} else if got != first {
					t.Fatalf("seed %d step %d: %s: replica %d answers\n%+v, replica 0\n%+v", seed, step, &c, i, got, first)
				}
			}
			if rng.IntN(50) == 0 {
				restored := NewMachine()
				if err := restored.Restore(replicas[2].AppendSnapshot(nil)); err != nil {
					t.Fatalf("seed %d step %d: %v", seed, step, err)
				}
				replicas[2] = restored
			}
		}
		want := replicas[0].AppendSnapshot(nil)
		for i, m := range replicas {
			if !bytes.Equal(m.AppendSnapshot(nil), want) {
				t.Fatalf("seed %d: replica %d differs\n%s\n%s", seed, i, describeStates(m), describeStates(replicas[0]))
			}
		}
	}
}

// Replicas whose contents differ have different checksums: in content, in order, in place.
func TestChecksumTellsContentsApart(t *testing.T) {
	sum := func(bodies ...[]byte) uint64 {
		m := NewMachine()
		m.Apply(&Command{Op: OpCreate, Ledger: 1, Epoch: 1})
		for i, b := range bodies {
			if res, _ := m.Apply(&Command{Op: OpAppend, Ledger: 1, Epoch: 1, First: EntryID(i), Count: 1, Body: b}); res.Err != nil {
				t.Fatal(res.Err)
			}
		}
		st, _ := m.State(1)
		return st.Checksum
	}
	a, b := AppendEntry(nil, []byte("a")), AppendEntry(nil, []byte("b"))
	sums := map[uint64]bool{}
	variants := [][][]byte{{}, {a}, {b}, {a, a}, {a, b}, {b, a}, {b, b}, {AppendEntry(nil, nil)}}
	for _, v := range variants {
		sums[sum(v...)] = true
	}
	if len(sums) != len(variants) {
		t.Errorf("%d contents, %d checksums", len(variants), len(sums))
	}
	// However the entries are cut into appends, the checksum is the same.
	m := NewMachine()
	m.Apply(&Command{Op: OpCreate, Ledger: 1, Epoch: 1})
	m.Apply(&Command{Op: OpAppend, Ledger: 1, Epoch: 1, Count: 2, Body: append(slices.Clone(a), b...)})
	if st, _ := m.State(1); st.Checksum != sum(a, b) {
		t.Error("checksum depends on the batches")
	}
}

// randomCommand draws commands that are often right, often a retry, often wrong.
func randomCommand(rng *rand.Rand, m *Machine) Command {
	c := Command{Ledger: ID(1 + rng.IntN(4)), Epoch: Epoch(rng.IntN(4))}
	st, ok := m.State(c.Ledger)
	if !ok {
		st.Last = NoEntry
	}
	if ok && rng.IntN(2) == 0 {
		c.Epoch = st.Owner
	}
	switch n := rng.IntN(100); {
	case n < 60:
		c.Op, c.Count = OpAppend, 1+rng.IntN(3)
		c.First = max(0, st.Last+1+EntryID(rng.IntN(3)-1)*EntryID(rng.IntN(3)))
		c.Body = testBody(c.Ledger, c.First, c.Count, "")
	case n < 80:
		c.Op = OpCreate
	case n < 88:
		c.Op = OpFence
	case n < 95:
		c.Op, c.Last = OpClose, max(NoEntry, st.Last+EntryID(rng.IntN(4)-2))
	default:
		c.Op = OpDelete
	}
	return c
}

// history is what an observer outside remembers of each ledger. It knows nothing of the machine's state: it holds the
// promises of the type comment against the answers alone.
type history map[ID]*past

type past struct {
	created   bool
	owner     Epoch
	fenced    Epoch // highest epoch of a successful fence of an open ledger
	wasFenced bool
	closed    bool
	last      EntryID // of all that was answered
}

// observe returns the promise that an answer broke, or "".
func (h history) observe(c *Command, res Result, change Change) string {
	p := h[c.Ledger]
	if p == nil {
		p = &past{last: NoEntry}
		h[c.Ledger] = p
	}
	if res.Err != nil && change != (Change{}) {
		return "an error with a change"
	}
	if !p.created && c.Op != OpCreate && c.Op != OpDelete {
		if res.Err != ErrNoLedger {
			return "absence not reported"
		}
		return ""
	}
	if res.Err == ErrNoLedger {
		return "absence without delete"
	}
	switch c.Op {
	case OpCreate:
		return p.create(c, res)
	case OpAppend:
		return p.append(c, res, change)
	case OpFence:
		if res.Err != nil {
			return ""
		}
		if res.Last != p.last {
			return "fence does not know the last entry"
		}
		if !p.closed {
			p.fenced, p.wasFenced = max(p.fenced, c.Epoch), true
		}
	case OpClose:
		return p.close(c, res, change)
	case OpDelete:
		if res.Err != nil {
			return "delete refused"
		}
		delete(h, c.Ledger)
	}
	return ""
}

func (p *past) create(c *Command, res Result) string {
	if good := !p.created || c.Epoch == p.owner; good != (res.Err == nil) {
		return "create by the wrong owner, or refused to the right one"
	}
	if !p.created {
		*p = past{created: true, owner: c.Epoch, last: NoEntry}
	}
	return ""
}

func (p *past) append(c *Command, res Result, change Change) string {
	end := c.First + EntryID(c.Count) - 1
	kept := c.Epoch == p.owner && end <= p.last
	switch {
	case kept && res.Err != nil:
		return "a kept append is refused"
	case kept && change != (Change{}):
		return "a retry changes something"
	case kept:
		return ""
	case res.Err != nil:
		if c.Epoch == p.owner && c.First == p.last+1 && !p.wasFenced && !p.closed {
			return "a good append is refused"
		}
		return ""
	case p.wasFenced:
		return "append after fence"
	case p.closed:
		return "append after close"
	case c.Epoch != p.owner:
		return "append of somebody else"
	case c.First != p.last+1 || !change.Appended || change.First != c.First || change.Count != c.Count:
		return "append elsewhere"
	}
	p.last = end
	return ""
}

func (p *past) close(c *Command, res Result, change Change) string {
	switch {
	case p.closed && (res.Err == nil) != (c.Last == p.last):
		return "closed ledger closed elsewhere"
	case p.closed && change != (Change{}):
		return "closed ledger changed"
	case res.Err != nil, p.closed:
		return ""
	case c.Last > p.last:
		return "closed beyond the end"
	case c.Epoch != 0 && p.wasFenced && c.Epoch < p.fenced:
		return "closed by a fenced owner"
	case change.Truncated != (c.Last < p.last):
		return "discarded entries not told"
	}
	p.closed, p.last = true, c.Last
	return ""
}

// Every state of one ledger that a small alphabet of commands can reach is visited, and every command is tried in it:
// the invariants hold on all of these steps. The promises to an observer are checked along the path that found the
// state first. That is a model checker in twenty lines; the alphabet is as small as it may be to show all orders of two
// owners, retries, overlaps, early and late closes.
func TestAllReachableStates(t *testing.T) {
	var alphabet []Command
	for epoch := range Epoch(4) {
		for first := range EntryID(4) {
			for count := 1; count <= 2; count++ {
				alphabet = append(alphabet, Command{Op: OpAppend, Ledger: 1, Epoch: epoch, First: first, Count: count, Body: testBody(1, first, count, "")})
			}
		}
		for last := NoEntry; last < 4; last++ {
			alphabet = append(alphabet, Command{Op: OpClose, Ledger: 1, Epoch: epoch, Last: last})
		}
		alphabet = append(alphabet, Command{Op: OpCreate, Ledger: 1, Epoch: epoch}, Command{Op: OpFence, Ledger: 1, Epoch: epoch},
			Command{Op: OpDelete, Ledger: 1, Epoch: epoch})
	}
	type node struct {
		snapshot []byte
		hist     history
	}
	seen := map[string]bool{}
	queue := []node{{NewMachine().AppendSnapshot(nil), history{}}}
	steps := 0
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for i := range alphabet {
			m := NewMachine()
			if err := m.Restore(n.snapshot); err != nil {
				t.Fatal(err)
			}
			hist := history{}
			for id, p := range maps.All(n.hist) {
				clone := *p
				hist[id] = &clone
			}
			res, change := applyChecked(t, m, &alphabet[i])
			if fault := hist.observe(&alphabet[i], res, change); fault != "" {
				t.Fatalf("%s\n%s: %s: %s", describeStates(m), &alphabet[i], fault, describe(res, change))
			}
			steps++
			if snapshot := m.AppendSnapshot(nil); !seen[string(snapshot)] {
				seen[string(snapshot)] = true
				queue = append(queue, node{snapshot, hist})
			}
		}
	}
	t.Logf("%d states, %d steps", len(seen), steps)
	if len(seen) < 100 {
		t.Error("the alphabet reaches too little")
	}
}
