package main

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

const benchTopic = "persistent://public/default/bench"

// clock tells the time since a moment that all clients of a run share.
type clock struct{ epoch time.Time }

func (c clock) now() time.Duration { return time.Since(c.epoch) }

// producer publishes on a connection of its own. One goroutine at a time uses it.
type producer struct {
	c        *conn
	t        *template
	clock    clock
	window   int
	key      int // of the first message
	keys     int
	sent     int
	sentAt   []time.Duration // of the unanswered messages, at their number modulo window
	receipts histogram       // from publication to receipt
}

// openProducers opens them all; what was opened is returned with an error, too.
func openProducers(o options, addr string, clk clock) ([]*producer, error) {
	var out []*producer
	for i := range o.producers {
		t, err := newTemplate(1, o.size)
		if err != nil {
			return out, err
		}
		c, err := dial(addr, benchTopic)
		if err != nil {
			return out, fmt.Errorf("producer %d: %w", i, err)
		}
		out = append(out, &producer{
			c: c, t: t, clock: clk, window: o.window, key: i, keys: o.keys, sentAt: make([]time.Duration, o.window),
		})
		err = c.call(&pulsarpb.BaseCommand{
			Type:     pulsarpb.BaseCommand_PRODUCER.Enum(),
			Producer: &pulsarpb.CommandProducer{Topic: proto.String(benchTopic), ProducerId: proto.Uint64(1), RequestId: proto.Uint64(2)},
		}, pulsarpb.BaseCommand_PRODUCER_SUCCESS)
		if err != nil {
			return out, fmt.Errorf("producer %d: %w", i, err)
		}
	}
	return out, nil
}

// publish spreads count messages over the producers and waits for all receipts.
func publish(ps []*producer, count int) error {
	errs := make(chan error, len(ps))
	for i, p := range ps {
		share := count / len(ps)
		if i < count%len(ps) {
			share++
		}
		go func() { errs <- p.publish(share) }()
	}
	var err error
	for range ps {
		err = errors.Join(err, <-errs)
	}
	return err
}

// publish keeps a window of messages unanswered. Receipts must come in order; frames are written in runs, and the
// messages of a run have the time of its start.
func (p *producer) publish(count int) error {
	var out []byte
	end := p.sent + count
	for answered := p.sent; answered < end; {
		out = out[:0]
		now := p.clock.now()
		for p.sent < end && p.sent-answered < p.window {
			out = p.t.appendTo(out, message{n: p.sent, key: (p.key + p.sent) % p.keys, stamp: now})
			p.sentAt[p.sent%p.window] = now
			p.sent++
		}
		if _, err := p.c.Write(out); err != nil {
			return err
		}
		var err error
		if answered, err = p.receive(answered, end); err != nil {
			return err
		}
	}
	return nil
}

// receive takes receipts, that of message n first, as long as they have arrived; one at least. It returns the number
// of the message that is next to be answered.
func (p *producer) receive(n, end int) (int, error) {
	if err := p.receipt(n); err != nil {
		return n, err
	}
	now := p.clock.now()
	for {
		p.receipts.record(now - p.sentAt[n%p.window])
		if n++; n == end || p.c.drained() {
			return n, nil
		}
		if err := p.receipt(n); err != nil {
			return n, err
		}
	}
}

// receipt waits for the receipt of message n.
func (p *producer) receipt(n int) error {
	for {
		if err := p.c.next(); err != nil {
			return err
		}
		switch p.c.frame.Type {
		case pulsarpb.BaseCommand_SEND_RECEIPT:
			seq, err := sequenceOf(&p.c.frame)
			if err == nil && seq != uint64(firstSequence+n) {
				err = fmt.Errorf("receipt for %d, expected %d", int64(seq)-firstSequence, n)
			}
			return err
		case pulsarpb.BaseCommand_PING:
			if _, err := p.c.Write(protocol.AppendPong(nil)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unexpected %v", p.c.frame.Type)
		}
	}
}
