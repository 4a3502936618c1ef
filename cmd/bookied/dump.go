package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"geminga/pkg/bookie"
	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
)

// dump prints entries of a ledger: a line and a hexadecimal dump of each, with --json one object per line, with --raw
// the payloads and nothing else, one behind the other. The exit code is 1 when an entry is damaged, or hidden by damage.
func (t tool) dump(ctx context.Context, args []string) error {
	flags := t.flags("dump")
	var id uint64
	want := bookie.DumpRange{}
	flags.Uint64Var(&id, "ledger", 0, "id of the ledger")
	flags.Int64Var((*int64)(&want.First), "first", 0, "first entry")
	flags.Int64Var((*int64)(&want.Last), "last", math.MaxInt64, "last entry; beyond the end of the ledger: all there is")
	raw := flags.Bool("raw", false, "print the payloads as they are")
	return t.with(ctx, flags, args, func(d *bookie.Offline) error {
		want.Ledger = ledger.ID(id)
		show := t.dumpText
		switch {
		case flags.json && *raw:
			return errors.New("dump prints either --json or --raw")
		case flags.json:
			show = t.dumpJSON
		case *raw:
			show = t.dumpRaw
		default:
			fmt.Fprintln(t.out, assumption)
		}
		return t.dumpRange(ctx, d, want, show)
	})
}

func (t tool) dumpRange(ctx context.Context, d *bookie.Offline, want bookie.DumpRange, show func(*bookie.DumpedEntry) error) error {
	damage := false
	l, err := d.Dump(ctx, want, func(e *bookie.DumpedEntry) error {
		damage = damage || e.Err != nil
		return show(e)
	})
	if l != nil && l.Applied.Err != nil && want.Last > l.Last {
		damage = true
		fmt.Fprintf(t.notes, "ledger %d may go on: the log of group %d was applied up to entry %d only: %v\n",
			l.ID, l.Applied.Group, l.Applied.Index, l.Applied.Err)
	}
	if err == nil && damage {
		err = damaged()
	}
	return err
}

// entryLine is an entry in JSON.
type entryLine struct {
	Ledger  ledger.ID      `json:"ledger"`
	Entry   ledger.EntryID `json:"entry"`
	Group   ledger.GroupID `json:"group"`
	Index   uint64         `json:"index"`
	Segment uint64         `json:"segment"`
	Offset  int64          `json:"offset"` // of the payload
	Size    int            `json:"size"`
	CRC     string         `json:"crc"` // crc32c as it was stored, hexadecimal
	Damage  string         `json:"damage,omitempty"`
	Message *message       `json:"message,omitempty"` // when the payload is one of Pulsar's
	Payload []byte         `json:"payload"`           // Base64
	Note    string         `json:"note"`
}

// message is what Pulsar's metadata say.
type message struct {
	Producer    string `json:"producer"`
	Sequence    uint64 `json:"sequence"`
	PublishTime string `json:"publishTime"`
	Messages    int32  `json:"messages"`
}

// messageOf reads the metadata of a payload that a producer sent. Other payloads are other things: cursors, say.
func messageOf(payload []byte) *message {
	var s protocol.Section
	var m protocol.Metadata
	if s.Parse(payload) != nil || s.Verify() != nil || m.Parse(s.Metadata) != nil {
		return nil
	}
	return &message{
		Producer: string(m.ProducerName), Sequence: m.SequenceID, Messages: m.NumMessages,
		PublishTime: time.UnixMilli(int64(m.PublishTime)).UTC().Format("2006-01-02T15:04:05.000Z"),
	}
}

func (t tool) dumpJSON(e *bookie.DumpedEntry) error {
	l := entryLine{
		Ledger: e.Ledger, Entry: e.Entry, Group: e.Group, Index: e.Index, Segment: e.Segment, Offset: e.Offset, Size: len(e.Payload),
		CRC: fmt.Sprintf("%08x", e.CRC), Message: messageOf(e.Payload), Payload: e.Payload, Note: assumption,
	}
	if e.Err != nil {
		l.Damage = e.Err.Error()
	}
	return t.line(l)
}

func (t tool) dumpRaw(e *bookie.DumpedEntry) error {
	_, err := t.out.Write(e.Payload)
	return err
}

func (t tool) dumpText(e *bookie.DumpedEntry) error {
	fmt.Fprintf(t.out, "%d:%d  group %d  index %d  segment %d  offset %d  size %d  crc %08x\n",
		e.Ledger, e.Entry, e.Group, e.Index, e.Segment, e.Offset, len(e.Payload), e.CRC)
	if e.Err != nil {
		fmt.Fprintf(t.out, "  damaged: %v\n", e.Err)
	}
	if m := messageOf(e.Payload); m != nil {
		fmt.Fprintf(t.out, "  producer %s  sequence %d  published %s  messages %d\n",
			strconv.Quote(m.Producer), m.Sequence, m.PublishTime, m.Messages)
	}
	_, err := fmt.Fprint(t.out, hex.Dump(e.Payload))
	return err
}
