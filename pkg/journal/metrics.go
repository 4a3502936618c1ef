package journal

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the journal's instruments. The verbs are safe from any goroutine.
type metrics struct {
	bytes    metric.Int64Counter
	records  metric.Int64Counter
	batches  metric.Int64Counter
	syncs    metric.Int64Counter
	syncTime metric.Float64Histogram
	segments metric.Int64Counter
	noSpace  metric.Int64Counter
	corrupt  metric.Int64Counter
	reads    metric.Int64Counter
	scrubs   metric.Int64Counter
	memory   []metric.AddOption // kept as slices, so that a read allocates none
	disk     []metric.AddOption
}

func newMetrics(p metric.MeterProvider) (*metrics, error) {
	m := p.Meter("geminga/journal")
	var failed error
	counter := func(name, unit, about string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		if err != nil {
			failed = err
		}
		return c
	}
	syncTime, err := m.Float64Histogram("geminga.journal.sync.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of one write and its sync"),
		metric.WithExplicitBucketBoundaries(.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 10))
	if err != nil {
		failed = err
	}
	return &metrics{
		bytes:    counter("geminga.journal.written", "By", "Bytes written, headers and padding included"),
		records:  counter("geminga.journal.records", "{record}", "Records written"),
		batches:  counter("geminga.journal.batches", "{batch}", "Writes, each of all that had gathered"),
		syncs:    counter("geminga.journal.syncs", "{sync}", "Syncs of segments"),
		syncTime: syncTime,
		segments: counter("geminga.journal.segments.opened", "{segment}", "Segments begun"),
		noSpace:  counter("geminga.journal.refused.no.space", "{call}", "Calls refused because no segment could be allocated"),
		corrupt:  counter("geminga.journal.corrupt", "{record}", "Damaged records met"),
		reads:    counter("geminga.journal.reads", "{record}", "Records read, by source"),
		scrubs:   counter("geminga.journal.scrubbed", "By", "Bytes read to compare checksums"),
		memory:   readFrom("memory"),
		disk:     readFrom("disk"),
	}, failed
}

func readFrom(source string) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("source", source)))}
}

func (m *metrics) wrote(bytes, records int64) {
	ctx := context.Background()
	m.bytes.Add(ctx, bytes)
	m.records.Add(ctx, records)
	m.batches.Add(ctx, 1)
}

func (m *metrics) synced(d time.Duration) {
	ctx := context.Background()
	m.syncs.Add(ctx, 1)
	m.syncTime.Record(ctx, d.Seconds())
}

func (m *metrics) began()          { m.segments.Add(context.Background(), 1) }
func (m *metrics) full()           { m.noSpace.Add(context.Background(), 1) }
func (m *metrics) damaged(n int64) { m.corrupt.Add(context.Background(), n) }
func (m *metrics) scrubbed(n int)  { m.scrubs.Add(context.Background(), int64(n)) }

func (m *metrics) read(fromMemory bool) {
	source := m.disk
	if fromMemory {
		source = m.memory
	}
	m.reads.Add(context.Background(), 1, source...)
}
