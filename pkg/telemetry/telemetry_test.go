package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

func scrape(t *testing.T, tel *Telemetry) string {
	t.Helper()
	rec := httptest.NewRecorder()
	tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Body)
	if err != nil || rec.Code != 200 {
		t.Fatalf("%d %v", rec.Code, err)
	}
	return string(body)
}

func open(t *testing.T, o Options) *Telemetry {
	t.Helper()
	tel, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel
}

func TestScrape(t *testing.T) {
	tel := open(t, Options{ServiceName: "brokerd", Version: "1.2", Instance: "b1", Cluster: "c"})
	meter := tel.MeterProvider().Meter("geminga/pkg/x")
	count, err := meter.Int64Counter("pulsar.broker.message.incoming.count", metric.WithUnit("{message}"))
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := meter.Float64Histogram("geminga.journal.sync.duration", metric.WithUnit("s"))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := meter.Int64Histogram("geminga.append.batch", metric.WithUnit("{entry}"))
	if err != nil {
		t.Fatal(err)
	}
	count.Add(t.Context(), 3)
	seconds.Record(t.Context(), 0.0003)
	batch.Record(t.Context(), 100)
	text := scrape(t, tel)
	for _, want := range []string{
		"pulsar_broker_message_incoming_count_total 3",
		`geminga_journal_sync_duration_seconds_bucket{le="0.00025"} 0`,
		`geminga_journal_sync_duration_seconds_bucket{le="0.0005"} 1`,
		`geminga_append_batch_bucket{le="128"} 1`,
		`service_name="brokerd"`,
		"go_goroutines ",
		"go_sched_latencies_seconds_bucket",
		"process_cpu_seconds_total ",
		"process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestTwoInOneProcess(t *testing.T) {
	a, b := open(t, Options{ServiceName: "a"}), open(t, Options{ServiceName: "b"})
	c, err := a.MeterProvider().Meter("m").Int64Counter("only.in.a")
	if err != nil {
		t.Fatal(err)
	}
	c.Add(t.Context(), 1)
	if !strings.Contains(scrape(t, a), "only_in_a_total 1") || strings.Contains(scrape(t, b), "only_in_a") {
		t.Error("registries are shared")
	}
}

func TestSeriesAreBounded(t *testing.T) {
	tel := open(t, Options{ServiceName: "a", SeriesPerInstrument: 3})
	c, err := tel.MeterProvider().Meter("m").Int64Counter("x")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		c.Add(t.Context(), 1, metric.WithAttributes(attribute.Int("i", i)))
	}
	text := scrape(t, tel)
	if n := strings.Count(text, "\nx_total{"); n != 3 || !strings.Contains(text, `otel_metric_overflow="true"`) {
		t.Errorf("%d series\n%s", n, text)
	}
}

func TestBadOptions(t *testing.T) {
	if _, err := New(Options{SeriesPerInstrument: -1}); err == nil || !strings.Contains(err.Error(), "ServiceName") ||
		!strings.Contains(err.Error(), "SeriesPerInstrument") {
		t.Errorf("got %v", err)
	}
}

// A scraper that hangs up is not the operator's concern.
func TestScraperThatHangsUp(t *testing.T) {
	var out bytes.Buffer
	l := logErrors{slog.New(slog.NewTextHandler(&out, nil))}
	l.Println("error encoding and sending metric family:", fmt.Errorf("write tcp: %w", syscall.EPIPE))
	if out.Len() > 0 {
		t.Errorf("logged: %s", &out)
	}
	l.Println("error gathering metrics:", errors.New("two of one name"))
	if !strings.Contains(out.String(), "two of one name") {
		t.Errorf("not logged: %s", &out)
	}
}
