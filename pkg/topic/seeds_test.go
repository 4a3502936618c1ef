package topic

import (
	"flag"
	"iter"
	"testing"
)

// Seeds of the tests over random operations. A failure names its seed; -properties.first runs it alone.
var (
	propertySeeds = flag.Int("properties.seeds", 0, "how many seeds each property is tried with; 0: enough for every day")
	propertyFirst = flag.Int("properties.first", 0, "first seed")
)

// seeds yields the seeds of a property; usual is how many there are by default.
func seeds(usual int) iter.Seq[int] {
	n := *propertySeeds
	switch {
	case n > 0:
	case testing.Short():
		n = usual / 3
	default:
		n = usual
	}
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(*propertyFirst + i) {
				return
			}
		}
	}
}
