package bookieclient

import (
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// command is one append command: a run of entries of one ledger.
//
//	            take                 answer OK
//	queued ───────────► in flight ─────────────► finished, recycled
//	  │  ▲                 │  │
//	  │  └──── rewind ─────┘  │ kill (abandoned, ledger lost)
//	  └──── kill ──► finished └────────► dead ── answer or rewind ──► recycled
//
// Entries may be added only while it is queued and has never been sent: its boundaries are what makes it a retry.
// Guarded by the stream's lock, except that the sender reads the entries of a pinned command without it.
type command struct {
	writer  *writer
	epoch   ledger.Epoch
	first   ledger.EntryID
	entries []ledger.Payload
	framed  int // bytes of the entries on the wire
	large   int // bytes of payloads that go by reference

	sent   bool // at least once
	dead   bool // its answer, if any, interests nobody
	pinned bool // the sender is encoding it; whoever kills it leaves the payloads to the sender
	closes bool // last one of its message
	alone  bool // the only one of its message
	at     time.Time
}

// size is its length on the wire.
func (cmd *command) size() int { return ledger.AppendHeaderLen + cmd.framed }

// last is its last entry.
func (cmd *command) last() ledger.EntryID { return cmd.first + ledger.EntryID(len(cmd.entries)) - 1 }

func (cmd *command) add(p ledger.Payload) {
	if cmd.entries == nil { // new: it will be used again and again
		cmd.entries = make([]ledger.Payload, 0, 64)
	}
	cmd.entries = append(cmd.entries, p)
	cmd.framed += ledger.FramedLen(len(p.Data))
	if len(p.Data) >= bookiepb.RefThreshold {
		cmd.large += len(p.Data)
	}
}

// encode writes the command to the body.
func (cmd *command) encode(b *bookiepb.AppendBody) {
	b.SetTail(ledger.PutAppendHeader(b.Tail(), cmd.writer.ref.ID, cmd.epoch, cmd.first, len(cmd.entries), cmd.framed))
	for _, p := range cmd.entries {
		if len(p.Data) < bookiepb.RefThreshold {
			b.SetTail(ledger.AppendEntry(b.Tail(), p.Data))
			continue
		}
		b.SetTail(ledger.AppendEntryHeader(b.Tail(), p.Data))
		if p.Owner == nil {
			b.Ref(p.Data, nil)
		} else {
			b.Ref(p.Data, p.Owner)
		}
	}
}

// writer is a ledger with unfinished commands. It exists only while there are any.
type writer struct {
	ref     ledger.Ref
	waiter  ledger.Waiter
	pending int      // live commands
	tail    *command // last live command, nil when it takes no more entries
	gaps    int      // NOT_NEXT answers that a fresh stream may cure

	acked ledger.EntryID // gathered from one message; told when acks is set
	acks  bool
}

// batch is what goes into one message.
type batch struct {
	commands []*command
	bytes    int // on the wire
	inline   int // of these, copied
	entries  int
	resent   int
}

func (b *batch) reset() {
	clear(b.commands)
	*b = batch{commands: b.commands[:0]}
}

func (b *batch) add(cmd *command) {
	b.commands = append(b.commands, cmd)
	b.bytes += cmd.size()
	b.inline += cmd.size() - cmd.large
	b.entries += len(cmd.entries)
	if cmd.sent {
		b.resent++
	}
}

// fifo is a queue in a slice that is used again.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *fifo[T]) peek() T { return q.items[q.head] }

func (q *fifo[T]) pop() T {
	v := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// all are the items in order, to look at.
func (q *fifo[T]) all() []T { return q.items[q.head:] }

// replace makes the queue hold items; it keeps no reference to the slice.
func (q *fifo[T]) replace(items []T) {
	clear(q.items)
	q.items, q.head = append(q.items[:0], items...), 0
}
