package bookie

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Damage under a running replica is logged with its place and counted; the replica goes on.
func TestScrubTellsOfDamage(t *testing.T) {
	var log lockedBuffer
	reader := metric.NewManualReader()
	c := newCluster(t, 1, func(o *Options) {
		o.Journal.SegmentSize, o.ScrubBytesPerSecond = 64<<10, 1<<40
		o.RecentBytes = 1
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	})
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	const n = 40
	for i := range n {
		p := strings.Repeat(fmt.Sprintf("the quick brown fox %d ", i), 200)
		c.want(c.execute(1, command(testAppend(7, 1, ledger.EntryID(i), p))), bookiepb.Code_OK, int64(i))
	}
	b := c.nodes["a"]
	b.scrubber.round(t.Context())
	if strings.Contains(log.String(), "damage in the journal") || !strings.Contains(log.String(), "damaged=0") {
		t.Fatalf("a whole journal: %s", log.String())
	}
	damage(t, b.disk, "the quick brown fox 3 ")
	at, err := b.groups.get(1).fsm.find(7, 3)
	if err != nil {
		t.Fatal(err)
	}
	b.scrubber.round(t.Context())
	for _, want := range []string{"damage in the journal", fmt.Sprintf("group=1 index=%d", at.run.index), "damaged=1"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log.String())
		}
	}
	if places := counted(t, reader, "geminga.bookie.scrub.damage"); places != 1 {
		t.Errorf("%d places counted", places)
	}
	c.want(c.execute(1, command(testAppend(7, 1, n, "goes on"))), bookiepb.Code_OK, n)
}

// counted returns what a counter or a gauge says, all its attributes together.
func counted(t *testing.T, reader metric.Reader, name string) (sum int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			var points []metricdata.DataPoint[int64]
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				points = data.DataPoints
			case metricdata.Gauge[int64]:
				points = data.DataPoints
			}
			for _, p := range points {
				sum += p.Value
			}
		}
	}
	return sum
}

// A read that hangs does not keep a bookie from closing.
func TestScrubHangsAlone(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.Journal.SegmentSize, o.ScrubBytesPerSecond = 64<<10, -1 })
	b := c.nodes["a"]
	if b.scrubber != nil {
		t.Fatal("scrubbing is off")
	}
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	for i := range 20 {
		c.want(c.execute(1, command(testAppend(7, 1, ledger.EntryID(i), strings.Repeat("x", 10000)))), bookiepb.Code_OK, int64(i))
	}
	hang := b.fs.HangIf(vfs.Kinds(vfs.OpRead))
	defer hang.Release()
	b.opts.ScrubBytesPerSecond = 1 << 40
	b.Bookie.scrubber = startScrub(b.Bookie)
	done := b.Bookie.scrubber.done
	<-hang.Reached()
	c.stop("a")
	select {
	case <-done:
		t.Error("the read did not hang")
	default:
	}
	hang.Release()
	<-done
}
