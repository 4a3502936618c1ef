package broker

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// sectionFrame is a SEND that claims some number of messages.
func sectionFrame(t *testing.T, claimed int32, section []byte) []byte {
	t.Helper()
	b, err := protocol.AppendPayloadFrame(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEND.Enum(),
		Send: &pulsarpb.CommandSend{ProducerId: proto.Uint64(1), SequenceId: proto.Uint64(0), NumMessages: &claimed},
	}, section)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func section(t *testing.T, md *pulsarpb.MessageMetadata, body string) []byte {
	t.Helper()
	md.ProducerName, md.SequenceId, md.PublishTime = proto.String("p"), proto.Uint64(0), proto.Uint64(1)
	b, err := protocol.AppendSection(nil, md, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Only the metadata's number of messages counts, and only one that the entry can hold is taken: others end the
// connection before anything is stored.
func TestNumberOfMessages(t *testing.T) {
	s, _ := start(t)
	for i, x := range []struct {
		claimed, batch int32
		size           uint32
		ok             bool
	}{
		{claimed: 1, batch: 4, ok: true}, {claimed: -5, batch: 4, ok: true}, {claimed: 1<<31 - 1, batch: 1, ok: true},
		{claimed: 5, batch: 5}, {claimed: 1, batch: 0}, {claimed: 1, batch: -1}, {claimed: 1, batch: 1<<31 - 1},
		{claimed: 1, batch: 100, size: 600, ok: true}, {claimed: 1, batch: 101, size: 600},
	} {
		p := connect(t, s)
		p.producer(name(i), 1, "")
		p.subscribe(subscribing{topic: name(i), name: "sub", id: 1, kind: pulsarpb.CommandSubscribe_Shared})
		md := &pulsarpb.MessageMetadata{NumMessagesInBatch: &x.batch}
		if x.size > 0 {
			md.UncompressedSize = &x.size
		}
		p.write(sectionFrame(t, x.claimed, section(t, md, "4 messages of 6 bytes...")))
		if !x.ok {
			p.closed()
			continue
		}
		p.expect(pulsarpb.BaseCommand_SEND_RECEIPT)
		p.flow(1, uint32(x.batch)+1)
		p.receive()
		st, err := s.TopicStats(t.Context(), name(i))
		if err != nil {
			t.Fatal(err)
		}
		c := st.Subscriptions["sub"].Consumers[0]
		if c.AvailablePermits != 1 || c.UnackedMessages != int64(x.batch) || st.MsgInCounter != int64(x.batch) {
			t.Errorf("%+v: %d permits, %d unacknowledged, %d in", x, c.AvailablePermits, c.UnackedMessages, st.MsgInCounter)
		}
	}
}

// A message that is no batch is one, whatever the command says.
func TestNumberOfMessagesOfOne(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	p.write(sectionFrame(t, 1<<30, section(t, &pulsarpb.MessageMetadata{}, "x")))
	p.expect(pulsarpb.BaseCommand_SEND_RECEIPT)
	if st, err := s.TopicStats(t.Context(), name(1)); err != nil || st.MsgInCounter != 1 {
		t.Errorf("%d messages (%v)", st.MsgInCounter, err)
	}
}

// A name that is too long is refused, and not cut: two that were cut would be one. The connection goes on.
func TestLongNames(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.lookup(name(1))
	long := strings.Repeat("n", maxClientName)
	if got := p.fails(producerCommand(name(1), 1, *p.id(), long+"1")); got.GetError() != pulsarpb.ServerError_NotAllowedError || !strings.Contains(got.GetMessage(), "1001 bytes") {
		t.Errorf("%v", got)
	}
	sub := subscribing{topic: name(1), name: "sub", id: 1}.command(p.id())
	sub.Subscribe.ConsumerName = proto.String(long + "1")
	if got := p.fails(sub); got.GetError() != pulsarpb.ServerError_NotAllowedError || !strings.Contains(got.GetMessage(), "1001 bytes") {
		t.Errorf("%v", got)
	}
	if got := p.producer(name(1), 1, long).GetProducerName(); got != long {
		t.Errorf("%d bytes", len(got))
	}
}

// What the broker stores in front of entries goes to clients that announce that they can read it, if that is switched on,
// and to nobody else. What producers have sent arrives as it was.
func TestBrokerEntryMetadata(t *testing.T) {
	for _, exposed := range []bool{true, false} {
		s, _ := start(t, func(o *Options) {
			o.Topic.AppendIndex, o.Topic.AppendBrokerTimestamp, o.ExposeBrokerEntryMetadata = true, true, exposed
		})
		p := connect(t, s)
		p.producer(name(1), 1, "")
		var sent [][]byte
		for i := range 3 {
			sent = append(sent, section(t, &pulsarpb.MessageMetadata{}, fmt.Sprint("body ", i)))
			p.write(sectionFrame(t, 1, sent[i]))
			p.expect(pulsarpb.BaseCommand_SEND_RECEIPT)
		}
		for _, announced := range []bool{true, false} {
			c := dial(t, s)
			c.send(&pulsarpb.BaseCommand{
				Type: pulsarpb.BaseCommand_CONNECT.Enum(),
				Connect: &pulsarpb.CommandConnect{
					ClientVersion: proto.String("test"), ProtocolVersion: proto.Int32(protocol.Version),
					FeatureFlags: &pulsarpb.FeatureFlags{SupportsBrokerEntryMetadata: &announced},
				},
			})
			c.expect(pulsarpb.BaseCommand_CONNECTED)
			c.subscribe(subscribing{topic: name(1), name: fmt.Sprint(announced), id: 1})
			c.flow(1, 3)
			for i := range sent {
				_, got := c.expectPayload(pulsarpb.BaseCommand_MESSAGE)
				if !bytes.Equal(protocol.CutBrokerEntry(got), sent[i]) {
					t.Errorf("message %d was changed: %x", i, got)
				}
				var cut protocol.Section
				if err := cut.Parse(got); err != nil {
					t.Fatal(err)
				}
				if (cut.BrokerEntry != nil) != (announced && exposed) {
					t.Errorf("exposed %t, announced %t: %x", exposed, announced, cut.BrokerEntry)
				}
				var e protocol.BrokerEntry
				if err := e.Parse(cut.BrokerEntry); err != nil || cut.BrokerEntry != nil && (e.Index != uint64(i) || e.Timestamp == 0) {
					t.Errorf("message %d: %+v (%v)", i, e, err)
				}
			}
		}
		p.write(sectionFrame(t, 1, append(protocol.AppendBrokerEntry(nil, protocol.BrokerEntry{Index: 9, HasIndex: true}), sent[0]...)))
		p.closed()
	}
}
