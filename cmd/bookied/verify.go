package main

import (
	"context"
	"fmt"

	"geminga/pkg/bookie"
)

// verify checks everything: a table of the damage and a summary, or with --json one document. The exit code is 1 when
// there is damage in what may be needed.
func (t tool) verify(ctx context.Context, args []string) error {
	flags := t.flags("verify")
	return t.with(ctx, flags, args, func(d *bookie.Offline) error {
		r, err := d.Verify()
		if err != nil {
			return err
		}
		if flags.json {
			err = t.line(r)
		} else {
			err = t.report(r)
		}
		if err == nil && !r.Clean {
			err = damaged()
		}
		return err
	})
}

func (t tool) report(r *bookie.VerifyReport) error {
	places := 0
	if len(r.Damage) > 0 {
		tb := t.table("FILE", "OFFSET", "GROUP", "INDEX", "LEDGER", "ENTRY", "REASON")
		for _, d := range r.Damage {
			group, index, ledger, entry := any(d.Group), any(d.Index), any(""), any("")
			if d.Index == 0 { // hidden by the damage
				index = ""
				if d.Group == 0 {
					group = ""
				}
			}
			if d.Ledger != nil && d.Entry != nil {
				ledger, entry = *d.Ledger, *d.Entry
			}
			reason := d.Reason
			if d.Superseded {
				reason += " (superseded: the record is held elsewhere)"
			} else {
				places++
			}
			tb.add(d.File, d.Offset, group, index, ledger, entry, reason)
		}
		if err := tb.flush(); err != nil {
			return err
		}
	}
	for _, torn := range r.Torn {
		fmt.Fprintf(t.out, "segment %d ends with a torn write at %d: it was never answered, and goes when the bookie starts\n", torn.Segment, torn.Offset)
	}
	fmt.Fprintf(t.out, "%d segments, %d batches, %d records, %d entries of %d bytes, %d metadata log entries, %d metadata snapshots: ",
		r.Segments, r.Batches, r.Records, r.Entries, r.Bytes, r.Metadata, r.Snapshots)
	if r.Clean {
		fmt.Fprintln(t.out, "clean")
	} else {
		fmt.Fprintf(t.out, "%d damaged places\n", places)
	}
	return nil
}
