package broker

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// Who is active is told to consumers of failover subscriptions, after the answer to SUBSCRIBE even if there is no delay.
func TestActiveConsumerChange(t *testing.T) {
	s, _ := start(t, func(o *Options) { o.Topic = topic.Options{ActiveConsumerFailoverDelay: -1} })
	p := connect(t, s)
	p.lookup(name(1))
	kind := pulsarpb.CommandSubscribe_Failover
	join := func(consumer uint64, named string) {
		sub := subscribing{topic: name(1), name: "s", id: consumer, kind: kind}
		cmd := sub.command(p.id())
		cmd.Subscribe.ConsumerName = proto.String(named)
		p.send(cmd)
		p.expect(pulsarpb.BaseCommand_SUCCESS)
	}
	told := func(consumer uint64, active bool) {
		t.Helper()
		got := p.expect(pulsarpb.BaseCommand_ACTIVE_CONSUMER_CHANGE).ActiveConsumerChange
		if got.GetConsumerId() != consumer || got.GetIsActive() != active {
			t.Errorf("told %v, expected consumer %d active=%t", got, consumer, active)
		}
	}
	join(1, "b")
	told(1, true)
	join(2, "c")
	told(2, false)
	p.send(&pulsarpb.BaseCommand{
		Type:          pulsarpb.BaseCommand_CLOSE_CONSUMER.Enum(),
		CloseConsumer: &pulsarpb.CommandCloseConsumer{ConsumerId: proto.Uint64(1), RequestId: p.id()},
	})
	told(2, true)
	p.expect(pulsarpb.BaseCommand_SUCCESS)
}

// A range of hashes that is taken, or none, is refused for good; but not before the other connection was found alive.
func TestKeySharedRanges(t *testing.T) {
	s, _ := start(t)
	p := connect(t, s)
	p.lookup(name(1))
	sticky := func(consumer uint64, from, to int32) *pulsarpb.BaseCommand {
		sub := subscribing{topic: name(1), name: "s", id: consumer, kind: pulsarpb.CommandSubscribe_Key_Shared}
		cmd := sub.command(p.id())
		cmd.Subscribe.KeySharedMeta = &pulsarpb.KeySharedMeta{
			KeySharedMode: pulsarpb.KeySharedMode_STICKY.Enum(),
			HashRanges:    []*pulsarpb.IntRange{{Start: &from, End: &to}},
		}
		return cmd
	}
	p.succeeds(sticky(1, 0, 32767))
	for _, x := range [][2]int32{{32767, 40000}, {50000, 65536}, {7, 3}, {-1, 3}} {
		if got := p.fails(sticky(2, x[0], x[1])).GetError(); got != pulsarpb.ServerError_ConsumerAssignError {
			t.Errorf("%v: %v", x, got)
		}
	}
	p.succeeds(sticky(2, 32768, 65535))
	sub := subscribing{topic: name(1), name: "s", id: 3, kind: pulsarpb.CommandSubscribe_Key_Shared}
	if got := p.fails(sub.command(p.id())).GetError(); got != pulsarpb.ServerError_ConsumerBusy {
		t.Errorf("another policy: %v", got)
	}
}
