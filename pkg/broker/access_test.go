package broker

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// A producer that waits for the topic is told so at once, and again when it has got it. Those that leave while they wait
// are not in the way.
func TestWaitForExclusive(t *testing.T) {
	s, _ := start(t)
	a, b, c := connect(t, s), connect(t, s), connect(t, s)
	ask := func(p *peer, id uint64, mode pulsarpb.ProducerAccessMode) *pulsarpb.BaseCommand {
		cmd := producerCommand(name(1), id, *p.id(), "")
		cmd.Producer.ProducerAccessMode = mode.Enum()
		return cmd
	}
	wait := func(p *peer, id uint64) {
		t.Helper()
		p.send(ask(p, id, pulsarpb.ProducerAccessMode_WaitForExclusive))
		if p.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS).ProducerSuccess.GetProducerReady() {
			t.Error("has not waited")
		}
	}
	closing := func(p *peer, id uint64) *pulsarpb.BaseCommand {
		return &pulsarpb.BaseCommand{
			Type:          pulsarpb.BaseCommand_CLOSE_PRODUCER.Enum(),
			CloseProducer: &pulsarpb.CommandCloseProducer{ProducerId: proto.Uint64(id), RequestId: p.id()},
		}
	}
	a.lookup(name(1))
	a.send(ask(a, 1, pulsarpb.ProducerAccessMode_Exclusive))
	first := a.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS).ProducerSuccess
	if !first.GetProducerReady() || first.GetTopicEpoch() == 0 {
		t.Errorf("%v", first)
	}
	if got := a.fails(ask(a, 2, pulsarpb.ProducerAccessMode_Exclusive)).GetError(); got != pulsarpb.ServerError_ProducerFenced {
		t.Errorf("exclusive: %v", got)
	}
	if got := a.fails(ask(a, 2, pulsarpb.ProducerAccessMode_Shared)).GetError(); got != pulsarpb.ServerError_ProducerBusy {
		t.Errorf("shared: %v", got)
	}
	wait(c, 1)
	wait(b, 1)
	wait(b, 2)
	_ = c.conn.Close()
	b.succeeds(closing(b, 1))
	a.succeeds(closing(a, 1))
	got := b.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS).ProducerSuccess
	if !got.GetProducerReady() || got.GetTopicEpoch() <= first.GetTopicEpoch() {
		t.Errorf("%v", got)
	}
	b.publish(2, 0, "alone")
}

// ProducerFenced ends a client's producer for good, so it is said only after the one in the way has been found alive.
func TestExclusiveProducerTakeover(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.ConnectionLivenessCheckTimeout = 100 * time.Millisecond })
	old, next := connect(t, s), connect(t, s)
	ask := func(p *peer) *pulsarpb.BaseCommand {
		cmd := producerCommand(name(1), 1, *p.id(), "")
		cmd.Producer.ProducerAccessMode = pulsarpb.ProducerAccessMode_Exclusive.Enum()
		return cmd
	}
	old.lookup(name(1))
	old.send(ask(old))
	old.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS)
	next.send(ask(next))
	old.expect(pulsarpb.BaseCommand_PING)
	old.write(protocol.AppendPong(nil)) // it lives
	if got := next.expect(pulsarpb.BaseCommand_ERROR).Error.GetError(); got != pulsarpb.ServerError_ProducerFenced {
		t.Errorf("%v", got)
	}
	next.send(ask(next)) // this time it does not answer
	next.expect(pulsarpb.BaseCommand_PRODUCER_SUCCESS)
	old.closed()
}
