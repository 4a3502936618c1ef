package main

import "testing"

func TestOptionsThatMakeNoSense(t *testing.T) {
	good := options{
		producers: 1, window: 1, count: 10, size: 128, keys: 1,
		reading: reading{kind: "Key_Shared", subscriptions: 2, consumers: 3, acks: acksGrouped},
	}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*options){
		"no room for the time":           func(o *options) { o.size = stampSize - 1 },
		"unknown type":                   func(o *options) { o.reading.kind = "KeyShared" },
		"unknown acks":                   func(o *options) { o.reading.acks = "all" },
		"two on an Exclusive":            func(o *options) { o.reading.kind = "Exclusive" },
		"cumulative on a Key_Shared":     func(o *options) { o.reading.acks = acksCumulative },
		"unacknowledged without readers": func(o *options) { o.unacked, o.reading.consumers = 1, 0 },
		"nobody publishes":               func(o *options) { o.producers = 0 },
	} {
		o := good
		spoil(&o)
		if o.validate() == nil {
			t.Error(name)
		}
	}
}
