package topic

import (
	"fmt"
	"math"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/protocol"
)

// Producers' clocks differ and messages wait in batches, so publish times in the log go up, but not always. A search for
// the first message at or after a time must not pass over one that lies before earlier ones:
//
//	time − seekDisorder     time
//	        ▼                 ▼
//	 … 3 4 5 7 6 8 | 9 11 10 13 12 14 15 …
//	   halving: all  scan: each one
//	   are earlier
//
// Halving is done with the time less seekDisorder; so it is right as long as no message lies behind one that is later by
// more than that. What it leaves, and in a topic of up to seekScan entries all of them, is read one by one. To look further
// back would be to read all of the topic; whoever has clocks that differ by more stores the broker's time with the entries
// (AppendBrokerTimestamp), which goes by one clock.
const (
	seekDisorder = 10 * 60 * 1000 // ms
	seekScan     = 10_000         // entries
)

// SeekTime moves the consumer's subscription to the first entry that was published at the time (ms since 1970) or after
// it, as Seek does; behind the last one if there is none. Consumers stay until the place is found.
func (c *Consumer) SeekTime(millis uint64, done func(error)) { c.seekTime(millis, seekScan, done) }

func (c *Consumer) seekTime(millis uint64, scan int64, done func(error)) {
	s := c.sub
	s.exec.AssertCurrent()
	if c.closed || s.ended {
		done(fmt.Errorf("seek on %q: %w", s.name, ErrConsumerClosed))
		return
	}
	t := s.topic
	search := &timeSearch{sub: s, time: int64(min(millis, math.MaxInt64)), least: scan}
	search.done = func(p ledger.Position, err error) {
		if err != nil {
			done(fmt.Errorf("seek on %q: %w", s.name, err))
			return
		}
		c.Seek(p, done)
	}
	t.exec.PostFunc(func() {
		t.log.OpenCursor(managedledger.CursorOptions{
			Name: t.env.Names.Next(), Initial: ledger.Earliest, Inclusive: true, Executor: s.exec,
		}, search.begin)
	})
}

// timeSearch looks for an entry by its publish time, on the subscription's executor, with a cursor of its own.
type timeSearch struct {
	sub    *subscription
	cursor *managedledger.Cursor
	time   int64 // ms
	least  int64 // entries that are not halved further
	done   func(ledger.Position, error)
}

func (f *timeSearch) begin(c *managedledger.Cursor, err error) {
	if err != nil {
		f.done(ledger.Position{}, err)
		return
	}
	f.cursor = c
	early := f.time - min(f.time, seekDisorder)
	c.Bisect(f.least, func(payload []byte) bool { return publishTime(payload) < early }, func(p ledger.Position, err error) {
		if err != nil {
			f.end(p, err)
			return
		}
		f.cursor.Seek(p, nil)
		f.scan()
	})
}

// scan reads on. Other work on the executor comes between two reads.
func (f *timeSearch) scan() {
	switch {
	case f.sub.ended:
		f.end(ledger.Position{}, ErrConsumerClosed)
		return
	case !f.cursor.HasMore():
		f.end(f.cursor.ReadPosition(), nil) // not Latest: what comes meanwhile is not passed over
		return
	}
	limits := ledger.Limits{Entries: f.sub.opts.DispatcherMaxReadBatchSize, Bytes: f.sub.opts.DispatcherMaxReadSizeBytes}
	f.cursor.Read(limits, func(entries []ledger.Entry, err error) {
		defer release(entries)
		if err != nil {
			f.end(ledger.Position{}, err)
			return
		}
		for i := range entries {
			if publishTime(entries[i].Payload.Data) >= f.time {
				f.end(entries[i].Position, nil)
				return
			}
		}
		f.sub.exec.PostFunc(f.scan)
	})
}

func (f *timeSearch) end(p ledger.Position, err error) {
	f.cursor.Close(nil)
	f.done(p, err)
}

// publishTime is the broker's time of an entry, if it has one, else the producer's. One that does not parse is at the end
// of all time: it is not passed over.
func publishTime(payload []byte) int64 {
	var section protocol.Section
	var md protocol.Metadata
	if section.Parse(payload) != nil || md.Parse(section.Metadata) != nil {
		return math.MaxInt64
	}
	var entry protocol.BrokerEntry
	if entry.Parse(section.BrokerEntry) == nil && entry.HasTimestamp {
		return int64(min(entry.Timestamp, math.MaxInt64))
	}
	return int64(min(md.PublishTime, math.MaxInt64))
}
