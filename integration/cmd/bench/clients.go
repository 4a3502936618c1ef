package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// clients are all producers and consumers of a measurement.
type clients struct {
	clock     clock
	producers []*producer
	consumers []*consumer
	published int64        // by all producers
	from      atomic.Int64 // deliveries of earlier messages are not timed
	failed    chan error   // holds the first error of a consumer
	wg        sync.WaitGroup
}

// open connects everybody; the consumers consume from then on. What was opened is returned with an error, too.
func open(o options, addr string) (*clients, error) {
	cl := &clients{clock: clock{time.Now()}, failed: make(chan error, 1)}
	cl.from.Store(math.MaxInt64)
	var err error
	if cl.producers, err = openProducers(o, addr, cl.clock); err != nil {
		return cl, err
	}
	r := o.reading
	for s := range r.subscriptions {
		for i := range r.consumers {
			c, err := subscribe(r, addr, s, i)
			if err != nil {
				return cl, fmt.Errorf("subscription %d, consumer %d: %w", s, i, err)
			}
			c.clock, c.from = cl.clock, &cl.from
			cl.consumers = append(cl.consumers, c)
		}
	}
	for _, c := range cl.consumers {
		cl.wg.Go(func() {
			select {
			case cl.failed <- fmt.Errorf("subscription %d: %w", c.subscription, c.consume()):
			default:
			}
		})
	}
	return cl, nil
}

// hangUp ends all connections, and so everything that goes on.
func (cl *clients) hangUp() {
	for _, p := range cl.producers {
		p.c.Close()
	}
	for _, c := range cl.consumers {
		c.c.Close()
	}
}

// close hangs up and waits for the consumers.
func (cl *clients) close() {
	cl.hangUp()
	cl.wg.Wait()
}

// settle ends a measurement: nobody may have received more than was published. It hangs up and waits for the consumers;
// what comes again to some because others have left is not timed.
func (cl *clients) settle() error {
	_, err := cl.complete()
	cl.from.Store(math.MaxInt64)
	cl.close()
	return err
}

// publish returns when count more messages have their receipts.
func (cl *clients) publish(count int) error {
	err := publish(cl.producers, count)
	cl.published += int64(count)
	return err
}

// drain returns when each subscription has received all that was published. More than that is an error.
func (cl *clients) drain(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		all, err := cl.complete()
		if all || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case err := <-cl.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d messages were published, each subscription received %v: %w", cl.published, cl.received(), ctx.Err())
		}
	}
}

// complete compares what each subscription has received with what was published.
func (cl *clients) complete() (bool, error) {
	for s, n := range cl.received() {
		if n > cl.published {
			return false, fmt.Errorf("subscription %d received %d messages, %d were published", s, n, cl.published)
		}
		if n < cl.published {
			return false, nil
		}
	}
	return true, nil
}

// received returns the number of messages that each subscription has received.
func (cl *clients) received() []int64 {
	var out []int64
	for _, c := range cl.consumers {
		if c.subscription == len(out) {
			out = append(out, 0)
		}
		out[c.subscription] += c.received.Load()
	}
	return out
}

// receipts adds up what the producers have timed, deliveries what the consumers have, once they are closed.
func (cl *clients) receipts() *histogram {
	sum := &histogram{}
	for _, p := range cl.producers {
		sum.add(&p.receipts)
	}
	return sum
}

func (cl *clients) deliveries() *histogram {
	sum := &histogram{}
	for _, c := range cl.consumers {
		sum.add(&c.delivered)
	}
	return sum
}
