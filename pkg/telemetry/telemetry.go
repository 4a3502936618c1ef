package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
)

// maxScrapes at once: a scrape takes locks that the hot path needs.
const maxScrapes = 3

// Options say who is measured.
type Options struct {
	ServiceName string // brokerd, bookied
	Version     string
	Instance    string // what tells this process from others of the service
	Cluster     string

	// SeriesPerInstrument bounds the memory that attribute values chosen by clients (topic names) can take.
	SeriesPerInstrument int

	Logger *slog.Logger
}

// EnsureDefaults fills what is zero.
func (o *Options) EnsureDefaults() {
	if o.SeriesPerInstrument == 0 {
		o.SeriesPerInstrument = 20_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate reports all faults.
func (o *Options) Validate() error {
	var errs []error
	if o.ServiceName == "" {
		errs = append(errs, errors.New("telemetry: ServiceName is empty"))
	}
	if o.SeriesPerInstrument < 1 {
		errs = append(errs, fmt.Errorf("telemetry: SeriesPerInstrument is %d", o.SeriesPerInstrument))
	}
	return errors.Join(errs...)
}

// Telemetry is a meter provider and where its figures are read.
type Telemetry struct {
	provider *sdk.MeterProvider
	handler  http.Handler
}

// New sets the SDK up.
func New(o Options) (*Telemetry, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
			collectors.MetricsGC, collectors.MetricsMemory, collectors.MetricsScheduler)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
	}
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("telemetry: prometheus exporter: %w", err)
	}
	return &Telemetry{
		provider: sdk.NewMeterProvider(
			sdk.WithReader(reader), sdk.WithResource(o.resource()), sdk.WithView(bucketsByUnit),
			sdk.WithCardinalityLimit(o.SeriesPerInstrument), sdk.WithExemplarFilter(exemplar.AlwaysOffFilter),
		),
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorLog: logErrors{o.Logger}, ErrorHandling: promhttp.ContinueOnError,
			Registry: registry, MaxRequestsInFlight: maxScrapes,
		}),
	}, nil
}

// resource is served as target_info.
func (o *Options) resource() *resource.Resource {
	return resource.NewSchemaless(
		attribute.String("service.namespace", "geminga"),
		attribute.String("service.name", o.ServiceName),
		attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Instance),
		attribute.String("pulsar.cluster", o.Cluster),
	)
}

// MeterProvider makes the instruments.
func (t *Telemetry) MeterProvider() metric.MeterProvider { return t.provider }

// Handler serves the figures in Prometheus' and OpenMetrics' text formats.
func (t *Telemetry) Handler() http.Handler { return t.handler }

// Shutdown ends the provider; instruments measure nothing from then on.
func (t *Telemetry) Shutdown(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// logErrors is the exporter's way to complain.
type logErrors struct{ log *slog.Logger }

func (l logErrors) Println(v ...any) {
	for _, e := range v {
		if err, ok := e.(error); ok && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
			l.log.Debug("metrics scrape not read to its end", "error", err) // once for every family that is left
			return
		}
	}
	l.log.Warn("metrics scrape incomplete", "error", fmt.Sprint(v...))
}
