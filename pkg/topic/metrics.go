package topic

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Metrics are the instruments of all topics of a broker.
type Metrics struct {
	messagesIn, bytesIn   metric.Int64Counter
	messagesOut, bytesOut metric.Int64Counter
	messagesAcked         metric.Int64Counter
}

// NewMetrics makes them.
func NewMetrics(p metric.MeterProvider) (*Metrics, error) {
	meter := p.Meter("geminga/pkg/topic")
	var errs [5]error
	m := &Metrics{}
	m.messagesIn, errs[0] = meter.Int64Counter("pulsar.broker.message.incoming.count",
		metric.WithUnit("{message}"), metric.WithDescription("messages stored"))
	m.bytesIn, errs[1] = meter.Int64Counter("pulsar.broker.message.incoming.size",
		metric.WithUnit("By"), metric.WithDescription("bytes stored"))
	m.messagesOut, errs[2] = meter.Int64Counter("pulsar.broker.message.outgoing.count",
		metric.WithUnit("{message}"), metric.WithDescription("messages delivered"))
	m.bytesOut, errs[3] = meter.Int64Counter("pulsar.broker.message.outgoing.size",
		metric.WithUnit("By"), metric.WithDescription("bytes delivered"))
	m.messagesAcked, errs[4] = meter.Int64Counter("pulsar.broker.consumer.message.ack.count",
		metric.WithUnit("{ack}"), metric.WithDescription("messages acknowledged"))
	return m, errors.Join(errs[:]...)
}

func noMetrics() *Metrics {
	m, _ := NewMetrics(noop.NewMeterProvider())
	return m
}

func (m *Metrics) published(messages, bytes int64) {
	m.messagesIn.Add(context.Background(), messages)
	m.bytesIn.Add(context.Background(), bytes)
}

func (m *Metrics) delivered(messages, bytes int64) {
	m.messagesOut.Add(context.Background(), messages)
	m.bytesOut.Add(context.Background(), bytes)
}

func (m *Metrics) acked(messages int64) {
	m.messagesAcked.Add(context.Background(), messages)
}
