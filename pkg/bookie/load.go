package bookie

import (
	"math"
	"sync/atomic"
	"time"
)

// rateWindow is over how long a rate is a mean, give or take: long enough to be no reading of one burst, short enough that
// ledgers which move are noticed before the next ones are placed.
const rateWindow = 10 * time.Second

// rate is how fast a counter grows. One goroutine looks, any may ask.
type rate struct {
	value atomic.Uint64 // bits of a float64, a second
	total uint64
	at    time.Time
}

// look takes the counter's present value.
func (r *rate) look(now time.Time, total uint64) {
	elapsed := now.Sub(r.at)
	if r.at.IsZero() || elapsed <= 0 {
		r.total, r.at = total, now
		return
	}
	weight := 1 - math.Exp(-float64(elapsed)/float64(rateWindow))
	old := math.Float64frombits(r.value.Load())
	fresh := float64(total-r.total) / elapsed.Seconds()
	r.value.Store(math.Float64bits(old + (fresh-old)*weight))
	r.total, r.at = total, now
}

// perSecond is the rate.
func (r *rate) perSecond() uint64 { return uint64(math.Float64frombits(r.value.Load())) }
