package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// result is what one measurement gave.
type result struct {
	used
	published, delivered int64
	publishing           time.Duration // to the last receipt
	delivering           time.Duration // to the last delivery, from the same start
	receipts, deliveries *histogram
	loadCPU              time.Duration
}

// load publishes a warm-up and then the messages that are measured, until all are delivered to every subscription.
func load(ctx context.Context, o options, addr string, d daemons) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	cl, err := open(o, addr)
	defer cl.close()
	if err != nil {
		return result{}, err
	}
	defer context.AfterFunc(ctx, cl.hangUp)()
	r, err := cl.measure(ctx, o, d)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("not done after %v: %w", o.limit, err)
	}
	return r, err
}

func (cl *clients) publishAndDrain(ctx context.Context, count int) error {
	if err := cl.publish(count); err != nil {
		return err
	}
	return cl.drain(ctx)
}

// measure warms up before, and ends the clients: what the consumers have timed is theirs until then.
func (cl *clients) measure(ctx context.Context, o options, d daemons) (result, error) {
	var r result
	err := cl.publishAndDrain(ctx, o.count/10)
	if err != nil {
		return r, fmt.Errorf("warm-up: %w", err)
	}
	for _, p := range cl.producers {
		p.receipts = histogram{}
	}
	already := cl.published
	r.used, err = d.during(ctx, func() error {
		defer profile(o.profile, d)()
		own, start := ownCPU(), cl.clock.now()
		cl.from.Store(int64(start))
		if err := cl.publish(o.count); err != nil {
			return err
		}
		r.publishing = cl.clock.now() - start
		if err := cl.drain(ctx); err != nil {
			return err
		}
		r.delivering, r.loadCPU = cl.clock.now()-start, ownCPU()-own
		return nil
	})
	if err != nil {
		return r, err
	}
	if err := cl.settle(); err != nil {
		return r, err
	}
	r.published = cl.published - already
	r.receipts, r.deliveries = cl.receipts(), cl.deliveries()
	r.delivered = int64(r.deliveries.n)
	return r, r.addsUp(o.reading, d)
}

// addsUp compares what producers, consumers and brokerd have counted.
func (r *result) addsUp(by reading, d daemons) error {
	want := int64(0)
	if by.consumers > 0 {
		want = r.published * int64(by.subscriptions)
	}
	if r.delivered != want || int64(r.receipts.n) != r.published {
		return fmt.Errorf("%d messages were published: %d receipts and %d deliveries, want %d", r.published, r.receipts.n, r.delivered, want)
	}
	if in, out := int64(r.messagesIn), int64(r.messagesOut); d.broker.HTTP != "" && (in != r.published || out != r.delivered) {
		return fmt.Errorf("brokerd counts %d published and %d delivered, the clients %d and %d", in, out, r.published, r.delivered)
	}
	return nil
}

func ownCPU() time.Duration {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
