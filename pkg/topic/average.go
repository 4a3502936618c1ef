package topic

const (
	averageStart   = 1000 // before the first sample: a careful first read
	averageHistory = 0.9
)

// average is the mean number of messages per entry that a consumer was sent lately. It converts permits, which count
// messages, into entries, which reads count. Without it 1000 permits would read 1000 entries, and with batches of 1000
// push a million messages at a client that asked for a thousand.
type average struct {
	value  float64
	primed bool
}

func newAverage() average { return average{value: averageStart} }

// sample takes one send into account. The first replaces the start value.
func (a *average) sample(messages, entries int) {
	if entries == 0 {
		return
	}
	now := float64(messages) / float64(entries)
	if !a.primed || a.value < 1 {
		a.value, a.primed = now, true
		return
	}
	a.value = a.value*averageHistory + now*(1-averageHistory)
}

// entries returns how many entries permits for so many messages are worth: at least one if there is any permit.
func (a *average) entries(permits int64) int64 {
	if permits <= 0 {
		return 0
	}
	avg := max(1, a.value)
	n := int64(float64(permits) / avg)
	if float64(n)*avg < float64(permits) {
		n++
	}
	return n
}
