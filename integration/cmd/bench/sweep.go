package main

import (
	"context"
	"fmt"
)

// sweep prints a table for each of two settings of brokerd. Every row is a new cluster.
func sweep(ctx context.Context, o options) error {
	o.reading = reading{kind: "Key_Shared", subscriptions: 1, consumers: 20, acks: acksGrouped}
	fmt.Printf("%d messages a row, each on a new cluster; read by %v, acks %s\n", o.count, o.reading, o.reading.acks)
	for _, s := range []struct {
		setting string
		values  []int
	}{
		{"numIOThreads", []int{1, 2, 4, 8, 16, 32}},
		{"dispatcherMaxReadBatchSize", []int{100, 250, 500, 750, 1000}},
	} {
		sweepHeader(s.setting)
		for _, v := range s.values {
			p := o
			p.brokerSets = append(p.brokerSets[:len(p.brokerSets):len(p.brokerSets)], fmt.Sprintf("%s=%d", s.setting, v))
			r, err := measureCluster(ctx, p)
			if err != nil {
				return fmt.Errorf("%s=%d: %w", s.setting, v, err)
			}
			sweepRow(v, &r)
		}
	}
	fmt.Print(dispatchNote)
	return nil
}

// dispatchNote says how much of the dispatch work is on the executors of topics. That is not measured but built in.
const dispatchNote = `
Share of dispatch work on topic executors: none. Subscriptions have executors of a pool of their own, and what belongs to
one asserts that it runs there in builds with invariants: go test -tags invariants ./pkg/topic ./pkg/managedledger
`

func sweepHeader(setting string) {
	fmt.Printf(`
| %s | published, thousand/s | delivered, thousand/s | to receipt, ms, p50 | p99 | to delivery, ms, p99 | brokerd CPU, s per million | allocations per message | load generator CPU, s per million |
|---|---|---|---|---|---|---|---|---|
`, setting)
}

func sweepRow(value int, r *result) {
	fmt.Printf("| %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.2f | %.3f | %.2f |\n", value, r.publishRate(), r.deliveryRate(),
		milliseconds(r.receipts.percentile(0.5)), milliseconds(r.receipts.percentile(0.99)), milliseconds(r.deliveries.percentile(0.99)),
		perMillion(r.broker.CPU, r.published), per(r.mallocs, r.published), perMillion(r.loadCPU, r.published))
}
