package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"geminga/integration/harness"
	"geminga/integration/torture"
)

// daemons are the processes that are measured. The bare loop is a broker without metrics and bookies.
type daemons struct {
	broker  *harness.Proc
	bookies []*harness.Proc
}

// used is what the daemons have used and counted: since their start, or in a span of time.
type used struct {
	broker, bookies         harness.Usage
	mallocs, allocatedBytes float64 // of the broker
	messagesIn, messagesOut float64 // as the broker counts them
	cacheMisses             float64 // reads that it had to ask the bookies for
}

func (u used) minus(v used) used {
	return used{
		u.broker.Minus(v.broker), u.bookies.Minus(v.bookies), u.mallocs - v.mallocs, u.allocatedBytes - v.allocatedBytes,
		u.messagesIn - v.messagesIn, u.messagesOut - v.messagesOut, u.cacheMisses - v.cacheMisses,
	}
}

// during returns what is used while f runs. Of the heap, without what it takes to read the metrics once; of CPU time,
// with that.
func (d daemons) during(ctx context.Context, f func() error) (used, error) {
	first, err := d.used(ctx)
	if err != nil {
		return used{}, err
	}
	before, err := d.used(ctx)
	if err != nil {
		return used{}, err
	}
	if err := f(); err != nil {
		return used{}, err
	}
	after, err := d.used(ctx)
	if err != nil {
		return used{}, err
	}
	u, reading := after.minus(before), before.minus(first)
	u.mallocs -= reading.mallocs
	u.allocatedBytes -= reading.allocatedBytes
	return u, nil
}

// used reads the kernel's figures of all daemons, and then the metrics of the broker.
func (d daemons) used(ctx context.Context) (used, error) {
	var u used
	var err error
	if u.broker, err = harness.UsageOf(d.broker.PID()); err != nil {
		return u, err
	}
	for _, p := range d.bookies {
		one, err := harness.UsageOf(p.PID())
		if err != nil {
			return u, err
		}
		u.bookies = u.bookies.Plus(one)
	}
	if d.broker.HTTP == "" {
		return u, nil
	}
	m, err := torture.Watch{HTTP: d.broker.HTTP}.Metrics(ctx)
	u.mallocs, u.allocatedBytes, u.messagesIn, u.messagesOut = m[mallocs], m[allocatedBytes], m[messagesIn], m[messagesOut]
	u.cacheMisses = m[cacheMisses]
	return u, err
}

// Names of brokerd's metrics.
const (
	mallocs        = "go_memstats_mallocs_total"
	allocatedBytes = "go_memstats_alloc_bytes_total"
	messagesIn     = "pulsar_broker_message_incoming_count_total"
	messagesOut    = "pulsar_broker_message_outgoing_count_total"
	cacheMisses    = "pulsar_broker_managed_ledger_message_incoming_cache_miss_count_total"
)

// withCluster runs f against a new cluster of three bookied and one brokerd, whose data is gone afterwards.
func withCluster(ctx context.Context, o options, f func(addr string, d daemons) error) error {
	dir, err := os.MkdirTemp(o.dir, "cluster-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := harness.NewCluster(harness.Options{
		Bin: o.bin, Dir: dir, Bookies: 3, Brokers: 1, BrokerSets: o.brokerSets, BookieSets: o.bookieSets,
	})
	if err != nil {
		return err
	}
	defer c.Kill()
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Start(ready); err != nil {
		return err
	}
	if err := f(strings.TrimPrefix(c.URLs[0], "pulsar://"), daemons{c.Brokers[0], c.Bookies}); err != nil {
		return fmt.Errorf("%w\n%s", err, c.Logs(20))
	}
	return nil
}
