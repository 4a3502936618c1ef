package eventloop

import (
	"context"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// load is what a loop counts. The plain fields are loop-owned; publish copies them once a turn, so that counting costs
// nothing per event.
type load struct {
	conns atomic.Int64

	turns, events, sleeps   int64
	bytesIn, bytesOut       int64
	publishedTurns          atomic.Int64
	publishedSleeps         atomic.Int64
	publishedIn, publishOut atomic.Int64
}

func (d *load) publish(l *Loop) {
	d.turns++
	d.publishedTurns.Store(d.turns)
	d.publishedSleeps.Store(d.sleeps)
	d.publishedIn.Store(d.bytesIn)
	d.publishOut.Store(d.bytesOut)
}

// metrics are the instruments of a Group, read when they are collected.
type metrics struct {
	accepted, rejected atomic.Int64
	registration       metric.Registration
}

func newMetrics(g *Group) (*metrics, error) {
	m := &metrics{}
	meter := g.options.MeterProvider.Meter("geminga/eventloop")
	var failed error
	counter := func(name, unit, text string) metric.Int64ObservableCounter {
		c, err := meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		if err != nil && failed == nil {
			failed = fmt.Errorf("instrument %s: %w", name, err)
		}
		return c
	}
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		c, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		if err != nil && failed == nil {
			failed = fmt.Errorf("instrument %s: %w", name, err)
		}
		return c
	}
	open := gauge("geminga.io.connections", "{connection}", "Open connections")
	accepted := counter("geminga.io.connections.accepted", "{connection}", "Connections accepted")
	rejected := counter("geminga.io.connections.rejected", "{connection}", "Connections refused at the limit")
	turns := counter("geminga.io.turns", "{turn}", "Turns of the I/O loops")
	sleeps := counter("geminga.io.sleeps", "{sleep}", "Turns before which a loop slept")
	in := counter("geminga.io.read", "By", "Bytes read from sockets")
	out := counter("geminga.io.written", "By", "Bytes written to sockets")
	roots := gauge("geminga.io.buffers", "By", "Memory in I/O buffers that are in use")
	unsent := gauge("geminga.io.unsent", "By", "Bytes that connections have to write")
	tight := gauge("geminga.io.unsent.limited", "{loop}", "Loops whose connections have more to write than their share")
	if failed != nil {
		return nil, failed
	}
	var err error
	m.registration, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		var t, s, i, w, u, x int64
		for _, l := range g.loops {
			t += l.load.publishedTurns.Load()
			s += l.load.publishedSleeps.Load()
			i += l.load.publishedIn.Load()
			w += l.load.publishOut.Load()
			u += l.budget.used.Load()
			if l.OutboundTight() {
				x++
			}
		}
		o.ObserveInt64(open, g.open.Load())
		o.ObserveInt64(accepted, m.accepted.Load())
		o.ObserveInt64(rejected, m.rejected.Load())
		o.ObserveInt64(turns, t)
		o.ObserveInt64(sleeps, s)
		o.ObserveInt64(in, i)
		o.ObserveInt64(out, w)
		o.ObserveInt64(roots, g.pool.bytes.Load())
		o.ObserveInt64(unsent, u)
		o.ObserveInt64(tight, x)
		return nil
	}, open, accepted, rejected, turns, sleeps, in, out, roots, unsent, tight)
	if err != nil {
		return nil, fmt.Errorf("register instruments: %w", err)
	}
	return m, nil
}

func (m *metrics) close() { _ = m.registration.Unregister() }
