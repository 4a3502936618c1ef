package topic

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Over random spending by several goroutines, a limit gives what the rate allows and the second that it may save, and
// earns back what was spent in advance.
func TestRateLimit(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		start := time.Now()
		rate := MaxRate{Messages: 1 + r.Int64N(2000), Bytes: 1 + r.Int64N(1<<30)}
		var l RateLimit
		l.Set(rate, start)
		var messages, bytes int64
		now := start
		for range 200 {
			now = now.Add(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
			passed := now.Sub(start).Seconds()
			if left, _ := l.Left(now); left > float64(rate.Messages)*(1+1e-9) {
				t.Fatalf("seed %d: %v tokens of %d", seed, left, rate.Messages)
			}
			if !l.Affordable(now) {
				if wait := l.Wait(now); !l.Affordable(now.Add(wait)) || wait <= 0 {
					t.Fatalf("seed %d: nothing after a wait of %v", seed, wait)
				}
				continue
			}
			if most := float64(rate.Messages)*(1+passed) + 1e-3; float64(messages) > most {
				t.Fatalf("seed %d: %d messages passed, %v may", seed, messages, most)
			}
			m, b := 1+r.Int64N(max(1, rate.Messages/20)), r.Int64N(rate.Bytes/20+1)
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() { l.Spend(m, b, now) })
			}
			all.Wait()
			messages, bytes = messages+2*m, bytes+2*b
		}
		if bytes == 0 || messages == 0 {
			t.Errorf("seed %d: nothing passed", seed)
		}
	}
}

func TestRateLimitChanges(t *testing.T) {
	now := time.Now()
	var l RateLimit
	if !l.Affordable(now) || l.Wait(now) != 0 {
		t.Error("the zero value limits")
	}
	l.Set(MaxRate{Messages: 100}, now)
	l.Spend(150, 1<<40, now)
	if m, _ := l.Left(now); m < -50.001 || m > -49.999 {
		t.Errorf("%v tokens after 150 of 100", m)
	}
	l.Set(MaxRate{Messages: 1000}, now) // the debt stays 50 messages, which are earned ten times as fast
	if l.Affordable(now.Add(49*time.Millisecond)) || !l.Affordable(now.Add(51*time.Millisecond)) {
		t.Error("the debt is not paid at the new rate")
	}
	l.Spend(1<<40, 0, now)
	if l.Affordable(now.Add(59*time.Second)) || !l.Affordable(now.Add(61*time.Second)) {
		t.Error("a debt lasts not a minute")
	}
	l.Set(MaxRate{Bytes: 10}, now)
	if m, b := l.Left(now); m < 1e18 || b != 10 || l.Rate() != (MaxRate{Bytes: 10}) {
		t.Errorf("%v messages, %v bytes, %v", m, b, l.Rate())
	}
	l.Set(MaxRate{}, now)
	if !l.Affordable(now) {
		t.Error("no limit limits")
	}
}
