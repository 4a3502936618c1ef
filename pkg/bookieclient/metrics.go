package bookieclient

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// metrics holds the instruments. None of them carries a ledger or a topic.
type metrics struct {
	messages metric.Int64Counter
	commands metric.Int64Counter
	entries  metric.Int64Counter
	bytes    metric.Int64Counter
	resent   metric.Int64Counter
	sessions metric.Int64Counter
	answers  metric.Float64Histogram
	creates  metric.Int64Counter
	reads    metric.Int64Counter
	retries  metric.Int64Counter
}

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter("geminga/bookieclient")
	var faults []error
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		faults = append(faults, err)
		return c
	}
	m := &metrics{
		messages: counter("geminga.bookieclient.append.messages", "{message}", "Append messages sent."),
		commands: counter("geminga.bookieclient.append.commands", "{command}", "Append commands sent."),
		entries:  counter("geminga.bookieclient.append.entries", "{entry}", "Entries sent."),
		bytes:    counter("geminga.bookieclient.append.bytes", "By", "Bytes of append commands sent."),
		resent:   counter("geminga.bookieclient.append.resent", "{command}", "Append commands sent again."),
		sessions: counter("geminga.bookieclient.append.sessions", "{stream}", "Append streams opened."),
		creates:  counter("geminga.bookieclient.creates", "{ledger}", "Ledgers created."),
		reads:    counter("geminga.bookieclient.reads", "{call}", "Reads answered."),
		retries:  counter("geminga.bookieclient.retries", "{try}", "Attempts beyond the first of calls and reads."),
	}
	var err error
	m.answers, err = meter.Float64Histogram("geminga.bookieclient.append.duration", metric.WithUnit("s"),
		metric.WithDescription("From sending an append message to its last answer."),
		metric.WithExplicitBucketBoundaries(.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5))
	faults = append(faults, err)
	return m, errors.Join(faults...)
}

func (m *metrics) sent(b *batch) {
	ctx := context.Background()
	m.messages.Add(ctx, 1)
	m.commands.Add(ctx, int64(len(b.commands)))
	m.entries.Add(ctx, int64(b.entries))
	m.bytes.Add(ctx, int64(b.bytes))
	if b.resent > 0 {
		m.resent.Add(ctx, int64(b.resent))
	}
}

func (m *metrics) answered(after time.Duration) {
	m.answers.Record(context.Background(), after.Seconds())
}
func (m *metrics) opened()  { m.sessions.Add(context.Background(), 1) }
func (m *metrics) created() { m.creates.Add(context.Background(), 1) }
func (m *metrics) read()    { m.reads.Add(context.Background(), 1) }
func (m *metrics) retried() { m.retries.Add(context.Background(), 1) }
