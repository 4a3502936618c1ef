package protocol

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

// The stage "decode" of the publish path, by hand and by the generated code, and the checksum apart.
func BenchmarkDecode(b *testing.B) {
	frame := sendFrame(b, make([]byte, 128))
	b.Run("command=send/by=hand", func(b *testing.B) {
		b.ReportAllocs()
		var f Frame
		var s Send
		for b.Loop() {
			if f.Parse(frame) != nil || s.Decode(f.Body) != nil {
				b.Fatal("refused")
			}
		}
	})
	b.Run("command=send/by=generated", func(b *testing.B) {
		b.ReportAllocs()
		var f Frame
		var cmd pulsarpb.BaseCommand
		for b.Loop() {
			if f.Parse(frame) != nil || f.Unmarshal(&cmd) != nil {
				b.Fatal("refused")
			}
		}
	})
	acks := ackFrame(b, 100, 0)
	b.Run("command=ack/ids=100/by=hand", func(b *testing.B) {
		b.ReportAllocs()
		var f Frame
		var a Ack
		for b.Loop() {
			if f.Parse(acks) != nil || a.Decode(f.Body) != nil {
				b.Fatal("refused")
			}
		}
	})
	b.Run("command=ack/ids=100/by=generated", func(b *testing.B) {
		b.ReportAllocs()
		var f Frame
		var cmd pulsarpb.BaseCommand
		for b.Loop() {
			if f.Parse(acks) != nil || f.Unmarshal(&cmd) != nil {
				b.Fatal("refused")
			}
		}
	})
}

func BenchmarkMetadata(b *testing.B) {
	meta, _ := proto.Marshal(testMetadata())
	b.Run("by=hand", func(b *testing.B) {
		b.ReportAllocs()
		var m Metadata
		for b.Loop() {
			_ = m.Parse(meta)
		}
	})
	b.Run("by=generated", func(b *testing.B) {
		b.ReportAllocs()
		var m pulsarpb.MessageMetadata
		for b.Loop() {
			_ = proto.Unmarshal(meta, &m)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{128, 1024, 65536} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			section, _ := AppendSection(nil, testMetadata(), make([]byte, size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var s Section
			for b.Loop() {
				if s.Parse(section) != nil || s.Verify() != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	buf := make([]byte, 0, 256)
	b.Run("command=receipt/by=hand", func(b *testing.B) {
		b.ReportAllocs()
		r := SendReceipt{ProducerID: 3, SequenceID: 1 << 20, Ledger: 77, Entry: 1 << 16}
		for b.Loop() {
			buf = AppendSendReceipt(buf[:0], &r)
		}
	})
	b.Run("command=receipt/by=generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = AppendCommand(buf[:0], &pulsarpb.BaseCommand{
				Type: pulsarpb.BaseCommand_SEND_RECEIPT.Enum(),
				SendReceipt: &pulsarpb.CommandSendReceipt{
					ProducerId: proto.Uint64(3), SequenceId: proto.Uint64(1 << 20),
					MessageId: &pulsarpb.MessageIdData{LedgerId: proto.Uint64(77), EntryId: proto.Uint64(1 << 16)},
				},
			})
		}
	})
	b.Run("command=message/by=hand", func(b *testing.B) {
		b.ReportAllocs()
		m := Message{ConsumerID: 3, Ledger: 77, Entry: 1 << 16, Partition: -1}
		for b.Loop() {
			buf = AppendMessageHeader(buf[:0], &m, 128)
		}
	})
}
