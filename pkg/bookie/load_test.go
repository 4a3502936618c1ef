package bookie

import (
	"testing"
	"time"
)

// A rate follows what happens within a few windows, and a single burst does not become one.
func TestRate(t *testing.T) {
	var r rate
	now, total := time.Now(), uint64(1<<40)
	look := func(seconds int, each uint64) uint64 {
		for range seconds {
			now, total = now.Add(time.Second), total+each
			r.look(now, total)
		}
		return r.perSecond()
	}
	if got := look(1, 1<<30); got != 0 {
		t.Errorf("after the first look: %d", got)
	}
	if got := look(50, 1000); got < 980 || got > 1000 {
		t.Errorf("after 50 s of 1000/s: %d", got)
	}
	if got := look(1, 10_000); got > 2000 {
		t.Errorf("after one burst: %d", got)
	}
	if got := look(50, 0); got > 20 {
		t.Errorf("after 50 s of silence: %d", got)
	}
}
