package main

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// permits is how many messages a consumer lets come unasked. It asks for more when half of them are there.
const permits = 1000

// consumer receives and acknowledges on a connection of its own, and keeps no message.
type consumer struct {
	c            *conn
	clock        clock
	acks         string
	subscription int
	received     atomic.Int64
	from         *atomic.Int64 // messages published earlier are not timed

	// Of the goroutine that consumes:
	delivered histogram // from publication to receipt here
	section   protocol.Section
	out       []byte // frames to be written once all that has arrived is handled
	body      []byte
	ids       []byte // ids to be acknowledged, as fields of an ACK
	waiting   int    // number of messages that ids is for
	spent     int    // permits
}

// subscribe opens consumer i of a subscription. It has no permits until it consumes.
func subscribe(r reading, addr string, subscription, i int) (*consumer, error) {
	c, err := dial(addr, benchTopic)
	if err != nil {
		return nil, err
	}
	kind := pulsarpb.CommandSubscribe_SubType(pulsarpb.CommandSubscribe_SubType_value[r.kind])
	err = c.call(&pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SUBSCRIBE.Enum(),
		Subscribe: &pulsarpb.CommandSubscribe{
			Topic: proto.String(benchTopic), Subscription: proto.String("bench-" + strconv.Itoa(subscription)), SubType: &kind,
			ConsumerId: proto.Uint64(1), RequestId: proto.Uint64(2), ConsumerName: proto.String(strconv.Itoa(i)),
		},
	}, pulsarpb.BaseCommand_SUCCESS)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &consumer{c: c, acks: r.acks, subscription: subscription}, nil
}

// consume goes on until the connection ends.
func (c *consumer) consume() error {
	c.flow(permits)
	for {
		if len(c.out) > 0 && c.c.drained() {
			if err := c.flush(); err != nil {
				return err
			}
		}
		if err := c.c.next(); err != nil {
			return err
		}
		if err := c.handle(); err != nil {
			return err
		}
	}
}

func (c *consumer) flush() error {
	_, err := c.c.Write(c.out)
	c.out = c.out[:0]
	return err
}

func (c *consumer) handle() error {
	switch c.c.frame.Type {
	case pulsarpb.BaseCommand_MESSAGE:
		return c.message()
	case pulsarpb.BaseCommand_PING:
		c.out = protocol.AppendPong(c.out)
	case pulsarpb.BaseCommand_ACTIVE_CONSUMER_CHANGE:
	default:
		return fmt.Errorf("unexpected %v", c.c.frame.Type)
	}
	return nil
}

func (c *consumer) message() error {
	f := &c.c.frame
	stamp, err := stampOf(f, &c.section)
	if err != nil {
		return err
	}
	if int64(stamp) >= c.from.Load() {
		c.delivered.record(c.clock.now() - stamp)
	}
	id, err := idOf(f)
	if err != nil {
		return err
	}
	c.acknowledge(id)
	if c.spent++; c.spent == permits/2 {
		c.flow(permits / 2)
		c.spent = 0
	}
	c.received.Add(1)
	return nil
}

// acknowledge notes a message, and all that are noted are acknowledged when there are enough of them.
func (c *consumer) acknowledge(id []byte) {
	if c.acks == acksNone {
		return
	}
	kind := pulsarpb.CommandAck_Individual
	if c.acks == acksCumulative {
		kind = pulsarpb.CommandAck_Cumulative
		c.ids = c.ids[:0]
	}
	c.ids = protowire.AppendBytes(protowire.AppendTag(c.ids, 3, protowire.BytesType), id)
	if c.waiting++; c.waiting < groupSize && c.acks != acksSingle {
		return
	}
	c.body = appendVarint(c.body[:0], 1, 1)
	c.body = append(appendVarint(c.body, 2, uint64(kind)), c.ids...)
	c.out = appendFrame(c.out, pulsarpb.BaseCommand_ACK, c.body)
	c.ids, c.waiting = c.ids[:0], 0
}

func (c *consumer) flow(n uint64) {
	c.body = appendVarint(appendVarint(c.body[:0], 1, 1), 2, n)
	c.out = appendFrame(c.out, pulsarpb.BaseCommand_FLOW, c.body)
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
