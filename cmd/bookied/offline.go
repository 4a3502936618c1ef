package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"geminga/cmd/internal/daemon"
	"geminga/pkg/bookie"
	"geminga/pkg/vfs"
)

// tool is the commands that look into the data directory of a bookie that does not run. They change nothing there.
// Results go to out, remarks about them to notes.
//
// Exit codes: 0; 1 when damage was met; 2 when the directory could not be read, which is also what a running bookie and
// wrong usage give.
type tool struct {
	out, notes io.Writer
	fs         vfs.FS // nil: the disk
}

// The exit codes besides 0.
const (
	exitDamage     = 1
	exitUnreadable = 2
)

// assumption is said of everything that comes out of applying a group's log: what a majority has committed is not on
// the disk.
const assumption = "applied as if all of the log were committed"

// offlineFlags are what all of the tools take.
type offlineFlags struct {
	*flag.FlagSet
	data, journal string
	json          bool
}

func (t tool) flags(name string) *offlineFlags {
	f := &offlineFlags{FlagSet: flag.NewFlagSet("bookied "+name, flag.ContinueOnError)}
	f.SetOutput(t.notes)
	f.StringVar(&f.data, "data", "", "data directory of a bookie that does not run")
	f.StringVar(&f.journal, "journal", "", "its journal, where journalDirectory is set; empty: <data>/journal")
	f.BoolVar(&f.json, "json", false, "print JSON")
	return f
}

// parse refuses what is left over.
func (f *offlineFlags) parse(args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("%s: unexpected %q", f.Name(), f.Arg(0))
	case f.data == "":
		return fmt.Errorf("%s needs --data, the directory of a bookie that does not run", f.Name())
	}
	return nil
}

// with runs f on the opened directory, and gives errors the exit code of what could not be read.
func (t tool) with(ctx context.Context, flags *offlineFlags, args []string, f func(*bookie.Offline) error) error {
	err := flags.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	if err == nil {
		err = t.open(ctx, flags, f)
	}
	var exit *daemon.ExitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	return &daemon.ExitError{Code: exitUnreadable, Err: err}
}

func (t tool) open(ctx context.Context, flags *offlineFlags, f func(*bookie.Offline) error) error {
	d, err := bookie.OpenOffline(ctx, bookie.OfflineOptions{DataDir: flags.data, JournalDir: flags.journal, FS: t.fs})
	if err != nil {
		return err
	}
	return errors.Join(f(d), d.Close())
}

// damaged is the error after output that has said it all.
func damaged() error { return &daemon.ExitError{Code: exitDamage} }

// table writes rows in aligned columns.
type table struct{ w *tabwriter.Writer }

func (t tool) table(columns ...string) table {
	tb := table{tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)}
	tb.row(columns)
	return tb
}

func (tb table) row(cells []string) { fmt.Fprintln(tb.w, strings.Join(cells, "\t")) }

// add writes one row; values print as fmt.Sprint prints them, an empty one as a dash.
func (tb table) add(values ...any) {
	cells := make([]string, len(values))
	for i, v := range values {
		if cells[i] = fmt.Sprint(v); cells[i] == "" {
			cells[i] = "-"
		}
	}
	tb.row(cells)
}

func (tb table) flush() error { return tb.w.Flush() }

// line writes one JSON object in a line of its own.
func (t tool) line(v any) error { return json.NewEncoder(t.out).Encode(v) }
