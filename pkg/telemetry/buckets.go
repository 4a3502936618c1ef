package telemetry

import sdk "go.opentelemetry.io/otel/sdk/metric"

// bucketsByUnit chooses the buckets of every histogram by its unit: seconds from 50 µs (a network round trip) to 30 s,
// bytes from 64 B to 64 MiB, and counts (batch sizes) in powers of two.
func bucketsByUnit(in sdk.Instrument) (sdk.Stream, bool) {
	if in.Kind != sdk.InstrumentKindHistogram {
		return sdk.Stream{}, false
	}
	bounds := []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384}
	switch in.Unit {
	case "s":
		bounds = []float64{
			50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30,
		}
	case "By":
		bounds = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
	}
	return sdk.Stream{
		Name: in.Name, Description: in.Description, Unit: in.Unit,
		Aggregation: sdk.AggregationExplicitBucketHistogram{Boundaries: bounds, NoMinMax: true},
	}, true
}
