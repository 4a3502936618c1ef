package protocol

import (
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

// seeds are the broken frames of testdata and one sound frame of each hand-decoded command.
func seeds(f *testing.F) [][]byte {
	out := [][]byte{sendFrame(f, []byte("hello")), ackFrame(f, 3, 2), AppendPing(nil), AppendSuccess(nil, 1)}
	text, err := os.ReadFile("testdata/broken")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if b, err := hex.DecodeString(strings.ReplaceAll(line, " ", "")); err == nil && len(b) > 0 {
			out = append(out, b)
		}
	}
	return out
}

// FuzzFrame feeds arbitrary bytes to the whole codec: nothing may panic, and what is taken as a frame lies within the
// bytes that FrameSize named.
func FuzzFrame(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	const maxFrame = 1 << 16
	f.Fuzz(func(t *testing.T, data []byte) {
		explain(data, maxFrame)
		size, err := FrameSize(data, maxFrame)
		if err != nil || size == 0 || size > len(data) {
			return
		}
		var fr Frame
		if err := fr.Parse(data[:size]); err != nil {
			return
		}
		if len(fr.Command)+len(fr.Payload)+2*lengthSize != size || len(fr.Body) > len(fr.Command) {
			t.Fatalf("%d bytes: command %d, body %d, payload %d", size, len(fr.Command), len(fr.Body), len(fr.Payload))
		}
		var s Section
		if s.Parse(fr.Payload) == nil && len(s.BrokerEntry)+len(s.Metadata)+len(s.Body) > len(fr.Payload) {
			t.Fatal("section larger than the payload")
		}
	})
}

// FuzzCommand compares the hand decoders with the generated code on arbitrary encoded commands. which picks the command.
func FuzzCommand(f *testing.F) {
	for _, b := range seeds(f) {
		var fr Frame
		if fr.Parse(b) == nil {
			for which := range byte(4) {
				f.Add(which, fr.Body)
			}
		}
	}
	meta, _ := proto.Marshal(testMetadata())
	f.Add(byte(3), meta)
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		switch which % 4 {
		case 0:
			var s Send
			var p pulsarpb.CommandSend
			if agree(t, s.Decode(body), proto.Unmarshal(body, &p)) {
				compareSend(t, &s, &p)
			}
		case 1:
			a := Ack{MessageIDs: make([]MessageID, 3)}
			var p pulsarpb.CommandAck
			err := proto.Unmarshal(body, &p)
			if p.GetAckType() > pulsarpb.CommandAck_Cumulative || p.GetAckType() < 0 {
				return
			}
			if agree(t, a.Decode(body), err) {
				compareAck(t, &a, &p)
			}
		case 2:
			var c Flow
			var p pulsarpb.CommandFlow
			if agree(t, c.Decode(body), proto.Unmarshal(body, &p)) &&
				(c.ConsumerID != p.GetConsumerId() || c.Permits != p.GetMessagePermits()) {
				t.Fatalf("%+v, %v", c, &p)
			}
		case 3:
			// The peek skips nested messages, so it may accept more; what both accept must be the same.
			var m Metadata
			var p pulsarpb.MessageMetadata
			err := m.Parse(body)
			if perr := proto.Unmarshal(body, &p); perr == nil {
				if err != nil {
					t.Fatalf("peek refuses: %v", err)
				}
				comparePeek(t, &m, &p)
			}
		}
	})
}

// agree reports whether both decoders accept. The hand decoder may refuse sub-messages that occur twice or nest deeply.
func agree(t *testing.T, hand, generated error) bool {
	t.Helper()
	if hand == nil && generated != nil {
		t.Fatalf("the hand decoder accepts, the generated one says %v", generated)
	}
	if hand != nil && generated == nil && !strings.Contains(hand.Error(), "message_id") {
		t.Fatalf("the generated decoder accepts, the hand one says %v", hand)
	}
	if hand != nil && !errors.Is(hand, ErrBadCommand) {
		t.Fatalf("error without sentinel: %v", hand)
	}
	return hand == nil
}

func compareSend(t *testing.T, s *Send, p *pulsarpb.CommandSend) {
	t.Helper()
	want := Send{
		ProducerID: p.GetProducerId(), SequenceID: p.GetSequenceId(), HighestSequenceID: p.GetHighestSequenceId(),
		TxnLeast: p.GetTxnidLeastBits(), TxnMost: p.GetTxnidMostBits(), NumMessages: p.GetNumMessages(),
		IsChunk: p.GetIsChunk(), Marker: p.GetMarker(), InTxn: p.TxnidLeastBits != nil && p.TxnidMostBits != nil,
	}
	if *s != want {
		t.Fatalf("by hand %+v, generated %+v", *s, want)
	}
}

func compareAck(t *testing.T, a *Ack, p *pulsarpb.CommandAck) {
	t.Helper()
	same := a.ConsumerID == p.GetConsumerId() && a.Type == p.GetAckType() && a.RequestID == p.GetRequestId() &&
		a.HasRequestID == (p.RequestId != nil) && a.ValidationError == p.GetValidationError() &&
		a.HasValidation == (p.ValidationError != nil) && a.TxnLeast == p.GetTxnidLeastBits() &&
		a.TxnMost == p.GetTxnidMostBits() && len(a.MessageIDs) == len(p.MessageId)
	for i := 0; same && i < len(a.MessageIDs); i++ {
		id, want := &a.MessageIDs[i], p.MessageId[i]
		same = id.Ledger == want.GetLedgerId() && id.Entry == want.GetEntryId() && id.Partition == want.GetPartition() &&
			id.BatchIndex == want.GetBatchIndex() && id.BatchSize == want.GetBatchSize() && slices.Equal(id.AckSet, want.AckSet)
	}
	if !same {
		t.Fatalf("by hand %+v, generated %v", a, p)
	}
}
