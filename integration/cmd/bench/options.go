package main

import (
	"errors"
	"fmt"
	"time"

	"geminga/integration/harness"
	"geminga/rpc/pulsarpb"
)

// options say what one measurement does, and on what.
type options struct {
	bin, dir          string
	producers, window int
	count, size, keys int
	reading           reading
	unacked           int
	limit             time.Duration
	brokerSets        harness.Sets
	bookieSets        harness.Sets
	bareServer        string
	profile           string
}

// reading says how the messages are consumed meanwhile.
type reading struct {
	kind          string // of the subscriptions, in Pulsar's words
	subscriptions int
	consumers     int // of each subscription; 0: nobody subscribes
	acks          string
}

// How consumers acknowledge.
const (
	acksSingle     = "single"     // a command for each message
	acksGrouped    = "grouped"    // a command for groupSize messages, with an id for each
	acksCumulative = "cumulative" // a command for groupSize messages, with the id of the last
	acksNone       = "none"       // never
)

// groupSize is how many messages one command acknowledges, unless it is one.
const groupSize = 100

func (o *options) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	r := o.reading
	check(o.producers > 0 && o.window > 0 && o.count >= 10, "producers, window or count is too small")
	check(o.size >= stampSize, "a payload of %d bytes has no room for the time of its publication, %d bytes", o.size, stampSize)
	check(o.keys > 0 && o.keys < 1e8, "%d keys", o.keys)
	check(r.subscriptions > 0 && r.consumers >= 0, "%d subscriptions of %d consumers", r.subscriptions, r.consumers)
	check(o.unacked == 0 || r.consumers > 0, "without consumers nothing is unacknowledged")
	_, known := pulsarpb.CommandSubscribe_SubType_value[r.kind]
	check(known, "subscription type %q is none of Exclusive, Failover, Shared, Key_Shared", r.kind)
	check(r.kind != "Exclusive" || r.consumers <= 1, "an Exclusive subscription has one consumer, not %d", r.consumers)
	switch r.acks {
	case acksSingle, acksGrouped, acksNone:
	case acksCumulative:
		check(r.kind == "Exclusive" || r.kind == "Failover", "acks of %s subscriptions cannot be cumulative", r.kind)
	default:
		check(false, "acks %q are none of single, grouped, cumulative, none", r.acks)
	}
	return errors.Join(errs...)
}

func (r reading) String() string {
	if r.consumers == 0 {
		return "nobody"
	}
	return fmt.Sprintf("%d %s × %d", r.subscriptions, r.kind, r.consumers)
}
