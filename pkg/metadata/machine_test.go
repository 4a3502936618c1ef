package metadata

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// Scripts: "txn" takes a condition ("if key version") or an operation ("put key value", "delete key", "add key delta") a
// line; "list" and "get" read; "restart" goes through a snapshot.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz") {
			return
		}
		m := NewMachine()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "txn":
				out, events := m.Apply(parseTxn(t, d.Input))
				return describeOutcome(out, events)
			case "get":
				it, ok := m.Get(d.CmdArgs[0].Key)
				return fmt.Sprintf("%s %t", describeItem(it), ok)
			case "list":
				var prefix, after string
				limit := 0
				d.MaybeScanArgs(t, "prefix", &prefix)
				d.MaybeScanArgs(t, "after", &after)
				d.MaybeScanArgs(t, "limit", &limit)
				items, more := m.List(prefix, after, limit)
				var b strings.Builder
				for _, it := range items {
					fmt.Fprintln(&b, describeItem(it))
				}
				fmt.Fprintf(&b, "more=%t revision=%d", more, m.Revision())
				return b.String()
			case "restart":
				restored := NewMachine()
				if err := restored.Restore(m.AppendSnapshot(nil)); err != nil {
					return err.Error()
				}
				m = restored
				return fmt.Sprintf("%d keys at revision %d", m.Len(), m.Revision())
			}
			t.Fatalf("unknown directive %s", d.Cmd)
			return ""
		})
	})
}

func parseTxn(t *testing.T, input string) (txn Txn) {
	t.Helper()
	for line := range strings.Lines(input) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, arg, _ := strings.Cut(rest, " ")
		var n int64
		fmt.Sscanf(arg, "%d", &n)
		switch verb {
		case "if":
			txn = txn.If(key, n)
		case "put":
			txn = txn.Then(Put(key, []byte(arg)))
		case "delete":
			txn = txn.Then(Delete(key))
		case "add":
			txn = txn.Then(Add(key, n))
		default:
			t.Fatalf("cannot read %q", line)
		}
	}
	return txn
}

func describeOutcome(out Outcome, events []Item) string {
	var b strings.Builder
	if out.Err != nil {
		fmt.Fprintf(&b, "%v (failed %d) ", out.Err, out.Failed)
	}
	fmt.Fprintf(&b, "revision=%d versions=%v", out.Revision, out.Versions)
	for _, ev := range events {
		fmt.Fprintf(&b, "\nevent %s", describeItem(ev))
	}
	return b.String()
}

func describeItem(it Item) string { return fmt.Sprintf("%s@%d=%s", it.Key, it.Version, it.Value) }
