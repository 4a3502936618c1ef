package broker

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the instruments of the broker itself, by the names and attributes that Pulsar gives them. Those of topics
// are read from the topics' own counters when somebody collects.
type metrics struct {
	connections metric.Int64UpDownCounter
	created     metric.Int64Counter
	limited     metric.Int64Counter
	lookups     metric.Float64Histogram
	loads       metric.Int64UpDownCounter
	observed    metric.Registration
	memory      metric.Registration

	active, connOpen, connClose   metric.MeasurementOption
	success                       metric.MeasurementOption
	opPaused, opResumed           metric.MeasurementOption
	toBroker, toRedirect, toFault metric.MeasurementOption
}

func option(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

func newMetrics(s *Server) (*metrics, error) {
	const (
		connStatus = "pulsar.connection.status"
		rateLimit  = "pulsar.connection.rate_limit.operation.name"
		lookup     = "pulsar.lookup.response"
	)
	meter := s.opts.MeterProvider.Meter("geminga/pkg/broker")
	m := &metrics{
		active: option(connStatus, "active"), connOpen: option(connStatus, "open"), connClose: option(connStatus, "close"),
		success:  option("pulsar.connection.create.operation.status", "success"),
		opPaused: option(rateLimit, "paused"), opResumed: option(rateLimit, "resumed"),
		toBroker: option(lookup, "broker"), toRedirect: option(lookup, "redirect"), toFault: option(lookup, "failure"),
	}
	var errs [7]error
	m.connections, errs[0] = meter.Int64UpDownCounter("pulsar.broker.connection.count",
		metric.WithUnit("{connection}"), metric.WithDescription("connections that are active, were opened, were closed"))
	m.created, errs[1] = meter.Int64Counter("pulsar.broker.connection.create.operation.count",
		metric.WithUnit("{operation}"), metric.WithDescription("connections accepted"))
	m.limited, errs[2] = meter.Int64Counter("pulsar.broker.connection.rate_limit.count",
		metric.WithUnit("{operation}"), metric.WithDescription("how often reading of a connection was paused and resumed"))
	m.lookups, errs[3] = meter.Float64Histogram("pulsar.broker.request.topic.lookup.duration",
		metric.WithUnit("s"), metric.WithDescription("time to answer a lookup"))
	m.loads, errs[4] = meter.Int64UpDownCounter("pulsar.broker.topic.load.concurrent.usage",
		metric.WithUnit("{operation}"), metric.WithDescription("topics that are being opened"))
	errs[5] = m.observeTopics(meter, s)
	errs[6] = m.observeMemory(meter, &s.memory)
	return m, errors.Join(errs[:]...)
}

// observeTopics registers the per-topic counters.
func (m *metrics) observeTopics(meter metric.Meter, s *Server) error {
	type counter struct {
		name, unit, text string
		read             func(*hosted) int64
	}
	var errs []error
	counters := []counter{
		{"pulsar.broker.topic.message.incoming.count", "{message}", "messages received", func(h *hosted) int64 { return h.in.messages.Load() }},
		{"pulsar.broker.topic.message.incoming.size", "By", "bytes received", func(h *hosted) int64 { return h.in.bytes.Load() }},
		{"pulsar.broker.topic.message.outgoing.count", "{message}", "messages sent to consumers", func(h *hosted) int64 { return h.out.messages.Load() }},
		{"pulsar.broker.topic.message.outgoing.size", "By", "bytes sent to consumers", func(h *hosted) int64 { return h.out.bytes.Load() }},
	}
	var instruments []metric.Observable
	var read []metric.Int64ObservableCounter
	for _, c := range counters {
		i, err := meter.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.text))
		errs = append(errs, err)
		instruments, read = append(instruments, i), append(read, i)
	}
	var err error
	m.observed, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, h := range s.topics.all(nil) {
			attrs := metric.WithAttributeSet(h.attributes())
			for i, c := range counters {
				o.ObserveInt64(read[i], c.read(h), attrs)
			}
		}
		return nil
	}, instruments...)
	return errors.Join(append(errs, err)...)
}

// observeMemory registers what is known of the memory that request frames keep.
func (m *metrics) observeMemory(meter metric.Meter, f *frameMemory) error {
	const name = "pulsar.broker.publish.in.progress.buffer.memory."
	usage, err1 := meter.Int64ObservableGauge(name+"usage", metric.WithUnit("By"),
		metric.WithDescription("size of the receive buffers that request frames keep, each counted once and whole"))
	throttled, err2 := meter.Int64ObservableGauge(name+"throttled",
		metric.WithDescription("1 while no socket is read because request frames keep too much memory, else 0"))
	var err3 error
	m.memory, err3 = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(usage, f.used.Load())
		held := int64(0)
		if f.throttled.Load() {
			held = 1
		}
		o.ObserveInt64(throttled, held)
		return nil
	}, usage, throttled)
	return errors.Join(err1, err2, err3)
}

// attributes are those that every instrument of a topic has.
func (h *hosted) attributes() attribute.Set {
	n := h.name
	kvs := []attribute.KeyValue{
		attribute.String("pulsar.domain", n.Domain), attribute.String("pulsar.tenant", n.Tenant),
		attribute.String("pulsar.namespace", n.NamespaceName().String()), attribute.String("pulsar.topic", n.Partitioned().String()),
	}
	if n.Partition >= 0 {
		kvs = append(kvs, attribute.Int("pulsar.partition.index", n.Partition))
	}
	return attribute.NewSet(kvs...)
}

func (m *metrics) opened() {
	ctx := context.Background()
	m.connections.Add(ctx, 1, m.active)
	m.connections.Add(ctx, 1, m.connOpen)
	m.created.Add(ctx, 1, m.success)
}

func (m *metrics) closed() {
	ctx := context.Background()
	m.connections.Add(ctx, -1, m.active)
	m.connections.Add(ctx, 1, m.connClose)
}

func (m *metrics) paused()         { m.limited.Add(context.Background(), 1, m.opPaused) }
func (m *metrics) resumed()        { m.limited.Add(context.Background(), 1, m.opResumed) }
func (m *metrics) loading(n int64) { m.loads.Add(context.Background(), n) }

func (m *metrics) lookup(p place, err error, took time.Duration) {
	to := m.toRedirect
	switch {
	case err != nil:
		to = m.toFault
	case p.bundle != nil:
		to = m.toBroker
	}
	m.lookups.Record(context.Background(), took.Seconds(), to)
}

func (m *metrics) close() {
	if m == nil {
		return
	}
	for _, r := range []metric.Registration{m.observed, m.memory} {
		if r != nil {
			_ = r.Unregister()
		}
	}
}
