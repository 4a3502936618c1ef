package main

import (
	"math"
	"testing"
	"time"
)

func TestHistogramPercentiles(t *testing.T) {
	var a, b, sum histogram
	for i := range 1000 {
		h := &a
		if i%3 == 0 {
			h = &b
		}
		h.record(time.Duration(i+1) * time.Millisecond)
	}
	sum.add(&a)
	sum.add(&b)
	for q, want := range map[float64]time.Duration{0.001: 1, 0.5: 500, 0.99: 990, 1: 1000} {
		want *= time.Millisecond
		if got := sum.percentile(q); got < want || got > want+want/32 {
			t.Errorf("p%v is %v, want %v", 100*q, got, want)
		}
	}
	if sum.n != 1000 {
		t.Errorf("%d values", sum.n)
	}
}

func TestHistogramBuckets(t *testing.T) {
	for _, v := range []uint64{0, 1, 31, 32, 33, 63, 64, 65, 1e6, 1e6 + 1, math.MaxInt64} {
		top := highest(bucketOf(v))
		if top < v || top-v > v/32 || bucketOf(top) != bucketOf(v) || bucketOf(top+1) != bucketOf(v)+1 {
			t.Errorf("%d is counted as %d, in bucket %d", v, top, bucketOf(v))
		}
	}
}

func TestEmptyHistogram(t *testing.T) {
	var h histogram
	if got := h.percentile(0.99); got != 0 {
		t.Errorf("got %v", got)
	}
	h.record(-time.Second)
	if got := h.percentile(0.99); got != 0 {
		t.Errorf("got %v", got)
	}
}

func TestHistogramDoesNotAllocate(t *testing.T) {
	var h histogram
	if n := testing.AllocsPerRun(100, func() { h.record(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
