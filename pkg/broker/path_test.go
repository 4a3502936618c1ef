package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

const (
	individual = pulsarpb.CommandAck_Individual
	cumulative = pulsarpb.CommandAck_Cumulative
)

// A message goes in and comes out, on every kind of connection.
func TestPublishAndConsume(t *testing.T) {
	for backend, change := range map[string]func(*Options){"default": func(*Options) {}, "portable": portable} {
		t.Run(backend, func(t *testing.T) {
			s, _ := start(t, change)
			p := connect(t, s)
			if name := p.producer(name(1), 1, "").GetProducerName(); name == "" {
				t.Error("no name was made")
			}
			p.subscribe(subscribing{topic: name(1), name: "sub", id: 7})
			p.flow(7, 100)
			const n = 50
			for i := range n {
				p.write(sendFrame(t, 1, uint64(i), fmt.Sprint("message ", i)))
			}
			receipts, messages := 0, 0
			for receipts < n || messages < n {
				cmd, _, err := p.frame()
				if err != nil {
					t.Fatal(err)
				}
				switch cmd.GetType() {
				case pulsarpb.BaseCommand_SEND_RECEIPT:
					if got := cmd.SendReceipt.GetSequenceId(); got != uint64(receipts) {
						t.Fatalf("receipt %d instead of %d", got, receipts)
					}
					if got := cmd.SendReceipt.GetMessageId().GetEntryId(); got != uint64(receipts) {
						t.Fatalf("message %d is entry %d", receipts, got)
					}
					receipts++
				case pulsarpb.BaseCommand_MESSAGE:
					if got := cmd.Message.GetMessageId().GetEntryId(); got != uint64(messages) {
						t.Fatalf("entry %d instead of %d", got, messages)
					}
					messages++
				default:
					t.Fatalf("unexpected %v", cmd)
				}
			}
		})
	}
}

func TestPipe(t *testing.T) {
	s, _ := start(t)
	p := pipe(t, s)
	if got := p.handshake(); got.GetMaxMessageSize() != 5<<20 || got.GetProtocolVersion() != 20 {
		t.Errorf("%v", got)
	}
	p.producer(name(1), 1, "mine")
	p.publish(1, 0, strings.Repeat("large", 200_000))
	p.subscribe(subscribing{topic: name(1), name: "s", id: 1})
	p.flow(1, 1)
	if _, body := p.receive(); len(body) != 1_000_000 {
		t.Errorf("%d bytes came back", len(body))
	}
}

func TestAcknowledge(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	for i := range 5 {
		p.publish(1, uint64(i), fmt.Sprint(i))
	}
	p.subscribe(subscribing{topic: name(1), name: "sub", id: 1})
	p.flow(1, 10)
	var ids []*pulsarpb.MessageIdData
	for range 5 {
		m, _ := p.receive()
		ids = append(ids, m.MessageId)
	}
	for _, r := range []*pulsarpb.CommandAckResponse{p.ack(1, individual, ids[3]), p.ack(1, cumulative, ids[1])} {
		if r.Error != nil || r.Message != nil {
			t.Errorf("%v", r)
		}
	}
	if r := p.ack(99, individual, ids[0]); r.GetMessage() == "" || r.GetError() != pulsarpb.ServerError_ConsumerNotFound {
		t.Errorf("unknown consumer: %v", r)
	}
	// What is not acknowledged comes again after the consumer has gone and come back: 2 and 4.
	p.send(&pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_CONSUMER.Enum(),
		CloseConsumer: &pulsarpb.CommandCloseConsumer{ConsumerId: proto.Uint64(1), RequestId: p.id()},
	})
	p.expect(pulsarpb.BaseCommand_SUCCESS)
	p.subscribe(subscribing{topic: name(1), name: "sub", id: 2})
	p.flow(2, 10)
	for _, want := range []string{"2", "4"} {
		if _, body := p.receive(); body != want {
			t.Errorf("got %q, want %q", body, want)
		}
	}
}

func TestSharedRedelivery(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	p.publish(1, 0, "zero")
	p.publish(1, 1, "one")
	p.subscribe(subscribing{topic: name(1), name: "sub", id: 1, kind: pulsarpb.CommandSubscribe_Shared})
	p.flow(1, 10)
	first, _ := p.receive()
	p.receive()
	p.send(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_REDELIVER_UNACKNOWLEDGED_MESSAGES.Enum(),
		RedeliverUnacknowledgedMessages: &pulsarpb.CommandRedeliverUnacknowledgedMessages{
			ConsumerId: proto.Uint64(1), MessageIds: []*pulsarpb.MessageIdData{first.MessageId},
		},
	})
	m, body := p.receive()
	if body != "zero" || m.GetRedeliveryCount() != 1 {
		t.Errorf("%q, redelivery %d", body, m.GetRedeliveryCount())
	}
}

func TestLastMessageID(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.subscribe(subscribing{topic: name(1), name: "r", id: 1, transient: true})
	ask := func() *pulsarpb.CommandGetLastMessageIdResponse {
		p.send(&pulsarpb.BaseCommand{
			Type:             pulsarpb.BaseCommand_GET_LAST_MESSAGE_ID.Enum(),
			GetLastMessageId: &pulsarpb.CommandGetLastMessageId{ConsumerId: proto.Uint64(1), RequestId: p.id()},
		})
		return p.expect(pulsarpb.BaseCommand_GET_LAST_MESSAGE_ID_RESPONSE).GetLastMessageIdResponse
	}
	if got := ask(); int64(got.GetLastMessageId().GetEntryId()) != -1 || got.ConsumerMarkDeletePosition == nil {
		t.Errorf("empty topic: %v", got)
	}
	p.producer(name(1), 1, "")
	id := p.publish(1, 0, "x")
	if got := ask().GetLastMessageId(); got.GetEntryId() != id.GetEntryId() || got.GetLedgerId() != id.GetLedgerId() {
		t.Errorf("%v, want %v", got, id)
	}
}

func TestUnsubscribe(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.subscribe(subscribing{topic: name(1), name: "sub", id: 1, kind: pulsarpb.CommandSubscribe_Shared})
	p.subscribe(subscribing{topic: name(1), name: "sub", id: 2, kind: pulsarpb.CommandSubscribe_Shared})
	ask := func(id uint64, force bool) *pulsarpb.BaseCommand {
		return &pulsarpb.BaseCommand{
			Type:        pulsarpb.BaseCommand_UNSUBSCRIBE.Enum(),
			Unsubscribe: &pulsarpb.CommandUnsubscribe{ConsumerId: &id, RequestId: p.id(), Force: &force},
		}
	}
	if got := p.fails(ask(1, false)).GetError(); got != pulsarpb.ServerError_ConsumerBusy {
		t.Errorf("with another consumer: %v", got)
	}
	p.send(ask(1, true))
	seen := map[pulsarpb.BaseCommand_Type]int{}
	for range 2 {
		cmd, _, err := p.frame()
		if err != nil {
			t.Fatal(err)
		}
		seen[cmd.GetType()]++
	}
	if seen[pulsarpb.BaseCommand_SUCCESS] != 1 || seen[pulsarpb.BaseCommand_CLOSE_CONSUMER] != 1 {
		t.Errorf("%v", seen)
	}
	if got := p.fails(ask(1, true)).GetError(); got != pulsarpb.ServerError_MetadataError {
		t.Errorf("second time: %v", got)
	}
}

func TestTopicsAndPartitions(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	for i := range 3 {
		p.producer(name(i), uint64(i), "")
	}
	topics := func(ns string) []string {
		p.send(&pulsarpb.BaseCommand{
			Type:                 pulsarpb.BaseCommand_GET_TOPICS_OF_NAMESPACE.Enum(),
			GetTopicsOfNamespace: &pulsarpb.CommandGetTopicsOfNamespace{Namespace: &ns, RequestId: p.id()},
		})
		return p.expect(pulsarpb.BaseCommand_GET_TOPICS_OF_NAMESPACE_RESPONSE).GetTopicsOfNamespaceResponse.Topics
	}
	if got := topics("public/default"); len(got) != 3 || got[0] != name(0) {
		t.Errorf("%q", got)
	}
	if got := topics("no/where"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	p.send(&pulsarpb.BaseCommand{
		Type:              pulsarpb.BaseCommand_PARTITIONED_METADATA.Enum(),
		PartitionMetadata: &pulsarpb.CommandPartitionedTopicMetadata{Topic: proto.String(name(0)), RequestId: p.id()},
	})
	r := p.expect(pulsarpb.BaseCommand_PARTITIONED_METADATA_RESPONSE).PartitionMetadataResponse
	if r.GetPartitions() != 0 || r.GetResponse() != pulsarpb.CommandPartitionedTopicMetadataResponse_Success {
		t.Errorf("%v", r)
	}
	if got := s.Topics(); len(got) != 3 {
		t.Errorf("%q", got)
	}
	st, err := s.TopicStats(context.Background(), name(1))
	if err != nil || len(st.Publishers) != 1 || st.Publishers[0].ClientVersion != "test" ||
		!strings.Contains(st.Publishers[0].Address, "127.0.0.1") {
		t.Errorf("%+v, %v", st, err)
	}
	if b, err := json.Marshal(st); err != nil || !strings.Contains(string(b), `"publishers":[{`) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestCompressedAndBatched(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.producer(name(1), 1, "")
	p.write(batchFrame(t, 1, 0, 10))
	p.expect(pulsarpb.BaseCommand_SEND_RECEIPT)
	p.subscribe(subscribing{topic: name(1), name: "sub", id: 1})
	p.flow(1, 1)
	m, body := p.receive()
	if body != "opaque" {
		t.Errorf("%q", body)
	}
	// The first five messages of the batch are acknowledged; the rest comes again, and the set says which.
	m.MessageId.AckSet = []int64{0b1111100000}
	if r := p.ack(1, individual, m.MessageId); r.Error != nil {
		t.Errorf("%v", r)
	}
	p.send(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_REDELIVER_UNACKNOWLEDGED_MESSAGES.Enum(),
		RedeliverUnacknowledgedMessages: &pulsarpb.CommandRedeliverUnacknowledgedMessages{
			ConsumerId: proto.Uint64(1),
		},
	})
	p.flow(1, 10)
	again, _ := p.receive()
	if len(again.AckSet) != 1 || again.AckSet[0] != 0b1111100000 {
		t.Errorf("%v", again)
	}
}
