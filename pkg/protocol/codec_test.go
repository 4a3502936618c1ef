package protocol

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

// reference decodes a frame of our own encoders with the generated code.
func reference(t *testing.T, frame []byte) *pulsarpb.BaseCommand {
	t.Helper()
	size, err := FrameSize(frame, 1<<30)
	if err != nil || size > len(frame)+1<<20 {
		t.Fatalf("size %d of %d, %v", size, len(frame), err)
	}
	var f Frame
	if err := f.Parse(frame); err != nil {
		t.Fatal(err)
	}
	var cmd pulsarpb.BaseCommand
	if err := f.Unmarshal(&cmd); err != nil {
		t.Fatal(err)
	}
	return &cmd
}

func anyU64(r *rand.Rand) uint64 { return r.Uint64() >> r.IntN(64) }

// What the hand encoders write, the generated code reads back. Frames are appended to a buffer with something in it.
func TestHandEncoders(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var buf []byte
	for range 2000 {
		buf = append(buf[:0], "prefix"...)
		frame := func(b []byte) []byte {
			if string(b[:6]) != "prefix" {
				t.Fatal("the encoder overwrote what was there")
			}
			buf = b
			return b[6:]
		}
		text := string(make([]byte, r.IntN(300)))
		rc := SendReceipt{anyU64(r), anyU64(r), anyU64(r), anyU64(r), anyU64(r)}
		got := reference(t, frame(AppendSendReceipt(buf, &rc))).SendReceipt
		if got.GetProducerId() != rc.ProducerID || got.GetSequenceId() != rc.SequenceID || got.GetMessageId().GetEntryId() != rc.Entry ||
			got.GetHighestSequenceId() != rc.HighestSequenceID || got.GetMessageId().GetLedgerId() != rc.Ledger {
			t.Fatalf("%+v: %v", rc, got)
		}
		buf = buf[:6]
		se := reference(t, frame(AppendSendError(buf, rc.ProducerID, rc.SequenceID, pulsarpb.ServerError_ChecksumError, text))).SendError
		if se.GetMessage() != text || se.GetSequenceId() != rc.SequenceID || se.GetError() != pulsarpb.ServerError_ChecksumError {
			t.Fatalf("%v", se)
		}
		buf = buf[:6]
		ar := AckResponse{ConsumerID: anyU64(r), RequestID: anyU64(r), TxnLeast: anyU64(r), Failed: r.IntN(2) == 0, Error: 6, Text: text}
		ack := reference(t, frame(AppendAckResponse(buf, &ar))).AckResponse
		if ack.GetRequestId() != ar.RequestID || ack.GetTxnidLeastBits() != ar.TxnLeast || (ack.Message != nil) != ar.Failed {
			t.Fatalf("%+v: %v", ar, ack)
		}
		buf = buf[:6]
		er := reference(t, frame(AppendError(buf, ar.RequestID, 11, text))).Error
		if er.GetRequestId() != ar.RequestID || er.GetMessage() != text || er.GetError() != 11 {
			t.Fatalf("%v", er)
		}
		buf = buf[:6]
		cl := reference(t, frame(AppendClose(buf, pulsarpb.BaseCommand_CLOSE_CONSUMER, rc.ProducerID, text, ""))).CloseConsumer
		if cl.GetConsumerId() != rc.ProducerID || cl.GetAssignedBrokerServiceUrl() != text || cl.GetRequestId() != NoRequest {
			t.Fatalf("%v", cl)
		}
	}
	if reference(t, AppendPing(nil)).Ping == nil || reference(t, AppendPong(nil)).Pong == nil {
		t.Error("PING or PONG without content")
	}
	if reference(t, AppendSuccess(nil, 1<<40)).Success.GetRequestId() != 1<<40 {
		t.Error("SUCCESS")
	}
}

func TestMessageHeader(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	payload := make([]byte, 77)
	for range 2000 {
		m := Message{ConsumerID: anyU64(r), Ledger: anyU64(r), Entry: anyU64(r), Partition: int32(r.IntN(10)) - 1, RedeliveryCount: r.Uint32N(3)}
		for range r.IntN(40) {
			m.AckSet = append(m.AckSet, int64(r.Uint64()))
		}
		frame := append(AppendMessageHeader(nil, &m, len(payload)), payload...)
		got := reference(t, frame).Message
		if got.GetConsumerId() != m.ConsumerID || got.GetMessageId().GetPartition() != m.Partition || got.GetRedeliveryCount() != m.RedeliveryCount ||
			!slices.Equal(got.AckSet, m.AckSet) || got.GetMessageId().GetEntryId() != m.Entry {
			t.Fatalf("%+v: %v", m, got)
		}
	}
}

func TestMessageIDRoundTrip(t *testing.T) {
	minus := int64(-1)
	frame := AppendSendReceipt(nil, &SendReceipt{Entry: uint64(minus)})
	if got := int64(reference(t, frame).SendReceipt.GetMessageId().GetEntryId()); got != -1 {
		t.Errorf("entry %d", got)
	}
}

func TestMetadataPeek(t *testing.T) {
	full := &pulsarpb.MessageMetadata{
		ProducerName: proto.String("p"), SequenceId: proto.Uint64(9), PublishTime: proto.Uint64(8),
		Properties:       []*pulsarpb.KeyValue{{Key: proto.String("a"), Value: proto.String("b")}},
		PartitionKey:     proto.String("k"),
		Compression:      pulsarpb.CompressionType_ZSTD.Enum(),
		UncompressedSize: proto.Uint32(100), NumMessagesInBatch: proto.Int32(1), EventTime: proto.Uint64(7),
		OrderingKey: []byte("o"), DeliverAtTime: proto.Int64(6), MarkerType: proto.Int32(5),
		TxnidLeastBits: proto.Uint64(4), TxnidMostBits: proto.Uint64(3), HighestSequenceId: proto.Uint64(12),
		Uuid: proto.String("u"), NumChunksFromMsg: proto.Int32(2), ChunkId: proto.Int32(1), PartitionKeyB64Encoded: proto.Bool(true),
		EncryptionKeys: []*pulsarpb.EncryptionKeys{{Key: proto.String("e"), Value: []byte("v")}},
	}
	b, err := proto.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var m Metadata
	if err := m.Parse(b); err != nil {
		t.Fatal(err)
	}
	comparePeek(t, &m, full)
	if !m.Batch || !m.InTxn || !m.IsMarker || !m.Encrypted {
		t.Errorf("%+v", m)
	}
	b, _ = proto.Marshal(testMetadata())
	if err := m.Parse(b); err != nil || m.Batch || m.NumMessages != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

func comparePeek(t *testing.T, m *Metadata, p *pulsarpb.MessageMetadata) {
	t.Helper()
	same := string(m.ProducerName) == p.GetProducerName() && m.SequenceID == p.GetSequenceId() &&
		m.PublishTime == p.GetPublishTime() && string(m.PartitionKey) == p.GetPartitionKey() &&
		(m.PartitionKey == nil) == (p.PartitionKey == nil) && string(m.OrderingKey) == string(p.GetOrderingKey()) &&
		m.Compression == p.GetCompression() && m.UncompressedSize == p.GetUncompressedSize() &&
		m.NumMessages == p.GetNumMessagesInBatch() && m.Batch == (p.NumMessagesInBatch != nil) &&
		m.EventTime == p.GetEventTime() && m.DeliverAt == p.GetDeliverAtTime() && m.Marker == p.GetMarkerType() &&
		m.TxnLeast == p.GetTxnidLeastBits() && m.TxnMost == p.GetTxnidMostBits() &&
		m.HighestSequenceID == p.GetHighestSequenceId() && string(m.UUID) == p.GetUuid() &&
		m.Chunks == p.GetNumChunksFromMsg() && m.ChunkID == p.GetChunkId() && m.KeyBase64 == p.GetPartitionKeyB64Encoded()
	if !same {
		t.Fatalf("peek %+v\nof %v", m, p)
	}
}

// The hot path takes no memory once warm.
func TestNoAllocation(t *testing.T) {
	frame := sendFrame(t, make([]byte, 128))
	ack := ackFrame(t, 20, 3)
	var (
		f   Frame
		s   Send
		sec Section
		m   Metadata
		a   Ack
		out = make([]byte, 0, 4096)
		set = []int64{1, -1, 3}
	)
	for name, fn := range map[string]func(){
		"publish": func() {
			if f.Parse(frame) != nil || s.Decode(f.Body) != nil || sec.Parse(f.Payload) != nil || sec.Verify() != nil || m.Parse(sec.Metadata) != nil {
				t.Fatal("refused")
			}
		},
		"ack": func() {
			if f.Parse(ack) != nil || a.Decode(f.Body) != nil || len(a.MessageIDs) != 20 || len(a.MessageIDs[19].AckSet) != 3 {
				t.Fatal("refused")
			}
		},
		"encode": func() {
			out = AppendSendReceipt(out[:0], &SendReceipt{ProducerID: 1, SequenceID: 2, Ledger: 3, Entry: 4})
			out = AppendMessageHeader(out, &Message{ConsumerID: 1, Partition: -1, AckSet: set}, 100)
			out = AppendPing(AppendAckResponse(out, &AckResponse{RequestID: 7}))
		},
	} {
		if n := testing.AllocsPerRun(100, fn); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func ackFrame(tb testing.TB, ids, words int) []byte {
	tb.Helper()
	cmd := &pulsarpb.CommandAck{ConsumerId: proto.Uint64(1), AckType: pulsarpb.CommandAck_Individual.Enum(), RequestId: proto.Uint64(5)}
	for i := range ids {
		cmd.MessageId = append(cmd.MessageId, &pulsarpb.MessageIdData{
			LedgerId: proto.Uint64(12), EntryId: proto.Uint64(uint64(1000 + i)), AckSet: make([]int64, words),
		})
	}
	frame, err := AppendCommand(nil, &pulsarpb.BaseCommand{Type: pulsarpb.BaseCommand_ACK.Enum(), Ack: cmd})
	if err != nil {
		tb.Fatal(err)
	}
	return frame
}
