package managedledger_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"geminga/pkg/bookietest"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// TestScripts runs testdata/*. A script has brokers a, b, … that take the topic, groups 1 to 3 and 0 for the metadata,
// and one durable cursor per broker. After every command nothing moves any more; time moves by "sleep" only.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(path, "fuzz") {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s := &script{world: w, brokers: map[string]*node{}, cursors: map[string]*managedledger.Cursor{}}
			datadriven.RunTest(t, path, s.run)
			w.end()
		})
	})
}

type script struct {
	*world
	brokers map[string]*node
	cursors map[string]*managedledger.Cursor
	out     strings.Builder
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	var broker string
	if d.HasArg("broker") {
		d.ScanArgs(t, "broker", &broker)
	} else if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		broker = d.CmdArgs[0].Key
	}
	n := s.brokers[broker]
	switch d.Cmd {
	case "open":
		s.open(t, d, broker)
	case "add":
		n.add(strings.Fields(d.Input)...)
	case "sleep":
		wait, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		pass(wait)
	case "hold", "release", "down", "up", "lose-acks", "answer":
		s.group(t, d)
	case "fail", "unknown":
		kind := bookietest.Kind(d.CmdArgs[0].Key)
		if d.Cmd == "fail" {
			s.cluster.FailNext(kind, 1, ledger.ErrUnknown)
		} else {
			s.cluster.UnknownNext(kind, 1)
		}
	case "kill":
		n.kill()
	case "cut":
		n.client.Cut()
	case "heal":
		n.client.Heal()
	case "close":
		fmt.Fprintf(&s.out, "closed: %v\n", n.close())
	case "read":
		fmt.Fprintf(&s.out, "%s\n", positions(n.everything()))
	default:
		s.cursorCommand(t, d, n, broker)
	}
	synctest.Wait()
	if d.Cmd != "read" && d.Cmd != "sleep" || n == nil {
		s.report()
	}
	if d.HasArg("list") {
		s.list()
	}
	return s.out.String()
}

func (s *script) open(t *testing.T, d *datadriven.TestData, broker string) {
	n := s.node(ledger.Epoch(len(s.brokers)+1), managedledger.Options{MinRolloverTime: 1, OpenTimeout: 3 * time.Second})
	d.MaybeScanArgs(t, "entries", &n.opts.MaxEntriesPerLedger)
	d.MaybeScanArgs(t, "cursor-entries", &n.opts.CursorMaxEntriesPerLedger)
	d.MaybeScanArgs(t, "ranges", &n.opts.MaxUnackedRanges)
	s.brokers[broker] = n
	if err := n.open(); err != nil {
		fmt.Fprintf(&s.out, "%v\n", err)
		return
	}
	pass(time.Millisecond) // so that the ledger has an age
}

func (s *script) group(t *testing.T, d *datadriven.TestData) {
	var id int
	d.ScanArgs(t, "group", &id)
	g := ledger.GroupID(id)
	switch d.Cmd {
	case "hold":
		s.cluster.Hold(g)
	case "release":
		s.cluster.Release(g)
	case "down":
		s.cluster.Down(g)
	case "up":
		s.cluster.Up(g)
	case "lose-acks":
		s.cluster.LoseAcks(g, true)
	case "answer":
		s.cluster.LoseAcks(g, false)
	}
}

func (s *script) cursorCommand(t *testing.T, d *datadriven.TestData, n *node, broker string) {
	if d.Cmd == "cursor" {
		c, err := n.cursor(managedledger.CursorOptions{Name: "s", Durable: true, Initial: ledger.Earliest})
		if err != nil {
			fmt.Fprintf(&s.out, "%v\n", err)
			return
		}
		s.cursors[broker] = c
		s.place(n, c)
		return
	}
	c := s.cursors[broker]
	switch d.Cmd {
	case "next":
		got, err := n.read(c, 3)
		fmt.Fprintf(&s.out, "%s %v\n", positions(got), err)
	case "ack":
		ps := parsePositions(t, d.Input)
		on(n.sub, func() { c.Delete(ps, s.receipt("ack")) })
	case "ack-quietly":
		ps := parsePositions(t, d.Input)
		on(n.sub, func() { c.Delete(ps, nil) })
	case "ack-up-to":
		ps := parsePositions(t, d.Input)
		on(n.sub, func() { c.MarkDelete(ps[0], s.receipt("ack-up-to")) })
	case "seek":
		ps := parsePositions(t, d.Input)
		on(n.sub, func() { c.Seek(ps[0], s.receipt("seek")) })
	case "rewind":
		on(n.sub, c.Rewind)
	case "close-cursor":
		on(n.sub, func() { c.Close(s.receipt("close-cursor")) })
	case "place":
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	synctest.Wait()
	s.place(n, c)
}

func (s *script) receipt(what string) func(error) {
	return func(err error) { fmt.Fprintf(&s.out, "%s: %v\n", what, err) }
}

func (s *script) place(n *node, c *managedledger.Cursor) {
	on(n.sub, func() {
		fmt.Fprintf(&s.out, "mark %s, read position %s, backlog %d\n", c.MarkDeleted(), c.ReadPosition(), c.Backlog())
	})
}

func parsePositions(t *testing.T, text string) (ps []ledger.Position) {
	for _, f := range strings.Fields(text) {
		switch f {
		case "earliest":
			ps = append(ps, ledger.Earliest)
			continue
		case "latest":
			ps = append(ps, ledger.Latest)
			continue
		}
		l, e, _ := strings.Cut(f, ":")
		id, err1 := strconv.Atoi(l)
		entry, err2 := strconv.Atoi(e)
		if err1 != nil || err2 != nil {
			t.Fatalf("position %q", f)
		}
		ps = append(ps, ledger.Position{Ledger: ledger.ID(id), Entry: ledger.EntryID(entry)})
	}
	return ps
}

func positions(ds []done) string {
	var b strings.Builder
	for i, d := range ds {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", d.pos, d.text)
	}
	return b.String()
}

// report says what has completed, and who is lost, since the last time.
func (s *script) report() {
	for name := byte('a'); ; name++ {
		n := s.brokers[string(name)]
		if n == nil {
			return
		}
		n.mu.Lock()
		if len(n.completed) > n.told {
			fmt.Fprintf(&s.out, "%c completed %s\n", name, positions(n.completed[n.told:]))
			n.told = len(n.completed)
		}
		for ; len(n.barriers) > n.toldBarriers; n.toldBarriers++ {
			fmt.Fprintf(&s.out, "%c completed barrier\n", name)
		}
		if n.lost != nil && !n.toldLost {
			fmt.Fprintf(&s.out, "%c lost: %v\n", name, n.lost)
			n.toldLost = true
		}
		n.mu.Unlock()
	}
}

// list shows the ledgers as the metadata and the groups know them.
func (s *script) list() {
	item := s.cluster.Item(topicKey)
	info, err := managedledger.DecodeInfo(item.Value)
	if err != nil {
		fmt.Fprintf(&s.out, "%v\n", err)
		return
	}
	fmt.Fprintf(&s.out, "list, epoch %d\n", info.Epoch)
	named := map[ledger.ID]bool{}
	for _, l := range info.Ledgers {
		named[l.ID] = true
		st, ok := s.cluster.State(ledger.Ref{ID: l.ID, Group: l.Group})
		what := "open"
		if l.Closed {
			what = fmt.Sprintf("closed, %d entries, %d bytes", l.Entries, l.Bytes)
		}
		fmt.Fprintf(&s.out, "  ledger %d group %d %s; there: exists %t, last %d, closed %t\n", l.ID, l.Group, what, ok, st.Last, st.Closed)
	}
	for _, ref := range s.cluster.Ledgers() {
		if !named[ref.ID] {
			st, _ := s.cluster.State(ref)
			fmt.Fprintf(&s.out, "  not listed: %s, last %d\n", ref, st.Last)
		}
	}
}
