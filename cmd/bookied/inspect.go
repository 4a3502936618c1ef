package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"geminga/cmd/internal/daemon"
	"geminga/pkg/bookie"
	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// inspect lists groups, ledgers or segments: a table, or with --json one object per line. Damage is shown, and is no
// error.
func (t tool) inspect(ctx context.Context, args []string) error {
	lists := map[string]func(context.Context, *bookie.Offline, bool) error{
		"groups": t.groups, "ledgers": t.ledgers, "segments": t.segments,
	}
	what := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	flags := t.flags("inspect " + what)
	list := lists[what]
	if list == nil {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			return err
		}
		return &daemon.ExitError{Code: exitUnreadable, Err: fmt.Errorf("inspect what? %q is none of groups, ledgers, segments", what)}
	}
	return t.with(ctx, flags, args, func(d *bookie.Offline) error { return list(ctx, d, flags.json) })
}

func (t tool) groups(_ context.Context, d *bookie.Offline, asJSON bool) error {
	groups := d.Groups()
	if asJSON {
		for _, g := range groups {
			if err := t.line(g); err != nil {
				return err
			}
		}
		return nil
	}
	tb := t.table("GROUP", "KIND", "FIRST", "LAST", "TERM", "LAST TERM", "BYTES", "UNREADABLE", "DAMAGE")
	for _, g := range groups {
		tb.add(g.Group, g.Kind, g.First, g.Last, g.Term, g.LastTerm, g.Bytes, g.Unreadable, g.Damage)
	}
	return tb.flush()
}

// ledgerLine is a ledger in JSON.
type ledgerLine struct {
	Group    ledger.GroupID `json:"group"`
	Ledger   ledger.ID      `json:"ledger"`
	Owner    ledger.Epoch   `json:"owner"`
	Epoch    ledger.Epoch   `json:"epoch"`
	Last     ledger.EntryID `json:"last"`
	Closed   bool           `json:"closed"`
	Fenced   bool           `json:"fenced"`
	Bytes    int64          `json:"bytes"`
	Checksum string         `json:"checksum"` // hexadecimal
	Summed   ledger.EntryID `json:"summed"`   // last entry in bytes and checksum
	Applied  uint64         `json:"appliedIndex"`
	Complete bool           `json:"complete"` // all of the group's log was applied
	Note     string         `json:"note"`
}

func (t tool) ledgers(ctx context.Context, d *bookie.Offline, asJSON bool) error {
	all, groups, err := d.Ledgers(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		for _, l := range all {
			err := t.line(ledgerLine{
				l.Applied.Group, l.ID, l.Owner, l.Epoch, l.Last, l.Closed, l.Fenced, l.Bytes, fmt.Sprintf("%016x", l.Checksum), l.Summed,
				l.Applied.Index, l.Applied.Err == nil, assumption,
			})
			if err != nil {
				return err
			}
		}
		return t.incomplete(groups)
	}
	fmt.Fprintln(t.out, assumption)
	tb := t.table("GROUP", "LEDGER", "OWNER", "EPOCH", "LAST", "STATE", "BYTES", "CHECKSUM")
	for _, l := range all {
		tb.add(l.Applied.Group, l.ID, l.Owner, l.Epoch, l.Last, stateOf(l.State), l.Bytes, fmt.Sprintf("%016x", l.Checksum))
	}
	if err := tb.flush(); err != nil {
		return err
	}
	return t.incomplete(groups)
}

// incomplete remarks on groups whose ledgers may be more, and further, than what was printed.
func (t tool) incomplete(groups []*bookie.Applied) error {
	for _, a := range groups {
		if a.Err != nil {
			fmt.Fprintf(t.notes, "group %d: applied up to entry %d of its log, what came after is not shown: %v\n", a.Group, a.Index, a.Err)
		}
	}
	return nil
}

func stateOf(st ledger.State) string {
	switch {
	case st.Closed && st.Fenced:
		return "fenced,closed"
	case st.Closed:
		return "closed"
	case st.Fenced:
		return "fenced"
	}
	return "open"
}

// segmentLine is a segment in JSON.
type segmentLine struct {
	Segment     uint64     `json:"segment"`
	State       string     `json:"state"`
	Size        int64      `json:"size"`
	Used        int64      `json:"used"`
	Batches     int        `json:"batches"`
	FirstBatch  uint64     `json:"firstBatch"`
	Records     int        `json:"records"` // entries of group logs
	First       *recordRef `json:"first"`
	Last        *recordRef `json:"last"`
	LiveRecords int        `json:"liveRecords"`
	LiveBytes   int64      `json:"liveBytes"`
	Ended       bool       `json:"ended"`
	TornAt      int64      `json:"tornAt,omitempty"`
}

type recordRef struct {
	Group uint32 `json:"group"`
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
}

func refOf(e journal.EntryRef) *recordRef {
	if e.Index == 0 {
		return nil
	}
	return &recordRef{e.Group, e.Index, e.Term}
}

// String is group/index.
func (r *recordRef) String() string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.Group, r.Index)
}

func (t tool) segments(_ context.Context, d *bookie.Offline, asJSON bool) error {
	if asJSON {
		for _, s := range d.Segments() {
			err := t.line(segmentLine{
				s.Number, string(s.State), s.Size, s.Used, s.Batches, s.FirstBatch, s.Entries, refOf(s.First), refOf(s.Last),
				s.LiveEntries, s.LiveBytes, s.Ended, s.TornAt,
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	tb := t.table("SEGMENT", "STATE", "SIZE", "USED", "BATCHES", "RECORDS", "FIRST", "LAST", "LIVE", "LIVE BYTES", "TORN AT")
	for _, s := range d.Segments() {
		torn := ""
		if s.TornAt > 0 {
			torn = fmt.Sprint(s.TornAt)
		}
		tb.add(s.Number, s.State, s.Size, s.Used, s.Batches, s.Entries, refOf(s.First), refOf(s.Last), s.LiveEntries, s.LiveBytes, torn)
	}
	return tb.flush()
}
