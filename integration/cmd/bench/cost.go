package main

import (
	"context"
	"fmt"
)

// costReadings are the rows of the table of costs, below that without anybody who reads.
func costReadings() []reading {
	return []reading{
		{"Exclusive", 1, 1, acksGrouped},
		{"Exclusive", 5, 1, acksGrouped},
		{"Exclusive", 20, 1, acksGrouped},
		{"Exclusive", 1, 1, acksCumulative},
		{"Exclusive", 1, 1, acksSingle},
		{"Failover", 1, 1, acksGrouped},
		{"Failover", 1, 20, acksGrouped},
		{"Shared", 1, 1, acksGrouped},
		{"Shared", 1, 1, acksSingle},
		{"Shared", 1, 20, acksGrouped},
		{"Shared", 1, 20, acksSingle},
		{"Key_Shared", 1, 1, acksGrouped},
		{"Key_Shared", 1, 20, acksGrouped},
		{"Key_Shared", 1, 20, acksSingle},
	}
}

// deliveriesPerCount bounds the deliveries of a row: with more subscriptions than this, less is published.
const deliveriesPerCount = 4

// cost prints what deliveries cost, each row on a new cluster, and then what unacknowledged messages keep.
func cost(ctx context.Context, o options) error {
	fmt.Print(`| read by | acks | messages | delivered | published, thousand/s | delivered, thousand/s | to delivery, ms, p99 | brokerd CPU, s per million published | per million delivered | of that for delivery alone | allocations per delivered |
|---|---|---|---|---|---|---|---|---|---|---|
`)
	alone := o
	alone.reading = reading{kind: "Exclusive", subscriptions: 1, acks: acksNone}
	base, err := measureCluster(ctx, alone)
	if err != nil {
		return fmt.Errorf("nobody reads: %w", err)
	}
	publishing := perMillion(base.broker.CPU, base.published)
	fmt.Printf("| nobody | | %d | 0 | %.0f | | | %.2f | | | |\n", base.published, base.publishRate(), publishing)
	for _, by := range costReadings() {
		p := o
		p.reading = by
		p.count = o.count * min(by.subscriptions, deliveriesPerCount) / by.subscriptions
		r, err := measureCluster(ctx, p)
		if err != nil {
			return fmt.Errorf("%v, acks %s: %w", by, by.acks, err)
		}
		costRow(by, &r, publishing)
	}
	return costOfUnacked(ctx, o)
}

// costRow prints a row; publishing is what a million messages cost that nobody reads.
func costRow(by reading, r *result, publishing float64) {
	published := perMillion(r.broker.CPU, r.published)
	fmt.Printf("| %v | %s | %d | %d | %.0f | %.0f | %.0f | %.2f | %.2f | %.2f | %.3f |\n", by, by.acks, r.published, r.delivered,
		r.publishRate(), r.deliveryRate(), milliseconds(r.deliveries.percentile(0.99)),
		published, perMillion(r.broker.CPU, r.delivered), (published-publishing)*per(float64(r.published), r.delivered), per(r.mallocs, r.delivered))
}

// costOfUnacked prints a row for each type, of as many messages as the option says, or a row's count of them.
func costOfUnacked(ctx context.Context, o options) error {
	if o.unacked == 0 {
		o.unacked = o.count
	}
	fmt.Println()
	unackedHeader()
	for _, kind := range []string{"Exclusive", "Shared", "Key_Shared"} {
		o.reading = reading{kind: kind, subscriptions: 1, consumers: 1}
		if err := unackedRow(ctx, o); err != nil {
			return err
		}
	}
	return nil
}
