// Package telemetry sets up the OpenTelemetry SDK for a daemon: a meter provider whose instruments are served in
// Prometheus text, together with the figures of the Go runtime and of the process.
//
//	cmd ─ New ─▶ MeterProvider ─▶ Options of every package ─▶ instruments
//	                                                              │ collected at each scrape, pushed nowhere
//	                            Prometheus ── GET /metrics ──▶ Handler
//
// Only cmd imports it; everything else knows OpenTelemetry's API alone. It has no globals: two daemons in one process
// each have their own provider and registry. All methods may be called from any goroutine.
//
// Non-obvious:
//   - Names are translated: pulsar.broker.message.incoming.count in {message} is served as
//     pulsar_broker_message_incoming_count_total.
//   - Histograms get their buckets by unit (buckets.go), because the SDK's own are made for milliseconds while all our
//     durations are seconds: everything would fall into the first one.
//   - A series that exceeds SeriesPerInstrument is not lost: it is added up under otel_metric_overflow="true".
package telemetry
