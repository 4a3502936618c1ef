package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// conn is a connection of the raw protocol: no batching, no reconnects, nothing that costs more than the broker.
type conn struct {
	net.Conn
	r     *bufio.Reader
	buf   []byte
	frame protocol.Frame
}

// dial connects, shakes hands and looks the topic up, which makes the broker own it.
func dial(addr, topic string) (*conn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, r: bufio.NewReaderSize(nc, 64<<10)}
	err = c.call(&pulsarpb.BaseCommand{
		Type:    pulsarpb.BaseCommand_CONNECT.Enum(),
		Connect: &pulsarpb.CommandConnect{ClientVersion: proto.String("geminga-bench"), ProtocolVersion: proto.Int32(protocol.Version)},
	}, pulsarpb.BaseCommand_CONNECTED)
	if err == nil {
		err = c.call(&pulsarpb.BaseCommand{
			Type:        pulsarpb.BaseCommand_LOOKUP.Enum(),
			LookupTopic: &pulsarpb.CommandLookupTopic{Topic: &topic, RequestId: proto.Uint64(1), Authoritative: proto.Bool(true)},
		}, pulsarpb.BaseCommand_LOOKUP_RESPONSE)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// call sends a command and reads frames until one of the wanted type; an error frame ends it.
func (c *conn) call(cmd *pulsarpb.BaseCommand, want protocol.Type) error {
	b, err := protocol.AppendCommand(nil, cmd)
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	for {
		if err := c.next(); err != nil {
			return err
		}
		switch c.frame.Type {
		case want:
			return nil
		case pulsarpb.BaseCommand_ERROR:
			var cmd pulsarpb.BaseCommand
			if err := c.frame.Unmarshal(&cmd); err != nil {
				return err
			}
			return fmt.Errorf("%v: %s", cmd.Error.GetError(), cmd.Error.GetMessage())
		}
	}
}

// next reads one frame into c.frame, which is valid until the next call.
func (c *conn) next() error {
	head, err := c.r.Peek(4)
	if err != nil {
		return err
	}
	size, err := protocol.FrameSize(head, protocol.MaxFrameSize(protocol.DefaultMaxMessageSize))
	if err != nil {
		return err
	}
	if cap(c.buf) < size {
		c.buf = make([]byte, size)
	}
	if _, err := io.ReadFull(c.r, c.buf[:size]); err != nil {
		return err
	}
	return c.frame.Parse(c.buf[:size])
}

// firstSequence makes every sequence id of a run take five bytes, so that one template serves all frames.
const firstSequence = 1 << 28

// template is a SEND frame whose sequence id can be replaced in place: the checksum does not cover the command.
type template struct {
	bytes []byte
	at    int
}

func newTemplate(producer uint64, size int) (template, error) {
	section, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
		ProducerName: proto.String("bench"), SequenceId: proto.Uint64(0), PublishTime: proto.Uint64(1),
	}, make([]byte, size))
	if err != nil {
		return template{}, err
	}
	b, err := protocol.AppendPayloadFrame(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEND.Enum(),
		Send: &pulsarpb.CommandSend{ProducerId: &producer, SequenceId: proto.Uint64(firstSequence), NumMessages: proto.Int32(1)},
	}, section)
	if err != nil {
		return template{}, err
	}
	want := protowire.AppendVarint(nil, firstSequence)
	for i := range b {
		if i+len(want) <= len(b) && string(b[i:i+len(want)]) == string(want) {
			return template{b, i}, nil
		}
	}
	return template{}, errors.New("no sequence id in the frame")
}

// appendTo appends the frame with its n-th sequence id.
func (t template) appendTo(out []byte, n int) []byte {
	at := len(out) + t.at
	out = append(out, t.bytes...)
	v := uint64(firstSequence + n)
	for i := range 4 {
		out[at+i] = byte(v>>(7*i)) | 0x80
	}
	out[at+4] = byte(v >> 28)
	return out
}

// sequenceOf reads the sequence id of the receipt in f.
func sequenceOf(f *protocol.Frame) (uint64, error) {
	for b := f.Body; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if num == 2 {
			v, _ := protowire.ConsumeVarint(b)
			return v, nil
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return 0, errors.New("receipt without a sequence id")
}

// entryOf reads ledger and entry of the message in f, for its acknowledgement.
func entryOf(f *protocol.Frame) (*pulsarpb.MessageIdData, error) {
	var cmd pulsarpb.BaseCommand
	if err := f.Unmarshal(&cmd); err != nil {
		return nil, err
	}
	return cmd.Message.GetMessageId(), nil
}
