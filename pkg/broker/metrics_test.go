package broker

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// The instruments carry Pulsar's names and attributes, and count what happens.
func TestMetrics(t *testing.T) {
	reader := sdk.NewManualReader()
	s, _ := start(t, func(o *Options) { o.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(reader)) })
	p := connect(t, s)
	p.producer(name(1)+"-partition-3", 1, "")
	p.publish(1, 0, "x")
	p.publish(1, 1, "y")
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok {
				sums[m.Name]++
				continue
			}
			for _, point := range sum.DataPoints {
				sums[m.Name] += point.Value
				if m.Name == "pulsar.broker.topic.message.incoming.count" {
					if i, _ := point.Attributes.Value(attribute.Key("pulsar.partition.index")); i.AsInt64() != 3 {
						t.Errorf("attributes %v", point.Attributes)
					}
					if v, _ := point.Attributes.Value(attribute.Key("pulsar.topic")); v.AsString() != name(1) {
						t.Errorf("attributes %v", point.Attributes)
					}
				}
			}
		}
	}
	for what, want := range map[string]int64{
		"pulsar.broker.topic.message.incoming.count":      2,
		"pulsar.broker.connection.create.operation.count": 1,
		"pulsar.broker.connection.count":                  2, // one active, one opened
		"pulsar.broker.topic.load.concurrent.usage":       0,
		"pulsar.broker.request.topic.lookup.duration":     1,
		"pulsar.broker.topic.message.outgoing.count":      0,
	} {
		if got, ok := sums[what]; !ok || got != want {
			t.Errorf("%s is %d (%t), want %d", what, got, ok, want)
		}
	}
}
