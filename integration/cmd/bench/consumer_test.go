package main

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// acksOf returns the commands that a consumer has written, decoded: type and entries of each.
func acksOf(t *testing.T, out []byte) (kinds []pulsarpb.CommandAck_AckType, entries [][]uint64) {
	t.Helper()
	for len(out) > 0 {
		size, err := protocol.FrameSize(out, protocol.MaxFrameSize(protocol.DefaultMaxMessageSize))
		if err != nil {
			t.Fatal(err)
		}
		var f protocol.Frame
		var ack protocol.Ack
		if err := f.Parse(out[:size]); err != nil {
			t.Fatal(err)
		}
		if err := ack.Decode(f.Body); err != nil {
			t.Fatal(err)
		}
		var ids []uint64
		for _, id := range ack.MessageIDs {
			ids = append(ids, id.Entry)
		}
		kinds, entries, out = append(kinds, ack.Type), append(entries, ids), out[size:]
	}
	return kinds, entries
}

func TestAcks(t *testing.T) {
	const messages = 2*groupSize + groupSize/2
	for _, test := range []struct {
		acks     string
		kind     pulsarpb.CommandAck_AckType
		commands int
		ids      int    // of each command
		last     uint64 // entry that is acknowledged
	}{
		{acksSingle, pulsarpb.CommandAck_Individual, messages, 1, messages - 1},
		{acksGrouped, pulsarpb.CommandAck_Individual, 2, groupSize, 2*groupSize - 1},
		{acksCumulative, pulsarpb.CommandAck_Cumulative, 2, 1, 2*groupSize - 1},
		{acksNone, 0, 0, 0, 0},
	} {
		t.Run(test.acks, func(t *testing.T) {
			c := &consumer{acks: test.acks}
			for entry := range uint64(messages) {
				c.acknowledge(appendVarint(appendVarint(nil, 1, 7), 2, entry))
			}
			kinds, entries := acksOf(t, c.out)
			if len(kinds) != test.commands {
				t.Fatalf("%d commands, want %d", len(kinds), test.commands)
			}
			last := uint64(0)
			for i, ids := range entries {
				if kinds[i] != test.kind || len(ids) != test.ids {
					t.Errorf("command %d: %v of %d ids, want %v of %d", i, kinds[i], len(ids), test.kind, test.ids)
				}
				last = ids[len(ids)-1]
			}
			if last != test.last {
				t.Errorf("the last entry acknowledged is %d, want %d", last, test.last)
			}
		})
	}
}

func TestFlow(t *testing.T) {
	var c consumer
	c.flow(500)
	var f protocol.Frame
	var flow protocol.Flow
	if err := f.Parse(c.out); err != nil {
		t.Fatal(err)
	}
	if err := flow.Decode(f.Body); err != nil || f.Type != pulsarpb.BaseCommand_FLOW || flow != (protocol.Flow{ConsumerID: 1, Permits: 500}) {
		t.Errorf("%v %+v, %v", f.Type, flow, err)
	}
}

func TestIDOfAMessage(t *testing.T) {
	id := appendVarint(appendVarint(nil, 1, 7), 2, 9)
	body := protowire.AppendBytes(protowire.AppendTag(appendVarint(nil, 1, 1), 2, protowire.BytesType), id)
	f := protocol.Frame{Type: pulsarpb.BaseCommand_MESSAGE, Body: appendVarint(body, 3, 4)}
	if got, err := idOf(&f); err != nil || !bytes.Equal(got, id) {
		t.Errorf("%x, %v; want %x", got, err, id)
	}
	f.Body = appendVarint(nil, 1, 1)
	if _, err := idOf(&f); err == nil {
		t.Error("a message without an id")
	}
}
