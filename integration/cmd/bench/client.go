package main

import (
	"bufio"
	"encoding/binary"
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

// drained tells that next will have to wait for the peer: what follows has not arrived.
func (c *conn) drained() bool { return c.r.Buffered() < 4 }

// valueOf returns what follows the tag of the first field num in f's command: its value, and the fields behind it.
func valueOf(f *protocol.Frame, num protowire.Number) ([]byte, error) {
	for b := f.Body; len(b) > 0; {
		got, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		if got == num {
			return b, nil
		}
		if n = protowire.ConsumeFieldValue(got, typ, b); n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil, fmt.Errorf("%v without field %d", f.Type, num)
}

// sequenceOf reads the sequence id of the receipt in f.
func sequenceOf(f *protocol.Frame) (uint64, error) {
	b, err := valueOf(f, 2)
	if err != nil {
		return 0, err
	}
	v, n := protowire.ConsumeVarint(b)
	return v, protowire.ParseError(n)
}

// idOf returns the encoded id of the message in f, which f owns.
func idOf(f *protocol.Frame) ([]byte, error) {
	b, err := valueOf(f, 2)
	if err != nil {
		return nil, err
	}
	id, n := protowire.ConsumeBytes(b)
	return id, protowire.ParseError(n)
}

// appendFrame appends the frame of a command without payload whose own fields are encoded in body.
func appendFrame(out []byte, t protocol.Type, body []byte) []byte {
	start := len(out)
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0)
	out = protowire.AppendVarint(protowire.AppendTag(out, 1, protowire.VarintType), uint64(t))
	out = protowire.AppendBytes(protowire.AppendTag(out, protowire.Number(t), protowire.BytesType), body)
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-4))
	binary.BigEndian.PutUint32(out[start+4:], uint32(len(out)-start-8))
	return out
}
