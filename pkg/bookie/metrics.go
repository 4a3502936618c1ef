package bookie

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"geminga/pkg/ledger"
)

// metrics holds the instruments of a bookie. Nothing is per ledger or per peer, so their number is bounded.
type metrics struct {
	proposals metric.Int64Counter
	bytes     metric.Int64Counter
	commands  metric.Int64Counter
	latency   metric.Float64Histogram
	queue     metric.Int64UpDownCounter
	reads     metric.Int64Counter
	groups    metric.Int64UpDownCounter
	leaders   metric.Int64UpDownCounter
	open      metric.Int64UpDownCounter
	watchers  metric.Int64UpDownCounter
	rot       metric.Int64Counter
	rounds    metric.Int64Counter
	snapshots metric.Int64Counter
	snapBytes metric.Int64Counter
	fetches   metric.Int64Counter
	fetchSize metric.Int64Counter
	drift     metric.Int64Counter
	freed     metric.Int64Counter
	moved     metric.Int64Counter
	repairs   metric.Int64Counter
	compares  metric.Int64Counter
	differs   metric.Int64Counter

	ok, refused, unknown metric.MeasurementOption
}

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter("geminga/bookie")
	m := &metrics{
		ok:      metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", "ok"))),
		refused: metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", "refused"))),
		unknown: metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", "unknown"))),
	}
	var errs [22]error
	m.proposals, errs[0] = meter.Int64Counter("geminga.bookie.proposals", metric.WithDescription("Raft proposals answered, by outcome"))
	m.bytes, errs[1] = meter.Int64Counter("geminga.bookie.proposal.bytes", metric.WithUnit("By"), metric.WithDescription("bytes proposed"))
	m.commands, errs[2] = meter.Int64Counter("geminga.bookie.submissions", metric.WithDescription("runs of commands gathered into proposals"))
	m.latency, errs[3] = meter.Float64Histogram("geminga.bookie.apply.duration", metric.WithUnit("s"),
		metric.WithDescription("from the proposal to its results"),
		metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10))
	m.queue, errs[4] = meter.Int64UpDownCounter("geminga.bookie.queue.bytes", metric.WithUnit("By"), metric.WithDescription("commands that wait to be proposed"))
	m.reads, errs[5] = meter.Int64Counter("geminga.bookie.read.bytes", metric.WithUnit("By"), metric.WithDescription("entries sent to readers"))
	m.groups, errs[6] = meter.Int64UpDownCounter("geminga.bookie.groups", metric.WithDescription("replicas of ledger groups that run here"))
	m.leaders, errs[7] = meter.Int64UpDownCounter("geminga.bookie.leaders", metric.WithDescription("groups that this bookie leads and is ready in"))
	m.open, errs[8] = meter.Int64UpDownCounter("geminga.bookie.append.streams", metric.WithDescription("open append streams"))
	m.watchers, errs[9] = meter.Int64UpDownCounter("geminga.bookie.watchers", metric.WithDescription("open watches of metadata"))
	m.rot, errs[10] = meter.Int64Counter("geminga.bookie.scrub.damage", metric.WithDescription("damaged places that scrubbing met, in each round again"))
	m.rounds, errs[11] = meter.Int64Counter("geminga.bookie.scrub.rounds", metric.WithDescription("times that scrubbing has read the journal"))
	m.snapshots, errs[12] = meter.Int64Counter("geminga.bookie.snapshots", metric.WithDescription("snapshots of ledger groups taken here"))
	m.snapBytes, errs[13] = meter.Int64Counter("geminga.bookie.snapshot.bytes", metric.WithUnit("By"), metric.WithDescription("size of the snapshots of ledger groups taken here"))
	m.fetches, errs[14] = meter.Int64Counter("geminga.bookie.backfill.records", metric.WithDescription("log records of which entries were fetched from other replicas"))
	m.fetchSize, errs[15] = meter.Int64Counter("geminga.bookie.backfill.bytes", metric.WithUnit("By"), metric.WithDescription("entries fetched from other replicas"))
	m.drift, errs[16] = meter.Int64Counter("geminga.bookie.diverged", metric.WithDescription("ledgers whose entries here are not those that the group has agreed on"))
	m.freed, errs[17] = meter.Int64Counter("geminga.bookie.reclaim.segments", metric.WithDescription("segments of the journal given back"))
	m.moved, errs[18] = meter.Int64Counter("geminga.bookie.reclaim.bytes", metric.WithUnit("By"), metric.WithDescription("records copied out of sparse segments"))
	m.repairs, errs[19] = meter.Int64Counter("geminga.bookie.repairs", metric.WithDescription("damaged replicas that began again with a snapshot of their leader"))
	m.compares, errs[20] = meter.Int64Counter("geminga.bookie.compare.rounds", metric.WithDescription("times that the state of a replica was compared with the group's others"))
	m.differs, errs[21] = meter.Int64Counter("geminga.bookie.compare.differences", metric.WithDescription("ledgers of which two replicas know something else at the same index of the log"))
	return m, errors.Join(errs[:]...)
}

func (m *metrics) repaired() { m.repairs.Add(context.Background(), 1) }

func (m *metrics) reclaimed(s swept) {
	m.freed.Add(context.Background(), int64(s.segments))
	m.moved.Add(context.Background(), s.copied)
}

func (m *metrics) fetched(records, bytes int) {
	m.fetches.Add(context.Background(), int64(records))
	m.fetchSize.Add(context.Background(), int64(bytes))
}

func (m *metrics) compared()    { m.compares.Add(context.Background(), 1) }
func (m *metrics) differ(n int) { m.differs.Add(context.Background(), int64(n)) }

func (m *metrics) diverged() { m.drift.Add(context.Background(), 1) }

func (m *metrics) snapshot(size int64) {
	m.snapshots.Add(context.Background(), 1)
	m.snapBytes.Add(context.Background(), size)
}

func (m *metrics) queued(n int) { m.queue.Add(context.Background(), int64(n)) }

func (m *metrics) proposed(p *proposal) {
	ctx := context.Background()
	m.queue.Add(ctx, -int64(p.size))
	m.bytes.Add(ctx, int64(p.size))
	m.commands.Add(ctx, int64(len(p.parts)))
}

func (m *metrics) answered(p *proposal, err error) {
	ctx := context.Background()
	outcome := m.ok
	switch {
	case err == nil:
		m.latency.Record(ctx, time.Since(p.began).Seconds())
	case errors.Is(err, ledger.ErrUnknown):
		outcome = m.unknown
	default:
		outcome = m.refused
	}
	m.proposals.Add(ctx, 1, outcome)
}

func (m *metrics) read(n int)     { m.reads.Add(context.Background(), int64(n)) }
func (m *metrics) streams(n int)  { m.open.Add(context.Background(), int64(n)) }
func (m *metrics) watching(n int) { m.watchers.Add(context.Background(), int64(n)) }
func (m *metrics) rotten()        { m.rot.Add(context.Background(), 1) }
func (m *metrics) scrubbed()      { m.rounds.Add(context.Background(), 1) }
func (m *metrics) opened(n int)   { m.groups.Add(context.Background(), int64(n)) }

// leading follows setReady, which calls it only when something changed.
func (m *metrics) leading(yes bool) {
	n := int64(-1)
	if yes {
		n = 1
	}
	m.leaders.Add(context.Background(), n)
}
