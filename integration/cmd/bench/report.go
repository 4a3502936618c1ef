package main

import (
	"fmt"
	"time"
)

// publishRate is in thousand messages a second until the last receipt, deliveryRate until the last delivery.
func (r *result) publishRate() float64  { return float64(r.published) / r.publishing.Seconds() / 1e3 }
func (r *result) deliveryRate() float64 { return float64(r.delivered) / r.delivering.Seconds() / 1e3 }

// per returns what each of n has of v.
func per(v float64, n int64) float64 { return v / float64(n) }

// perMillion returns the seconds of d that each million of n has.
func perMillion(d time.Duration, n int64) float64 { return per(1e6*d.Seconds(), n) }

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// report prints a measurement beside that of the bare loop.
func report(o options, bare, real result) {
	row := func(name, unit string, b, r float64) {
		ratio := "-"
		if b > 0 {
			ratio = fmt.Sprintf("%.1f", r/b)
		}
		fmt.Printf("| %-34s | %10.2f | %10.2f | %6s | %s\n", name, b, r, ratio, unit)
	}
	fmt.Printf("%d messages; read by %v, acks %s\n", real.published, o.reading, o.reading.acks)
	fmt.Printf("| %-34s | %10s | %10s | %6s |\n", "", "bare loop", "Geminga", "ratio")
	row("throughput", "thousand messages/s", bare.publishRate(), real.publishRate())
	row("publish to receipt, median", "ms", milliseconds(bare.receipts.percentile(0.5)), milliseconds(real.receipts.percentile(0.5)))
	row("publish to receipt, p99", "ms", milliseconds(bare.receipts.percentile(0.99)), milliseconds(real.receipts.percentile(0.99)))
	row("CPU of brokerd", "s per million messages", perMillion(bare.broker.CPU, bare.published), perMillion(real.broker.CPU, real.published))
	row("CPU of the three bookied", "s per million messages", 0, perMillion(real.bookies.CPU, real.published))
	row("CPU of the load generator", "s per million messages", perMillion(bare.loadCPU, bare.published), perMillion(real.loadCPU, real.published))
	row("written to disk, all replicas", "bytes per byte of payload", 0, per(float64(real.bookies.Written), real.published*int64(o.size)))
	row("heap allocations of brokerd", "per message", 0, per(real.mallocs, real.published))
	row("heap bytes of brokerd", "per message", 0, per(real.allocatedBytes, real.published))
	if real.delivered == 0 {
		return
	}
	row("delivered", "thousand messages/s", 0, real.deliveryRate())
	row("reads that missed the cache", "per million delivered", 0, 1e6*per(real.cacheMisses, real.delivered))
	row("publish to delivery, p99", "ms", 0, milliseconds(real.deliveries.percentile(0.99)))
	row("CPU of brokerd", "s per million delivered", 0, perMillion(real.broker.CPU, real.delivered))
	row("heap allocations of brokerd", "per delivered message", 0, per(real.mallocs, real.delivered))
}
