package protocol

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

// The encoders in this file append one frame to b and allocate only if b has no room. They write a frame in order,
// leave its three sizes open and fill them in at the end. One byte is left for the size of the command; should that
// be too few, the command moves.

// frameWriter appends one frame whose command is the field t of BaseCommand.
type frameWriter struct {
	b     []byte
	start int // of the frame
	body  int // of the command's own fields
}

// open starts a frame. The body's size is written by close.
func open(b []byte, t Type) frameWriter {
	w := frameWriter{start: len(b)}
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(t))
	b = protowire.AppendTag(b, protowire.Number(t), protowire.BytesType)
	w.b = append(b, 0) //nolint:gocritic // b lives on in w
	w.body = len(w.b)
	return w
}

// close fills the sizes in and returns the slice. payload bytes are to follow behind the frame.
func (w *frameWriter) close(payload int) []byte {
	w.b = closeSize(w.b, w.body)
	cmd := len(w.b) - w.start - 2*lengthSize
	binary.BigEndian.PutUint32(w.b[w.start:], uint32(lengthSize+cmd+payload))
	binary.BigEndian.PutUint32(w.b[w.start+lengthSize:], uint32(cmd))
	return w.b
}

// closeSize writes the size of b[start:] into the byte before start, and makes room first if one is too few.
func closeSize(b []byte, start int) []byte {
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	extra := protowire.SizeVarint(uint64(n)) - 1
	var pad [4]byte
	b = append(b, pad[:extra]...)
	copy(b[start+extra:], b[start:start+n])
	protowire.AppendVarint(b[:start-1], uint64(n))
	return b
}

func (w *frameWriter) u64(num protowire.Number, v uint64) {
	w.b = protowire.AppendVarint(protowire.AppendTag(w.b, num, protowire.VarintType), v)
}

func (w *frameWriter) text(num protowire.Number, s string) {
	w.b = protowire.AppendString(protowire.AppendTag(w.b, num, protowire.BytesType), s)
}

// messageID appends a MessageIdData with its place in a topic; partition is left out when negative.
func (w *frameWriter) messageID(num protowire.Number, ledger, entry uint64, partition int32) {
	w.b = append(protowire.AppendTag(w.b, num, protowire.BytesType), 0)
	start := len(w.b)
	w.u64(1, ledger)
	w.u64(2, entry)
	if partition >= 0 {
		w.u64(3, uint64(partition))
	}
	w.b[start-1] = byte(len(w.b) - start) // at most 33
}

// SendReceipt says that a message is stored.
type SendReceipt struct {
	ProducerID, SequenceID, HighestSequenceID uint64
	Ledger, Entry                             uint64
}

// AppendSendReceipt appends a SEND_RECEIPT frame.
func AppendSendReceipt(b []byte, r *SendReceipt) []byte {
	w := open(b, pulsarpb.BaseCommand_SEND_RECEIPT)
	w.u64(1, r.ProducerID)
	w.u64(2, r.SequenceID)
	w.messageID(3, r.Ledger, r.Entry, -1)
	if r.HighestSequenceID != 0 {
		w.u64(4, r.HighestSequenceID)
	}
	return w.close(0)
}

// AppendSendError appends a SEND_ERROR frame. Most codes make clients drop the whole connection.
func AppendSendError(b []byte, producer, sequence uint64, code ServerError, text string) []byte {
	w := open(b, pulsarpb.BaseCommand_SEND_ERROR)
	w.u64(1, producer)
	w.u64(2, sequence)
	w.u64(3, uint64(code))
	w.text(4, text)
	return w.close(0)
}

// Message is the command in front of a delivered entry.
type Message struct {
	ConsumerID      uint64
	Ledger, Entry   uint64
	Partition       int32 // negative: none
	RedeliveryCount uint32
	AckSet          []int64 // a set bit: to be consumed
}

// AppendMessageHeader appends what comes before a payload section of payloadSize bytes in a MESSAGE frame. The caller
// sends the section itself right behind.
func AppendMessageHeader(b []byte, m *Message, payloadSize int) []byte {
	w := open(b, pulsarpb.BaseCommand_MESSAGE)
	w.u64(1, m.ConsumerID)
	w.messageID(2, m.Ledger, m.Entry, m.Partition)
	if m.RedeliveryCount != 0 {
		w.u64(3, uint64(m.RedeliveryCount))
	}
	for _, word := range m.AckSet {
		w.u64(4, uint64(word))
	}
	return w.close(payloadSize)
}

// AckResponse answers an ACK that had a request id.
type AckResponse struct {
	ConsumerID, RequestID uint64
	TxnLeast, TxnMost     uint64
	Failed                bool
	Error                 ServerError // if Failed
	Text                  string      // if Failed; clients need it to notice
}

// AppendAckResponse appends an ACK_RESPONSE frame.
func AppendAckResponse(b []byte, r *AckResponse) []byte {
	w := open(b, pulsarpb.BaseCommand_ACK_RESPONSE)
	w.u64(1, r.ConsumerID)
	if r.TxnLeast != 0 || r.TxnMost != 0 {
		w.u64(2, r.TxnLeast)
		w.u64(3, r.TxnMost)
	}
	if r.Failed {
		w.u64(4, uint64(r.Error))
		w.text(5, r.Text)
	}
	w.u64(6, r.RequestID)
	return w.close(0)
}

// AppendPing appends a PING frame.
func AppendPing(b []byte) []byte { w := open(b, pulsarpb.BaseCommand_PING); return w.close(0) }

// AppendPong appends a PONG frame.
func AppendPong(b []byte) []byte { w := open(b, pulsarpb.BaseCommand_PONG); return w.close(0) }

// AppendSuccess appends a SUCCESS frame.
func AppendSuccess(b []byte, request uint64) []byte {
	w := open(b, pulsarpb.BaseCommand_SUCCESS)
	w.u64(1, request)
	return w.close(0)
}

// AppendError appends an ERROR frame.
func AppendError(b []byte, request uint64, code ServerError, text string) []byte {
	w := open(b, pulsarpb.BaseCommand_ERROR)
	w.u64(1, request)
	w.u64(2, uint64(code))
	w.text(3, text)
	return w.close(0)
}

// NoRequest is the request id of a command that expects no answer.
const NoRequest = ^uint64(0)

// AppendClose appends CLOSE_PRODUCER or CLOSE_CONSUMER from the broker's side. The URLs of the broker to turn to may be
// empty.
func AppendClose(b []byte, t Type, id uint64, url, urlTLS string) []byte {
	w := open(b, t)
	w.u64(1, id)
	w.u64(2, NoRequest)
	if url != "" {
		w.text(3, url)
	}
	if urlTLS != "" {
		w.text(4, urlTLS)
	}
	return w.close(0)
}

// AppendCommand appends a frame without payload around any command. The one error is a required field left out.
func AppendCommand(b []byte, cmd *pulsarpb.BaseCommand) ([]byte, error) {
	start := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, cmd)
	if err != nil {
		return b[:start], badCommand(err.Error())
	}
	size := len(b) - start - 2*lengthSize
	binary.BigEndian.PutUint32(b[start:], uint32(lengthSize+size))
	binary.BigEndian.PutUint32(b[start+lengthSize:], uint32(size))
	return b, nil
}

// AppendPayloadFrame appends a frame with a payload section behind it, as clients send SEND.
func AppendPayloadFrame(b []byte, cmd *pulsarpb.BaseCommand, section []byte) ([]byte, error) {
	start := len(b)
	b, err := AppendCommand(b, cmd)
	if err != nil {
		return b, err
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-lengthSize+len(section)))
	return append(b, section...), nil
}
