package bookie

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// Damage is a place in a data directory whose bytes are not what was written.
type Damage struct {
	File    string          `json:"file"`              // below the directory of its kind
	Group   ledger.GroupID  `json:"group"`             // 0 with an empty Ledger: the damage hides whose it is, or it is the metadata group's
	Index   uint64          `json:"index"`             // in the group's log; 0: hidden
	Segment uint64          `json:"segment,omitempty"` // of the journal
	Offset  int64           `json:"offset"`            // in the file
	Ledger  *ledger.ID      `json:"ledger,omitempty"`
	Entry   *ledger.EntryID `json:"entry,omitempty"`
	Reason  string          `json:"reason"`
	// Superseded: the group holds the record elsewhere, since it was copied or fetched. These bytes wait for their segment to go.
	Superseded bool `json:"superseded,omitempty"`
}

// Torn is a write that was under way when the process died. It was never answered, and goes when the bookie starts.
type Torn struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Clean          bool     `json:"clean"` // all damage is superseded, if there is any
	Segments       int      `json:"segments"`
	Batches        int      `json:"batches"`
	Records        int      `json:"records"`      // entries of group logs, in the journal
	Entries        int      `json:"entries"`      // of ledgers
	Bytes          int64    `json:"bytes"`        // payload of the entries of ledgers
	Metadata       int      `json:"metadataLogs"` // entries of the metadata group's log
	Snapshots      int      `json:"metadataSnapshots"`
	GroupSnapshots int      `json:"ledgerGroupSnapshots"`
	Torn           []Torn   `json:"torn"`
	Damage         []Damage `json:"damage"`
}

// Verify says what is damaged. Every record of the journal and every entry in it was compared with its checksum when the
// directory was opened, those included that nothing needs any more. The log of the metadata group has no checksums: it
// is decoded.
func (d *Offline) Verify() (*VerifyReport, error) {
	r := &VerifyReport{
		Entries: d.entries.entries, Bytes: d.entries.bytes, Torn: []Torn{}, Damage: []Damage{},
	}
	for _, s := range d.Segments() {
		if s.State == journal.SegmentUnused || s.State == journal.SegmentSpare {
			continue
		}
		r.Segments++
		r.Batches += s.Batches
		r.Records += s.Entries
		if s.TornAt > 0 {
			r.Torn = append(r.Torn, Torn{s.Number, s.TornAt})
		}
	}
	for _, c := range d.journal.Damage() {
		r.Damage = append(r.Damage, Damage{
			File: segmentFile(c.Segment), Group: ledger.GroupID(c.Group), Index: c.Index, Segment: c.Segment, Offset: c.Offset, Reason: c.Reason,
		})
	}
	r.Damage = append(r.Damage, d.entries.damage...)
	for i := range r.Damage {
		r.Damage[i].Superseded = d.superseded(&r.Damage[i])
	}
	for _, g := range d.journal.Groups() {
		if err := d.verifySnapshots(ledger.GroupID(g.ID), g.First, r); err != nil {
			return nil, err
		}
	}
	if d.meta != nil {
		if err := d.meta.verify(r); err != nil {
			return nil, err
		}
	}
	r.Clean = !slices.ContainsFunc(r.Damage, func(d Damage) bool { return !d.Superseded })
	return r, nil
}

// superseded says that damage in the journal is not in the record that is held under its index. What hides whose it is, or
// where the group's record is, may be needed.
func (d *Offline) superseded(x *Damage) bool {
	p, known := d.journal.Place(uint32(x.Group), x.Index)
	if x.Index == 0 || !known {
		return false
	}
	return p.Segment != x.Segment || x.Offset < p.Offset || x.Offset >= p.Offset+int64(p.Length)
}

// verifySnapshots compares the checksums of a group's snapshots and of the index that they name, and looks whether they
// reach to where the log begins.
func (d *Offline) verifySnapshots(id ledger.GroupID, first uint64, r *VerifyReport) error {
	snaps, err := d.snapshots(id)
	if err != nil {
		return err
	}
	bad := func(name string, index uint64, reason string) {
		r.Damage = append(r.Damage, Damage{File: filepath.Join(snapshotsDir, fmt.Sprint(id), name), Group: id, Index: index, Reason: reason})
	}
	r.GroupSnapshots += len(snaps.metas) + len(snaps.damaged)
	for _, m := range snaps.damaged {
		bad(m.ID, m.Index, snaps.faults[m.ID].Error())
	}
	if newest, _ := snaps.newest(); len(snaps.damaged) == 0 && first > newest.Index+1 {
		bad("", first, fmt.Sprintf("the log begins at %d, the newest snapshot ends at %d", first, newest.Index))
	}
	seen := map[string]bool{}
	for _, m := range snaps.metas {
		for _, name := range snaps.info[m.ID].layers {
			if seen[name] {
				continue
			}
			seen[name] = true
			if err := snaps.verifyLayer(name); errors.Is(err, ErrDamaged) {
				bad(name, m.Index, err.Error())
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

func segmentFile(n uint64) string { return filepath.Join("journal", journal.SegmentName(n)) }

// entryCheck looks at every entry of every append command in the journal.
type entryCheck struct {
	entries int
	bytes   int64
	damage  []Damage
}

// visit is called with each record that is intact as the journal wrote it. What it finds was damaged before: on its way
// from the broker, or in memory.
func (c *entryCheck) visit(group uint32, rec *journal.Record, p journal.Place) error {
	if raft.LogType(rec.Type) != raft.LogCommand {
		return nil
	}
	d := Damage{File: segmentFile(p.Segment), Group: ledger.GroupID(group), Index: rec.Index, Segment: p.Segment}
	for rest := rec.Data; len(rest) > 0; {
		d.Offset = p.DataOffset() + int64(len(rec.Data)-len(rest))
		cmd, tail, err := ledger.NextCommand(rest)
		if err != nil {
			d.Reason = err.Error()
			c.damage = append(c.damage, d)
			return nil //nolint:nilerr // damage is what is looked for
		}
		if cmd.Op == ledger.OpAppend {
			end := p.DataOffset() + int64(len(rec.Data)-len(tail))
			c.body(&cmd, d, end-int64(len(cmd.Body)))
		}
		rest = tail
	}
	return nil
}

// visitKept is called with what is left of a record, or was fetched: pieces with framed entries, one after the other.
func (c *entryCheck) visitKept(group uint32, k *journal.Kept, p journal.Place) error {
	d := Damage{File: segmentFile(p.Segment), Group: ledger.GroupID(group), Index: k.Index, Segment: p.Segment}
	pieces := k.Pieces
	if len(pieces) == 0 {
		pieces = []journal.Piece{{Length: uint32(len(k.Data))}}
	}
	off := p.DataOffset()
	for data := k.Data; len(pieces) > 0; pieces = pieces[1:] {
		body := data[:pieces[0].Length]
		if cmd, ok := commandIn(body); ok {
			body = cmd.Body
		}
		c.entriesOf(body, d, off+int64(pieces[0].Length)-int64(len(body)))
		data, off = data[pieces[0].Length:], off+int64(pieces[0].Length)
	}
	return nil
}

// entriesOf checks the entries of a piece; off is where they begin in the segment.
func (c *entryCheck) entriesOf(body []byte, d Damage, off int64) {
	for rest := body; len(rest) > 0; {
		d.Offset = off + int64(len(body)-len(rest))
		payload, crc, tail, ok := ledger.CutEntry(rest)
		if !ok {
			d.Reason = "broken frame of an entry"
			c.damage = append(c.damage, d)
			return
		}
		if got := ledger.Checksum(payload); got != crc {
			d.Reason = fmt.Sprintf("checksum of the entry is %08x, expected %08x", got, crc)
			c.damage = append(c.damage, d)
		}
		c.entries++
		c.bytes += int64(len(payload))
		rest = tail
	}
}

// body walks the entries of an append command; off is where its body begins in the segment.
func (c *entryCheck) body(cmd *ledger.Command, d Damage, off int64) {
	report := func(entry ledger.EntryID, off int64, format string, args ...any) {
		d := d
		id := cmd.Ledger
		d.Ledger, d.Entry, d.Offset, d.Reason = &id, &entry, off, fmt.Sprintf(format, args...)
		c.damage = append(c.damage, d)
	}
	body := cmd.Body
	for i := range cmd.Count {
		entry, at := cmd.First+ledger.EntryID(i), off+int64(len(cmd.Body)-len(body))
		payload, crc, rest, ok := ledger.CutEntry(body)
		if !ok {
			report(entry, at, "broken frame of an entry")
			return
		}
		if got := ledger.Checksum(payload); got != crc {
			report(entry, at, "checksum of the entry is %08x, expected %08x", got, crc)
		}
		c.entries++
		c.bytes += int64(len(payload))
		body = rest
	}
	if len(body) > 0 {
		report(cmd.First+ledger.EntryID(cmd.Count)-1, off+int64(len(cmd.Body)-len(body)), "%d bytes after the last entry of a command", len(body))
	}
}
