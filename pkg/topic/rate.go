package topic

import (
	"math"
	"sync/atomic"
	"time"
)

// MaxRate bounds messages and bytes per second; 0: not bounded.
type MaxRate struct{ Messages, Bytes int64 }

const (
	// rateSlice is how much of a second's tokens whoever has to wait waits for. Less would be more wake-ups, not more
	// precision: what gathers meanwhile is not lost.
	rateSlice = 10 * time.Millisecond
	// rateDebt is how long it takes at most to earn what was spent in advance. Counts are what clients say; a wrong one
	// must not stop a topic for days.
	rateDebt = time.Minute
)

// RateLimit is a token bucket for messages and one for bytes, each holding the tokens of one second at most. Something
// may pass while there is any token, whatever its size, and takes what it costs; so a bucket may be in debt. The zero
// value limits nothing.
//
// Any goroutine, without locks; but Set is for one at a time, and the first one comes before everything else.
type RateLimit struct{ messages, bytes bucket }

// Set changes the rate. A bucket that is new is full; others keep their tokens and debts, as far as a bucket of the new rate
// may have them.
func (l *RateLimit) Set(r MaxRate, now time.Time) {
	l.messages.set(r.Messages, l.messages.tokens(now), now)
	l.bytes.set(r.Bytes, l.bytes.tokens(now), now)
}

// change is Set for a limit whose new buckets have only one slice to begin with.
func (l *RateLimit) change(r MaxRate, now time.Time) {
	l.messages.change(r.Messages, now)
	l.bytes.change(r.Bytes, now)
}

// Rate returns the rate.
func (l *RateLimit) Rate() MaxRate { return MaxRate{l.messages.rate.Load(), l.bytes.rate.Load()} }

// Left returns the tokens; +Inf where there is no limit, less than 0 for debts.
func (l *RateLimit) Left(now time.Time) (messages, bytes float64) {
	return l.messages.tokens(now), l.bytes.tokens(now)
}

// Affordable reports that something may pass.
func (l *RateLimit) Affordable(now time.Time) bool {
	messages, bytes := l.Left(now)
	return messages > 0 && bytes > 0
}

// Spend takes tokens, if need be in advance.
func (l *RateLimit) Spend(messages, bytes int64, now time.Time) {
	l.messages.spend(float64(messages), now)
	l.bytes.spend(float64(bytes), now)
}

// Wait returns the time until a slice of tokens has gathered, of each kind.
func (l *RateLimit) Wait(now time.Time) time.Duration {
	return max(l.messages.wait(now), l.bytes.wait(now))
}

// bucket stands for its tokens by the time at which it had none, or will have paid its debt. So it fills by itself, and
// to spend is one atomic operation.
type bucket struct {
	base  time.Time    // of empty, with its monotonic reading; set once
	rate  atomic.Int64 // tokens per second; 0: no limit
	empty atomic.Int64 // ns since base
}

// slice is the tokens of rateSlice, at least one.
func slice(rate int64) float64 { return max(1, float64(rate)*rateSlice.Seconds()) }

// earns returns the time in which tokens come in, rounded up.
func earns(tokens float64, rate int64) time.Duration {
	return time.Duration(math.Ceil(tokens / float64(rate) * float64(time.Second)))
}

func (b *bucket) set(rate int64, tokens float64, now time.Time) {
	if rate = max(0, rate); rate > 0 {
		if b.base.IsZero() {
			b.base = now
		}
		b.empty.Store(int64(now.Sub(b.base) - max(earns(min(tokens, float64(rate)), rate), -rateDebt)))
	}
	b.rate.Store(rate)
}

func (b *bucket) change(rate int64, now time.Time) {
	tokens := b.tokens(now)
	if math.IsInf(tokens, 1) {
		tokens = slice(rate)
	}
	b.set(rate, tokens, now)
}

func (b *bucket) tokens(now time.Time) float64 {
	rate := b.rate.Load()
	if rate == 0 {
		return math.Inf(1)
	}
	filled := min(now.Sub(b.base)-time.Duration(b.empty.Load()), time.Second)
	return filled.Seconds() * float64(rate)
}

func (b *bucket) spend(n float64, now time.Time) {
	rate := b.rate.Load()
	if rate == 0 {
		return
	}
	at := now.Sub(b.base)
	cost := min(earns(n, rate), rateDebt)
	for {
		empty := b.empty.Load()
		next := min(max(time.Duration(empty), at-time.Second)+cost, at+rateDebt)
		if b.empty.CompareAndSwap(empty, int64(next)) {
			return
		}
	}
}

// reserve takes what there is, at least a slice; wait says when it may be used. Those who reserve one after the other wait
// one after the other.
func (b *bucket) reserve(now time.Time) (tokens float64, wait time.Duration) {
	rate := b.rate.Load()
	if rate == 0 {
		return math.Inf(1), 0
	}
	left := b.tokens(now)
	tokens, wait = max(left, slice(rate)), b.wait(now)
	b.spend(tokens, now)
	return tokens, wait
}

func (b *bucket) wait(now time.Time) time.Duration {
	rate := b.rate.Load()
	if rate == 0 {
		return 0
	}
	return max(0, earns(slice(rate)-b.tokens(now), rate))
}
