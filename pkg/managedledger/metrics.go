package managedledger

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

const meterName = "geminga/managedledger"

// Metrics are the instruments of all managed ledgers of a broker. They count per batch, not per entry.
type Metrics struct {
	outgoing      metric.Int64Counter
	outgoingSize  metric.Int64Counter
	incoming      metric.Int64Counter
	incomingSize  metric.Int64Counter
	missed        metric.Int64Counter
	markDeletes   metric.Int64Counter
	persists      metric.Int64Counter
	truncations   metric.Int64Counter
	rollovers     metric.Int64Counter
	crowds        metric.Int64Counter
	trims         metric.Int64Counter
	switchLatency metric.Float64Histogram

	success, failure []metric.AddOption
	causes           [len(causeNames)][]metric.AddOption
}

// cause says why a ledger was replaced.
type cause int

const (
	causeFull cause = iota
	causeStall
	causeError
)

var causeNames = [...]string{causeFull: "full", causeStall: "stall", causeError: "error"}

// NewMetrics makes the instruments; nil means that nothing is measured.
func NewMetrics(provider metric.MeterProvider) (*Metrics, error) {
	if provider == nil {
		provider = noop.NewMeterProvider()
	}
	meter := provider.Meter(meterName)
	var errs []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter("pulsar.broker.managed_ledger."+name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	m := &Metrics{
		outgoing:     counter("message.outgoing.count", "{operation}", "Entries written"),
		outgoingSize: counter("message.outgoing.logical.size", "By", "Bytes written, once for all replicas"),
		incoming:     counter("message.incoming.count", "{operation}", "Reads"),
		incomingSize: counter("message.incoming.size", "By", "Bytes read"),
		missed:       counter("message.incoming.cache.miss.count", "{operation}", "Reads that went to the bookies"),
		markDeletes:  counter("mark_delete.count", "{operation}", "Moves of mark-delete positions"),
		persists:     counter("persist.operation.count", "{operation}", "Cursor states written"),
		truncations:  counter("cursor.persist.unacked_ranges.truncated", "{truncation}", "Cursor states with more ranges than are kept"),
		rollovers:    counter("ledger.rollover.count", "{rollover}", "Ledgers replaced by another"),
		crowds:       counter("ledger.list.crowded.count", "{rollover}", "Rollovers of topics whose list of ledgers is nearly full"),
		trims:        counter("ledger.trimmed.count", "{ledger}", "Ledgers deleted because nobody needs them"),
		success:      attributed("pulsar.managed_ledger.operation.status", "success"),
		failure:      attributed("pulsar.managed_ledger.operation.status", "failure"),
	}
	for c, name := range causeNames {
		m.causes[c] = attributed("geminga.rollover.cause", name)
	}
	var err error
	m.switchLatency, err = meter.Float64Histogram("pulsar.broker.managed_ledger.ledger.switch.latency", metric.WithUnit("s"),
		metric.WithDescription("From the decision to use another ledger to its use"))
	return m, errors.Join(append(errs, err)...)
}

func attributed(key, value string) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))}
}

func (m *Metrics) added(entries int, bytes int64) {
	m.outgoing.Add(context.Background(), int64(entries), m.success...)
	m.outgoingSize.Add(context.Background(), bytes)
}

func (m *Metrics) addsFailed(n int) { m.outgoing.Add(context.Background(), int64(n), m.failure...) }

func (m *Metrics) read(bytes int64, err error) {
	if err != nil {
		m.incoming.Add(context.Background(), 1, m.failure...)
		return
	}
	m.incoming.Add(context.Background(), 1, m.success...)
	m.incomingSize.Add(context.Background(), bytes)
}

func (m *Metrics) cacheMissed() { m.missed.Add(context.Background(), 1) }

func (m *Metrics) markDeleted() { m.markDeletes.Add(context.Background(), 1) }

func (m *Metrics) persisted(err error) {
	if err != nil {
		m.persists.Add(context.Background(), 1, m.failure...)
		return
	}
	m.persists.Add(context.Background(), 1, m.success...)
}

func (m *Metrics) truncated() { m.truncations.Add(context.Background(), 1) }

func (m *Metrics) crowded() { m.crowds.Add(context.Background(), 1) }

func (m *Metrics) trimmed(ledgers int) { m.trims.Add(context.Background(), int64(ledgers)) }

func (m *Metrics) rolled(c cause, took time.Duration) {
	m.rollovers.Add(context.Background(), 1, m.causes[c]...)
	m.switchLatency.Record(context.Background(), took.Seconds())
}

// register exposes the cache's counters; they are atomics that the cache keeps in any case.
func (c *Cache) register(provider metric.MeterProvider) (metric.Registration, error) {
	if provider == nil {
		return nil, nil
	}
	meter := provider.Meter(meterName)
	const prefix = "pulsar.broker.managed_ledger.cache."
	size, err1 := meter.Int64ObservableUpDownCounter(prefix+"entry.size", metric.WithUnit("{By}"))
	entries, err2 := meter.Int64ObservableUpDownCounter(prefix+"entry.count", metric.WithUnit("{entry}"))
	evictions, err3 := meter.Int64ObservableCounter(prefix+"eviction.count", metric.WithUnit("{eviction}"))
	operations, err4 := meter.Int64ObservableCounter(prefix+"operation.count", metric.WithUnit("{entry}"))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	active := metric.WithAttributes(attribute.String("pulsar.managed_ledger.cache.entry.status", "active"))
	hit := metric.WithAttributes(attribute.String("pulsar.managed_ledger.cache.operation.status", "hit"))
	miss := metric.WithAttributes(attribute.String("pulsar.managed_ledger.cache.operation.status", "miss"))
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(size, c.bytes.Load())
		o.ObserveInt64(entries, c.entries.Load(), active)
		o.ObserveInt64(evictions, c.counts.evicted.Load())
		o.ObserveInt64(operations, c.counts.hits.Load(), hit)
		o.ObserveInt64(operations, c.counts.misses.Load(), miss)
		return nil
	}, size, entries, evictions, operations)
}
