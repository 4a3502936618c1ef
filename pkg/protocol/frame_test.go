package protocol

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

func TestBrokenFrames(t *testing.T) {
	datadriven.RunTest(t, "testdata/broken", func(t *testing.T, d *datadriven.TestData) string {
		data, err := hex.DecodeString(strings.Join(strings.Fields(d.Input), ""))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		max := DefaultMaxMessageSize
		d.MaybeScanArgs(t, "max", &max)
		return strings.ReplaceAll(explain(data, MaxFrameSize(max)), "\u00a0", " ") // protobuf varies the space
	})
}

// explain runs the whole codec over data, as a connection would.
func explain(data []byte, maxFrame int) string {
	size, err := FrameSize(data, maxFrame)
	switch {
	case err != nil && Sniff(data) != NotForeign:
		return fmt.Sprintf("%s: %v", Sniff(data), err)
	case err != nil:
		return err.Error()
	case size == 0 || size > len(data):
		return fmt.Sprintf("incomplete: %d of %d bytes", len(data), size)
	}
	var f Frame
	if err := f.Parse(data[:size]); err != nil {
		return err.Error()
	}
	if err := decodeAny(&f); err != nil {
		return err.Error()
	}
	if f.Type != pulsarpb.BaseCommand_SEND {
		return f.Type.String()
	}
	var s Section
	err = s.Parse(f.Payload)
	if err == nil {
		err = s.Verify()
	}
	if err == nil {
		var m Metadata
		err = m.Parse(s.Metadata)
	}
	return fmt.Sprintf("%v: %v", f.Type, err)
}

func decodeAny(f *Frame) error {
	switch f.Type {
	case pulsarpb.BaseCommand_SEND:
		return new(Send).Decode(f.Body)
	case pulsarpb.BaseCommand_ACK:
		return new(Ack).Decode(f.Body)
	case pulsarpb.BaseCommand_FLOW:
		return new(Flow).Decode(f.Body)
	}
	return f.Unmarshal(new(pulsarpb.BaseCommand))
}

func TestFrameSize(t *testing.T) {
	frame := AppendPing(nil)
	for n := range lengthSize {
		if size, err := FrameSize(frame[:n], 100); size != 0 || err != nil {
			t.Errorf("of %d bytes: %d, %v", n, size, err)
		}
	}
	for n := lengthSize; n <= len(frame)+3; n++ {
		if size, err := FrameSize(append(frame, 1, 2, 3)[:n], 100); size != len(frame) || err != nil {
			t.Errorf("of %d bytes: %d, %v; want %d", n, size, err, len(frame))
		}
	}
	if _, err := FrameSize(frame, len(frame)-lengthSize); err != nil {
		t.Errorf("a frame of exactly the limit: %v", err)
	}
	if _, err := FrameSize(frame, len(frame)-lengthSize-1); err == nil {
		t.Error("a frame beyond the limit passes")
	}
}

// Every prefix of a frame must be refused by Parse, and no byte after it may be read.
func TestParsePrefixes(t *testing.T) {
	frame := sendFrame(t, []byte("hello"))
	for n := range frame {
		if err := new(Frame).Parse(frame[:n:n]); err == nil {
			t.Errorf("prefix of %d bytes passes", n)
		}
	}
	var f Frame
	if err := f.Parse(frame); err != nil {
		t.Fatal(err)
	}
	var s Section
	if err := s.Parse(f.Payload); err != nil {
		t.Fatal(err)
	}
	if string(s.Body) != "hello" || !s.HasChecksum {
		t.Errorf("body %q", s.Body)
	}
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
}

func TestChecksumCoversEverything(t *testing.T) {
	section, err := AppendSection(nil, testMetadata(), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range section {
		for bit := range 8 {
			broken := append([]byte(nil), section...)
			broken[i] ^= 1 << bit
			var s Section
			if err := s.Parse(broken); err != nil {
				continue
			}
			if s.HasChecksum && s.Verify() == nil {
				t.Errorf("flip of bit %d in byte %d goes unnoticed", bit, i)
			}
		}
	}
}

func TestSectionForms(t *testing.T) {
	section, _ := AppendSection(nil, testMetadata(), []byte("x"))
	entry, _ := proto.Marshal(&pulsarpb.BrokerEntryMetadata{Index: proto.Uint64(7)})
	withBroker := append([]byte{0x0e, 0x02, 0, 0, 0, byte(len(entry))}, entry...)
	for name, b := range map[string][]byte{
		"plain":         section[magicSize+lengthSize:],
		"checksum":      section,
		"broker":        append(append([]byte(nil), withBroker...), section...),
		"broker, plain": append(append([]byte(nil), withBroker...), section[magicSize+lengthSize:]...),
	} {
		var s Section
		if err := s.Parse(b); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Verify() != nil || string(s.Body) != "x" || (s.BrokerEntry != nil) != strings.Contains(name, "broker") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestSniff(t *testing.T) {
	for in, want := range map[string]Foreign{
		"GET / HTTP/1.1": HTTP, "POST /x": HTTP, "PRI * HTTP/2.0": HTTP, "\x16\x03\x01\x02\x00": TLS,
		"\x00\x00\x00\x10": NotForeign, "GE": NotForeign, "": NotForeign, "hello": NotForeign,
	} {
		if got := Sniff([]byte(in)); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func testMetadata() *pulsarpb.MessageMetadata {
	return &pulsarpb.MessageMetadata{
		ProducerName: proto.String("standalone-1-2"), SequenceId: proto.Uint64(41),
		PublishTime: proto.Uint64(1700000000000), PartitionKey: proto.String("key-7"),
	}
}

func sendFrame(tb testing.TB, body []byte) []byte {
	tb.Helper()
	section, err := AppendSection(nil, testMetadata(), body)
	if err != nil {
		tb.Fatal(err)
	}
	frame, err := AppendPayloadFrame(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEND.Enum(),
		Send: &pulsarpb.CommandSend{ProducerId: proto.Uint64(3), SequenceId: proto.Uint64(41), NumMessages: proto.Int32(1)},
	}, section)
	if err != nil {
		tb.Fatal(err)
	}
	return frame
}
