package main

import (
	"context"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"geminga/integration/harness"
	"geminga/pkg/eventloop"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// bare is the limit that the broker is measured against: it parses the same frames, verifies the same checksums and
// answers each SEND with a receipt on the spot. It has no topics and stores nothing.
type bare struct{}

func serveBare(addr string) error {
	g, err := eventloop.New(bare{}, eventloop.Options{})
	if err != nil {
		return err
	}
	if _, err := g.Listen(context.Background(), "tcp", addr); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return g.Close(ctx)
}

// session is the state of a connection and its scratch memory.
type session struct {
	frame   protocol.Frame
	section protocol.Section
	send    protocol.Send
	entry   uint64
	out     []byte
}

func (bare) Opened(c *eventloop.Conn)        { c.SetContext(&session{}) }
func (bare) TurnEnd(*eventloop.Loop)         {}
func (bare) Closed(*eventloop.Conn, error)   {}
func (bare) Tick(*eventloop.Loop, time.Time) {}

// Data answers every complete frame.
func (bare) Data(c *eventloop.Conn, _ *eventloop.Root, data []byte) (consumed, need int, err error) {
	s := c.Context().(*session)
	s.out = s.out[:0]
	for {
		need, err = protocol.FrameSize(data[consumed:], protocol.MaxFrameSize(protocol.DefaultMaxMessageSize))
		if err != nil || need == 0 || need > len(data)-consumed {
			break
		}
		if err = s.answer(data[consumed : consumed+need]); err != nil {
			break
		}
		consumed += need
	}
	c.Write(s.out)
	return consumed, need, err
}

func (s *session) answer(frame []byte) error {
	if err := s.frame.Parse(frame); err != nil {
		return err
	}
	if s.frame.Type == pulsarpb.BaseCommand_SEND {
		return s.receipt()
	}
	return s.handshake()
}

func (s *session) receipt() error {
	if err := s.send.Decode(s.frame.Body); err != nil {
		return err
	}
	if err := s.section.Parse(s.frame.Payload); err != nil {
		return err
	}
	if err := s.section.Verify(); err != nil {
		return err
	}
	s.entry++
	s.out = protocol.AppendSendReceipt(s.out, &protocol.SendReceipt{
		ProducerID: s.send.ProducerID, SequenceID: s.send.SequenceID, Ledger: 1, Entry: s.entry,
	})
	return nil
}

// handshake answers the few commands that come before the sends.
func (s *session) handshake() error {
	var cmd pulsarpb.BaseCommand
	if err := s.frame.Unmarshal(&cmd); err != nil {
		return err
	}
	var reply pulsarpb.BaseCommand
	version, name, sequence := "bare", "bare", int64(-1)
	switch s.frame.Type {
	case pulsarpb.BaseCommand_CONNECT:
		reply.Type = pulsarpb.BaseCommand_CONNECTED.Enum()
		reply.Connected = &pulsarpb.CommandConnected{ServerVersion: &version}
	case pulsarpb.BaseCommand_LOOKUP:
		reply.Type = pulsarpb.BaseCommand_LOOKUP_RESPONSE.Enum()
		reply.LookupTopicResponse = &pulsarpb.CommandLookupTopicResponse{
			RequestId: cmd.LookupTopic.RequestId, Response: pulsarpb.CommandLookupTopicResponse_Connect.Enum(),
		}
	case pulsarpb.BaseCommand_PRODUCER:
		reply.Type = pulsarpb.BaseCommand_PRODUCER_SUCCESS.Enum()
		reply.ProducerSuccess = &pulsarpb.CommandProducerSuccess{
			RequestId: cmd.Producer.RequestId, ProducerName: &name, LastSequenceId: &sequence,
		}
	default:
		return nil
	}
	out, err := protocol.AppendCommand(s.out, &reply)
	s.out = out
	return err
}

// measureBare loads a bare loop, which is a process of its own, too.
func measureBare(ctx context.Context, o options) (result, error) {
	exe, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	addr, err := harness.FreeAddr()
	if err != nil {
		return result{}, err
	}
	p := &harness.Proc{Name: "bare", Args: []string{exe, "-bare-server", addr}, Log: filepath.Join(o.dir, "bare.log")}
	if err := p.Start(); err != nil {
		return result{}, err
	}
	defer p.Kill()
	if err := listening(addr); err != nil {
		return result{}, err
	}
	o.reading.consumers, o.profile = 0, ""
	return load(ctx, o, addr, daemons{broker: p})
}

// listening waits until somebody accepts connections, for ten seconds at most.
func listening(addr string) error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		var c net.Conn
		if c, err = net.Dial("tcp", addr); err == nil {
			return c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
