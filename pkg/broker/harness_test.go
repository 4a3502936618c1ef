package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/bookietest"
	"geminga/pkg/eventloop"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

const patience = 10 * time.Second

// start opens a broker on bookies in memory.
func start(t *testing.T, change ...func(*Options)) (*Server, *bookietest.Cluster) {
	t.Helper()
	cluster := bookietest.New(bookietest.Options{})
	s := startOn(t, cluster, change...)
	return s, cluster
}

func startOn(t *testing.T, cluster *bookietest.Cluster, change ...func(*Options)) *Server {
	t.Helper()
	client := cluster.Client()
	o := Options{
		ID: "broker-1", ListenAddress: "127.0.0.1:0", Bookies: client, Store: client, Watch: client.Watch,
		Loops: 2, ExecutorThreads: 2,
	}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// peer is a client that speaks in frames.
type peer struct {
	t       *testing.T
	conn    net.Conn
	request uint64
}

func dial(t *testing.T, s *Server) *peer {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.ServiceURL(), "pulsar://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &peer{t: t, conn: c}
}

// pipe is dial without a socket, over the portable backend.
func pipe(t *testing.T, s *Server) *peer {
	t.Helper()
	mine, theirs := net.Pipe()
	if err := s.Serve(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mine.Close() })
	return &peer{t: t, conn: mine}
}

// connect dials and shakes hands.
func connect(t *testing.T, s *Server) *peer {
	t.Helper()
	p := dial(t, s)
	p.handshake()
	return p
}

func (p *peer) handshake() *pulsarpb.CommandConnected {
	p.t.Helper()
	p.send(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_CONNECT.Enum(),
		Connect: &pulsarpb.CommandConnect{
			ClientVersion: proto.String("test"), ProtocolVersion: proto.Int32(protocol.Version),
		},
	})
	return p.expect(pulsarpb.BaseCommand_CONNECTED).Connected
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	_ = p.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

func (p *peer) send(cmd *pulsarpb.BaseCommand) {
	p.t.Helper()
	b, err := protocol.AppendCommand(nil, cmd)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(b)
}

// frame reads one frame: its command and its payload section.
func (p *peer) frame() (*pulsarpb.BaseCommand, []byte, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	var head [4]byte
	if _, err := io.ReadFull(p.conn, head[:]); err != nil {
		return nil, nil, err
	}
	b := make([]byte, 4+int(binary.BigEndian.Uint32(head[:])))
	copy(b, head[:])
	if _, err := io.ReadFull(p.conn, b[4:]); err != nil {
		return nil, nil, err
	}
	var f protocol.Frame
	if err := f.Parse(b); err != nil {
		return nil, nil, err
	}
	cmd := &pulsarpb.BaseCommand{}
	return cmd, f.Payload, f.Unmarshal(cmd)
}

// expect reads frames up to one of the type; PINGs are answered, any other type is a failure.
func (p *peer) expect(want pulsarpb.BaseCommand_Type) *pulsarpb.BaseCommand {
	p.t.Helper()
	cmd, _ := p.expectPayload(want)
	return cmd
}

func (p *peer) expectPayload(want pulsarpb.BaseCommand_Type) (*pulsarpb.BaseCommand, []byte) {
	p.t.Helper()
	for {
		cmd, payload, err := p.frame()
		switch {
		case err != nil:
			p.t.Fatalf("waiting for %v: %v", want, err)
		case cmd.GetType() == want:
			return cmd, payload
		case cmd.GetType() == pulsarpb.BaseCommand_PING:
			p.write(protocol.AppendPong(nil))
		default:
			p.t.Fatalf("waiting for %v: got %v", want, cmd)
		}
	}
}

// closed reads until the broker closes the connection.
func (p *peer) closed() {
	p.t.Helper()
	for {
		if _, _, err := p.frame(); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				p.t.Fatal("the connection was not closed")
			}
			return
		}
	}
}

func (p *peer) id() *uint64 {
	p.request++
	return proto.Uint64(p.request)
}

func (p *peer) lookup(topic string) *pulsarpb.CommandLookupTopicResponse {
	p.t.Helper()
	p.send(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_LOOKUP.Enum(), LookupTopic: &pulsarpb.CommandLookupTopic{Topic: &topic, RequestId: p.id()},
	})
	return p.expect(pulsarpb.BaseCommand_LOOKUP_RESPONSE).LookupTopicResponse
}

func producerCommand(topic string, producer, request uint64, name string) *pulsarpb.BaseCommand {
	cmd := &pulsarpb.CommandProducer{Topic: &topic, ProducerId: &producer, RequestId: &request}
	if name != "" {
		cmd.ProducerName = &name
	}
	return &pulsarpb.BaseCommand{Type: pulsarpb.BaseCommand_PRODUCER.Enum(), Producer: cmd}
}

// producer looks the topic up and opens a producer.
func (p *peer) producer(topic string, id uint64, name string) *pulsarpb.CommandProducerSuccess {
	p.t.Helper()
	p.lookup(topic)
	p.send(producerCommand(topic, id, *p.id(), name))
	return p.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS).ProducerSuccess
}

func sendFrame(t *testing.T, producer, sequence uint64, body string) []byte {
	t.Helper()
	section, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
		ProducerName: proto.String("p"), SequenceId: &sequence, PublishTime: proto.Uint64(1),
	}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	b, err := protocol.AppendPayloadFrame(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEND.Enum(),
		Send: &pulsarpb.CommandSend{ProducerId: &producer, SequenceId: &sequence, NumMessages: proto.Int32(1)},
	}, section)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// publish sends a message and waits for its receipt.
func (p *peer) publish(producer, sequence uint64, body string) *pulsarpb.MessageIdData {
	p.t.Helper()
	p.write(sendFrame(p.t, producer, sequence, body))
	r := p.expect(pulsarpb.BaseCommand_SEND_RECEIPT).SendReceipt
	if r.GetSequenceId() != sequence || r.GetProducerId() != producer {
		p.t.Fatalf("receipt %v for message %d", r, sequence)
	}
	return r.MessageId
}

type subscribing struct {
	topic, name string
	kind        pulsarpb.CommandSubscribe_SubType
	id          uint64
	latest      bool
	transient   bool
}

func (s subscribing) command(request *uint64) *pulsarpb.BaseCommand {
	position := pulsarpb.CommandSubscribe_Earliest
	if s.latest {
		position = pulsarpb.CommandSubscribe_Latest
	}
	return &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SUBSCRIBE.Enum(),
		Subscribe: &pulsarpb.CommandSubscribe{
			Topic: &s.topic, Subscription: &s.name, SubType: s.kind.Enum(), ConsumerId: &s.id, RequestId: request,
			InitialPosition: position.Enum(), Durable: proto.Bool(!s.transient),
		},
	}
}

func (p *peer) subscribe(s subscribing) {
	p.t.Helper()
	p.lookup(s.topic)
	p.send(s.command(p.id()))
	p.expect(pulsarpb.BaseCommand_SUCCESS)
}

func (p *peer) flow(consumer uint64, permits uint32) {
	p.t.Helper()
	p.send(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_FLOW.Enum(), Flow: &pulsarpb.CommandFlow{ConsumerId: &consumer, MessagePermits: &permits},
	})
}

// receive waits for a message and returns its body.
func (p *peer) receive() (*pulsarpb.CommandMessage, string) {
	p.t.Helper()
	cmd, payload := p.expectPayload(pulsarpb.BaseCommand_MESSAGE)
	var s protocol.Section
	if err := s.Parse(payload); err != nil {
		p.t.Fatal(err)
	}
	if err := s.Verify(); err != nil {
		p.t.Fatal(err)
	}
	return cmd.Message, string(s.Body)
}

// ack acknowledges and waits until it is durable.
func (p *peer) ack(consumer uint64, kind pulsarpb.CommandAck_AckType, ids ...*pulsarpb.MessageIdData) *pulsarpb.CommandAckResponse {
	p.t.Helper()
	request := p.id()
	p.send(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_ACK.Enum(),
		Ack:  &pulsarpb.CommandAck{ConsumerId: &consumer, AckType: kind.Enum(), MessageId: ids, RequestId: request},
	})
	r := p.expect(pulsarpb.BaseCommand_ACK_RESPONSE).AckResponse
	if r.GetRequestId() != *request {
		p.t.Fatalf("answer to request %d instead of %d", r.GetRequestId(), *request)
	}
	return r
}

// fails sends a request and returns the ERROR that answers it.
func (p *peer) fails(cmd *pulsarpb.BaseCommand) *pulsarpb.CommandError {
	p.t.Helper()
	p.send(cmd)
	return p.expect(pulsarpb.BaseCommand_ERROR).Error
}

// eventually waits for something that nothing announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		<-tick.C
	}
}

func portable(o *Options) { o.Backend = eventloop.Portable }

func name(i int) string { return fmt.Sprintf("persistent://public/default/topic-%d", i) }

// batchFrame is a batch of n messages whose body nobody can read.
func batchFrame(t *testing.T, producer, sequence uint64, n int32) []byte {
	t.Helper()
	section, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
		ProducerName: proto.String("p"), SequenceId: &sequence, PublishTime: proto.Uint64(1), NumMessagesInBatch: &n,
		Compression: pulsarpb.CompressionType_ZSTD.Enum(), UncompressedSize: proto.Uint32(1000 + 6*uint32(n)),
	}, []byte("opaque"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := protocol.AppendPayloadFrame(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEND.Enum(),
		Send: &pulsarpb.CommandSend{ProducerId: &producer, SequenceId: &sequence, NumMessages: &n},
	}, section)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func lookupFrame(t *testing.T) []byte {
	t.Helper()
	b, err := protocol.AppendCommand(nil, &pulsarpb.BaseCommand{
		Type:        pulsarpb.BaseCommand_LOOKUP.Enum(),
		LookupTopic: &pulsarpb.CommandLookupTopic{Topic: proto.String(name(1)), RequestId: proto.Uint64(1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// takePlace asks for a place that a connection holds: in vain while the other answers the probe, and gets it when the other
// does not.
func takePlace(t *testing.T, old, next *peer, ask *pulsarpb.BaseCommand) {
	t.Helper()
	next.send(ask)
	old.expect(pulsarpb.BaseCommand_PING)
	old.write(protocol.AppendPong(nil))
	if got := next.expect(pulsarpb.BaseCommand_ERROR).Error.GetError(); got != pulsarpb.ServerError_ConsumerBusy {
		t.Errorf("%v", got)
	}
	next.send(ask) // this time it does not answer
	next.expect(pulsarpb.BaseCommand_SUCCESS)
	old.closed()
}
