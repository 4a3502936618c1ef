package ledgers

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/ledger"
)

// Ledger is one ledger of a writer's list.
type Ledger struct {
	ledger.Ref
	epoch   ledger.Epoch
	writer  *Writer
	attempt uint64
	base    uint64 // sequence of entry 0
	bulk    int    // bytes that its entries are larger than usual

	mu      sync.Mutex
	sent    ledger.EntryID // last one that was given to the client
	acked   ledger.EntryID
	ended   bool           // last is the closing entry
	last    ledger.EntryID // once ended
	fenced  bool           // last is what a fence named, so nothing behind it was or will be acknowledged
	closed  bool           // a bookie has said so
	deleted bool           // decided, before it was ordered
}

func (l *Ledger) stamp(e ledger.EntryID) stamp {
	return stamp{l.ID, e, uint64(l.writer.id), l.attempt, l.base + uint64(e), l.bulk}
}

// bytes is about what a ledger that has ended takes.
func (l *Ledger) bytes() int { return int(l.last+1) * (headSize + l.bulk) }

// end decides on the closing entry. Only the first decision counts.
func (l *Ledger) end(last ledger.EntryID, fenced bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	l.ended, l.last, l.fenced = true, last, fenced
	if fenced && (last < l.acked || last > l.sent) {
		return fmt.Errorf("%v: a fence says that the last entry is %d; %d is acknowledged, %d was sent", l.Ref, last, l.acked, l.sent)
	}
	return nil
}

// ack takes an acknowledgement. It counts if it comes before the end was decided.
func (l *Ledger) ack(last ledger.EntryID) (counts bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case last > l.sent:
		return false, fmt.Errorf("%v: entry %d is acknowledged, %d was sent", l.Ref, last, l.sent)
	case l.ended && l.fenced && last > l.last:
		return false, fmt.Errorf("%v: entry %d is acknowledged, a fence had named %d as the last one", l.Ref, last, l.last)
	case last <= l.acked:
		return false, nil
	case l.ended:
		return false, nil
	}
	l.acked = last
	return true, nil
}

// readable is the last entry that a reader may ask for; deleted says that there may be none.
func (l *Ledger) readable() (last ledger.EntryID, deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return l.last, l.deleted
	}
	return l.acked, l.deleted
}

// Log is all that was written, and what went wrong.
type Log struct {
	Writers []*Writer
	Acked   atomic.Int64 // entries
	Read    atomic.Int64 // entries, by readers, while writers wrote
	Unread  atomic.Int64 // reads without an answer

	any  gap
	seed uint64
	bulk atomic.Int64 // of new ledgers
	keep atomic.Bool  // nothing is deleted but by DeleteHalf

	mu     sync.Mutex
	faults []error
	more   int // than are kept
}

// maxFaults bounds what is kept: the first ones tell most.
const maxFaults = 20

func (g *Log) fault(err error) {
	if err == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.faults) < maxFaults {
		g.faults = append(g.faults, err)
	} else {
		g.more++
	}
}

// Err returns the promises that are broken so far.
func (g *Log) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.more > 0 {
		return fmt.Errorf("%w\nand %d more", errors.Join(g.faults...), g.more)
	}
	return errors.Join(g.faults...)
}

// Ledgers lists all ledgers of all writers.
func (g *Log) Ledgers() (out []*Ledger) {
	for _, w := range g.Writers {
		out = append(out, w.ledgers()...)
	}
	return out
}

// gap measures the longest time between two acknowledgements.
type gap struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (g *gap) acked(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.last.IsZero() {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.last = now
}

// mark begins to measure: from now, not from the last acknowledgement.
func (g *gap) mark() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.longest = time.Now(), 0
}

// read returns the longest time since the mark, one that goes on included.
func (g *gap) read() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.longest, time.Since(g.last))
}

// Moving lists the writers that go on in another group.
func (g *Log) Moving() (out []*Writer) {
	for _, w := range g.Writers {
		if !w.waits {
			out = append(out, w)
		}
	}
	return out
}

// Gaps are the longest times without an acknowledgement since Mark: of all writers together, and the worst writer's of
// those that go on in another group, and of those that wait for theirs.
type Gaps struct{ Any, Moving, Waiting time.Duration }

// Mark begins to measure.
func (g *Log) Mark() {
	g.any.mark()
	for _, w := range g.Writers {
		w.gap.mark()
	}
}

// Gaps ends a measurement.
func (g *Log) Gaps() Gaps {
	out := Gaps{Any: g.any.read()}
	for _, w := range g.Writers {
		if w.waits {
			out.Waiting = max(out.Waiting, w.gap.read())
		} else {
			out.Moving = max(out.Moving, w.gap.read())
		}
	}
	return out
}
