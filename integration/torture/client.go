// Package torture is a client of the raw Pulsar protocol for tests that do what no good client would do: it writes any
// bytes, stops anywhere, and reads when it likes. Beside it, Watch tells whether the broker is as it was before.
//
//	frames (Connect, Subscribe, …) ──Client.Write──▶ brokerd ──▶ Client.Next
//	                                                    │
//	Watch.Now: goroutines, descriptors, memory, clients of the topic ──▶ Watch.Settled: as before, within bounds
package torture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// patience is how long the broker may take to answer.
const patience = 30 * time.Second

// Client is one connection. It does nothing by itself.
type Client struct {
	net.Conn
	reader *bufio.Reader
}

// Dial connects, from the address given or, if it is empty, from any.
func Dial(broker, from string) (*Client, error) {
	var d net.Dialer
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial("tcp", broker)
	if err != nil {
		return nil, err
	}
	return &Client{Conn: c}, nil
}

// Join connects and shakes hands.
func Join(broker, from string) (*Client, error) {
	c, err := Dial(broker, from)
	if err != nil {
		return nil, err
	}
	if _, err := c.Ask(Connect(), pulsarpb.BaseCommand_CONNECTED); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Reset closes the connection so that the broker gets a reset.
func (c *Client) Reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Next reads a frame. What it reads ahead it holds only while there are frames, so that idle clients are small.
func (c *Client) Next() (*pulsarpb.BaseCommand, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if c.reader == nil {
		c.reader = bufio.NewReaderSize(c.Conn, 4<<10)
	}
	defer func() {
		if c.reader.Buffered() == 0 {
			c.reader = nil
		}
	}()
	var head [4]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return nil, err
	}
	b := append(head[:], make([]byte, binary.BigEndian.Uint32(head[:]))...)
	if _, err := io.ReadFull(c.reader, b[4:]); err != nil {
		return nil, err
	}
	var f protocol.Frame
	if err := f.Parse(b); err != nil {
		return nil, err
	}
	cmd := new(pulsarpb.BaseCommand)
	return cmd, f.Unmarshal(cmd)
}

// Until reads frames until one of a type, answers PING meanwhile, and fails at an error.
func (c *Client) Until(want pulsarpb.BaseCommand_Type) (*pulsarpb.BaseCommand, error) {
	for {
		cmd, err := c.Next()
		switch {
		case err != nil:
			return nil, fmt.Errorf("waiting for %v: %w", want, err)
		case cmd.GetType() == want:
			return cmd, nil
		case cmd.GetType() == pulsarpb.BaseCommand_ERROR:
			return nil, fmt.Errorf("waiting for %v: %v: %s", want, cmd.Error.GetError(), cmd.Error.GetMessage())
		case cmd.GetType() == pulsarpb.BaseCommand_PING:
			if _, err := c.Write(protocol.AppendPong(nil)); err != nil {
				return nil, err
			}
		}
	}
}

// Ask writes a frame and waits for the answer.
func (c *Client) Ask(frame []byte, want pulsarpb.BaseCommand_Type) (*pulsarpb.BaseCommand, error) {
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	return c.Until(want)
}

func command(cmd *pulsarpb.BaseCommand) []byte {
	b, err := protocol.AppendCommand(nil, cmd)
	if err != nil {
		panic(err) // a required field is missing
	}
	return b
}

// Connect is the first frame.
func Connect() []byte {
	return command(&pulsarpb.BaseCommand{
		Type:    pulsarpb.BaseCommand_CONNECT.Enum(),
		Connect: &pulsarpb.CommandConnect{ClientVersion: proto.String("torture"), ProtocolVersion: proto.Int32(protocol.Version)},
	})
}

// Lookup makes the broker own the topic.
func Lookup(topic string) []byte {
	return command(&pulsarpb.BaseCommand{
		Type:        pulsarpb.BaseCommand_LOOKUP.Enum(),
		LookupTopic: &pulsarpb.CommandLookupTopic{Topic: &topic, RequestId: proto.Uint64(1), Authoritative: proto.Bool(true)},
	})
}

// Producer opens a producer.
func Producer(topic string, id uint64) []byte {
	return command(&pulsarpb.BaseCommand{
		Type:     pulsarpb.BaseCommand_PRODUCER.Enum(),
		Producer: &pulsarpb.CommandProducer{Topic: &topic, ProducerId: &id, RequestId: proto.Uint64(id)},
	})
}

// Send publishes a message of a producer.
func Send(id, sequence uint64, body []byte) []byte {
	section, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
		ProducerName: proto.String("torture"), SequenceId: &sequence, PublishTime: proto.Uint64(1),
	}, body)
	if err != nil {
		panic(err)
	}
	b, err := protocol.AppendPayloadFrame(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEND.Enum(),
		Send: &pulsarpb.CommandSend{ProducerId: &id, SequenceId: &sequence, NumMessages: proto.Int32(1)},
	}, section)
	if err != nil {
		panic(err)
	}
	return b
}

// Subscribe opens a consumer of a Shared subscription that begins with the first message.
func Subscribe(topic, subscription string, id uint64) []byte {
	return command(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SUBSCRIBE.Enum(),
		Subscribe: &pulsarpb.CommandSubscribe{
			Topic: &topic, Subscription: &subscription, SubType: pulsarpb.CommandSubscribe_Shared.Enum(),
			ConsumerId: &id, RequestId: &id, InitialPosition: pulsarpb.CommandSubscribe_Earliest.Enum(),
		},
	})
}

// Flow gives permits.
func Flow(id uint64, permits uint32) []byte {
	return command(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_FLOW.Enum(), Flow: &pulsarpb.CommandFlow{ConsumerId: &id, MessagePermits: &permits},
	})
}

// Ack acknowledges messages.
func Ack(id uint64, ids ...*pulsarpb.MessageIdData) []byte {
	return command(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_ACK.Enum(),
		Ack:  &pulsarpb.CommandAck{ConsumerId: &id, AckType: pulsarpb.CommandAck_Individual.Enum(), MessageId: ids},
	})
}

// ID names a message.
func ID(ledger, entry uint64) *pulsarpb.MessageIdData {
	return &pulsarpb.MessageIdData{LedgerId: &ledger, EntryId: &entry}
}

// CloseConsumer closes a consumer.
func CloseConsumer(id uint64) []byte {
	return command(&pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_CONSUMER.Enum(),
		CloseConsumer: &pulsarpb.CommandCloseConsumer{ConsumerId: &id, RequestId: &id},
	})
}

// CloseProducer closes a producer.
func CloseProducer(id uint64) []byte {
	return command(&pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_PRODUCER.Enum(),
		CloseProducer: &pulsarpb.CommandCloseProducer{ProducerId: &id, RequestId: &id},
	})
}
