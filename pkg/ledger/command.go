package ledger

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Op says what a command does. The values are part of the wire and of the Raft log: never renumber them.
type Op uint8

// The commands.
const (
	OpAppend Op = 1
	OpCreate Op = 2
	OpFence  Op = 3
	OpClose  Op = 4
	OpDelete Op = 5
)

// String returns the lower-case name.
func (o Op) String() string {
	switch o {
	case OpAppend:
		return "append"
	case OpCreate:
		return "create"
	case OpFence:
		return "fence"
	case OpClose:
		return "close"
	case OpDelete:
		return "delete"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// CommandHeaderLen is the size of what every command starts with, and all there is of Create, Fence and Delete.
//
//	┌───────┬────────────┬───────────┐
//	│ op u8 │ ledger u64 │ epoch u64 │   all numbers big endian
//	└───────┴────────────┴───────────┘
const CommandHeaderLen = 1 + 8 + 8

// AppendHeaderLen is the size of an append command without its body.
//
//	┌────────────────┬───────────┬───────────┬─────────────┬──────────────────────────────┐
//	│ command header │ first i64 │ count u32 │ bodyLen u32 │ body: count framed entries … │
//	└────────────────┴───────────┴───────────┴─────────────┴──────────────────────────────┘
const AppendHeaderLen = CommandHeaderLen + 8 + 4 + 4

// CloseLen is the size of a close command: the command header, then last i64.
const CloseLen = CommandHeaderLen + 8

// Command is one step of a ledger. Which of the fields after Epoch count depends on Op.
type Command struct {
	Op     Op
	Ledger ID
	Epoch  Epoch

	First EntryID // append: id of the first entry
	Count int     // append: number of entries, at least 1
	Body  []byte  // append: the framed entries; after NextCommand it aliases the input

	Last EntryID // close: the last entry that stays, NoEntry for none
}

// AppendTo appends the encoding of c to b.
func (c *Command) AppendTo(b []byte) []byte {
	switch c.Op {
	case OpAppend:
		b = PutAppendHeader(b, c.Ledger, c.Epoch, c.First, c.Count, len(c.Body))
		return append(b, c.Body...)
	case OpClose:
		b = putHeader(b, OpClose, c.Ledger, c.Epoch)
		return binary.BigEndian.AppendUint64(b, uint64(c.Last))
	default:
		return putHeader(b, c.Op, c.Ledger, c.Epoch)
	}
}

// EncodedLen is the length of what AppendTo appends.
func (c *Command) EncodedLen() int {
	switch c.Op {
	case OpAppend:
		return AppendHeaderLen + len(c.Body)
	case OpClose:
		return CloseLen
	default:
		return CommandHeaderLen
	}
}

// String describes the command in one line without its payloads.
func (c *Command) String() string {
	switch c.Op {
	case OpAppend:
		return fmt.Sprintf("append ledger=%d epoch=%d first=%d count=%d", c.Ledger, c.Epoch, c.First, c.Count)
	case OpClose:
		return fmt.Sprintf("close ledger=%d epoch=%d last=%d", c.Ledger, c.Epoch, c.Last)
	default:
		return fmt.Sprintf("%s ledger=%d epoch=%d", c.Op, c.Ledger, c.Epoch)
	}
}

func putHeader(b []byte, op Op, id ID, epoch Epoch) []byte {
	b = append(b, byte(op))
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	return binary.BigEndian.AppendUint64(b, uint64(epoch))
}

// PutAppendHeader appends the header of an append command to b. Its body of bodyLen bytes, count entries framed by
// AppendEntry or AppendEntryHeader, must follow.
//
//nolint:revive // argument-limit: these are the fields of the header, in their order
func PutAppendHeader(b []byte, id ID, epoch Epoch, first EntryID, count, bodyLen int) []byte {
	b = putHeader(b, OpAppend, id, epoch)
	b = binary.BigEndian.AppendUint64(b, uint64(first))
	b = binary.BigEndian.AppendUint32(b, uint32(count))
	return binary.BigEndian.AppendUint32(b, uint32(bodyLen))
}

// NextCommand takes the first command off b, which is a concatenation of commands. It checks every bound, but neither
// the frames nor the checksums in an append's body: CheckBody does. Errors are ErrBadCommand.
func NextCommand(b []byte) (c Command, rest []byte, err error) {
	if len(b) < CommandHeaderLen {
		return Command{}, nil, tooShort("header", CommandHeaderLen, len(b))
	}
	c.Op = Op(b[0])
	c.Ledger = ID(binary.BigEndian.Uint64(b[1:]))
	c.Epoch = Epoch(binary.BigEndian.Uint64(b[9:]))
	switch c.Op {
	case OpCreate, OpFence, OpDelete:
		return c, b[CommandHeaderLen:], nil
	case OpClose:
		if len(b) < CloseLen {
			return Command{}, nil, tooShort("close", CloseLen, len(b))
		}
		c.Last = EntryID(binary.BigEndian.Uint64(b[CommandHeaderLen:]))
		if c.Last < NoEntry {
			return Command{}, nil, fmt.Errorf("%w: close at entry %d", ErrBadCommand, c.Last)
		}
		return c, b[CloseLen:], nil
	case OpAppend:
		return nextAppend(c, b)
	}
	return Command{}, nil, fmt.Errorf("%w: unknown op %d", ErrBadCommand, b[0])
}

func nextAppend(c Command, b []byte) (Command, []byte, error) {
	if len(b) < AppendHeaderLen {
		return Command{}, nil, tooShort("append", AppendHeaderLen, len(b))
	}
	c.First = EntryID(binary.BigEndian.Uint64(b[CommandHeaderLen:]))
	count := binary.BigEndian.Uint32(b[CommandHeaderLen+8:])
	body := binary.BigEndian.Uint32(b[CommandHeaderLen+12:])
	b = b[AppendHeaderLen:]
	if uint64(body) > uint64(len(b)) {
		return Command{}, nil, tooShort("append body", int(body), len(b))
	}
	// Every entry takes at least its frame: the count is bounded by bytes that are here.
	if count == 0 || uint64(count)*EntryHeaderLen > uint64(body) {
		return Command{}, nil, fmt.Errorf("%w: append of %d entries in %d bytes", ErrBadCommand, count, body)
	}
	if c.First < 0 || c.First > math.MaxInt64-EntryID(count) {
		return Command{}, nil, fmt.Errorf("%w: append at entry %d", ErrBadCommand, c.First)
	}
	c.Count = int(count)
	c.Body = b[:body:body]
	return c, b[body:], nil
}

func tooShort(what string, want, have int) error {
	return fmt.Errorf("%w: %s needs %d bytes, have %d", ErrBadCommand, what, want, have)
}
