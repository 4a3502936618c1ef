package ledger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// Scripts: "apply" takes one command a line, "state" prints all ledgers, "restart" goes through a snapshot.
//
//	create 1 epoch=1 · append 1 epoch=1 first=0 count=2 · fence 1 epoch=2 · close 1 epoch=2 last=1 · delete 1
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz") {
			return
		}
		m := NewMachine()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "apply":
				var b strings.Builder
				for line := range strings.Lines(d.Input) {
					c := parseCommand(t, line)
					fmt.Fprintln(&b, describe(applyChecked(t, m, &c)))
				}
				return b.String()
			case "state":
				return describeStates(m)
			case "restart":
				restored := NewMachine()
				if err := restored.Restore(m.AppendSnapshot(nil)); err != nil {
					return err.Error()
				}
				m = restored
				return describeStates(m)
			}
			t.Fatalf("unknown directive %s", d.Cmd)
			return ""
		})
	})
}

// applyChecked applies a command and checks the invariants, in all builds.
func applyChecked(t testing.TB, m *Machine, c *Command) (Result, Change) {
	t.Helper()
	before, existed := m.State(c.Ledger)
	res, change := m.Apply(c)
	after, exists := m.State(c.Ledger)
	if fault := stepFault(c, step{before, after, existed, exists, res, change}); fault != "" {
		t.Fatalf("%s: %s\nbefore %+v\nafter  %+v\nresult %+v\nchange %+v", c, fault, before, after, res, change)
	}
	return res, change
}

func parseCommand(t testing.TB, line string) Command {
	t.Helper()
	fields := strings.Fields(line)
	c := Command{Op: map[string]Op{"create": OpCreate, "append": OpAppend, "fence": OpFence, "close": OpClose, "delete": OpDelete}[fields[0]]}
	scan := func(s, format string, to any) bool {
		n, _ := fmt.Sscanf(s, format, to)
		return n == 1
	}
	scan(fields[1], "%d", &c.Ledger)
	salt := ""
	for _, f := range fields[2:] {
		switch {
		case scan(f, "epoch=%d", &c.Epoch), scan(f, "first=%d", &c.First), scan(f, "count=%d", &c.Count), scan(f, "last=%d", &c.Last):
		case scan(f, "salt=%s", &salt):
		default:
			t.Fatalf("cannot read %q in %q", f, line)
		}
	}
	if c.Op == OpAppend {
		c.Body = testBody(c.Ledger, c.First, c.Count, salt)
	}
	return c
}

// testBody makes entries whose content says where they belong.
func testBody(id ID, first EntryID, count int, salt string) (body []byte) {
	for i := range count {
		body = AppendEntry(body, fmt.Appendf(nil, "%d:%d%s", id, first+EntryID(i), salt))
	}
	return body
}

func describe(res Result, change Change) string {
	s := "ok"
	if res.Err != nil {
		s = res.Err.Error()
	}
	s += fmt.Sprintf(" last=%d epoch=%d", res.Last, res.Epoch)
	switch {
	case change.Created:
		s += " -> created"
	case change.Appended:
		s += fmt.Sprintf(" -> appended %d+%d", change.First, change.Count)
	case change.Truncated:
		s += fmt.Sprintf(" -> closed, discarded after %d", change.Last)
	case change.Closed:
		s += " -> closed"
	case change.Deleted:
		s += " -> deleted"
	}
	return s
}

func describeStates(m *Machine) string {
	var b strings.Builder
	for id, st := range m.Ledgers() {
		fmt.Fprintf(&b, "ledger %d: owner=%d epoch=%d last=%d bytes=%d", id, st.Owner, st.Epoch, st.Last, st.Bytes)
		if st.Fenced {
			b.WriteString(" fenced")
		}
		if st.Closed {
			b.WriteString(" closed")
		}
		if st.Summed != st.Last {
			fmt.Fprintf(&b, " summed=%d", st.Summed)
		}
		fmt.Fprintf(&b, " sum=%016x\n", st.Checksum)
	}
	if b.Len() == 0 {
		return "no ledgers"
	}
	return b.String()
}

func TestErrorsAreTheSentinels(t *testing.T) {
	m := NewMachine()
	res, _ := m.Apply(&Command{Op: OpFence, Ledger: 9, Epoch: 1})
	if res.Err != ErrNoLedger {
		t.Errorf("got %v", res.Err)
	}
	m.Apply(&Command{Op: OpCreate, Ledger: 9, Epoch: 1})
	for _, c := range []Command{
		{Op: 77, Ledger: 9},
		{Op: OpAppend, Ledger: 9, Epoch: 1, Count: 0},
		{Op: OpAppend, Ledger: 9, Epoch: 1, First: -1, Count: 1},
		{Op: OpAppend, Ledger: 9, Epoch: 1, Count: 1, Body: []byte{0, 0, 0, 9}},
		{Op: OpAppend, Ledger: 9, Epoch: 1, Count: 1, Body: testBody(9, 0, 2, "")},
		{Op: OpAppend, Ledger: 9, Epoch: 1, Count: 2, Body: testBody(9, 0, 1, "")},
		{Op: OpClose, Ledger: 9, Epoch: 1, Last: -2},
	} {
		if res, change := applyChecked(t, m, &c); res.Err != ErrBadCommand || change != (Change{}) {
			t.Errorf("%s: %v", &c, res.Err)
		}
	}
}
