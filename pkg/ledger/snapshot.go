package ledger

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A snapshot, big endian:
//
//	┌─────────────┬─────────────┬───────────┬──────────────────────┬────────────┐
//	│ magic "GLS" │ version u8  │ count u64 │ count records, by id │ crc32c u32 │
//	└─────────────┴─────────────┴───────────┴──────────────────────┴────────────┘
//	record: id u64 | owner u64 | epoch u64 | last i64 | bytes i64 | checksum u64 | summed i64 | flags u8
//
// The checksum covers all before it. Equal machines have equal snapshots, byte for byte.
const (
	snapshotMagic   = "GLS"
	snapshotVersion = 1
	snapshotHeader  = len(snapshotMagic) + 1 + 8
	snapshotRecord  = 7*8 + 1

	flagFenced = 1 << 0
	flagClosed = 1 << 1
)

// AppendSnapshot appends the whole state of the machine to b.
func (m *Machine) AppendSnapshot(b []byte) []byte {
	start := len(b)
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(len(m.ledgers)))
	for id, st := range m.Ledgers() {
		b = st.AppendTo(b, id)
	}
	return binary.BigEndian.AppendUint32(b, Checksum(b[start:]))
}

// AppendTo appends all that is known of a ledger to b. Equal states are equal bytes, and of one length.
func (st *State) AppendTo(b []byte, id ID) []byte {
	for _, v := range [...]uint64{
		uint64(id), uint64(st.Owner), uint64(st.Epoch), uint64(st.Last), uint64(st.Bytes), st.Checksum, uint64(st.Summed),
	} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	var flags byte
	if st.Fenced {
		flags |= flagFenced
	}
	if st.Closed {
		flags |= flagClosed
	}
	return append(b, flags)
}

// Restore replaces the state of the machine by a snapshot. On an error, which is ErrUnreadable, nothing has changed.
func (m *Machine) Restore(b []byte) error {
	if len(b) < snapshotHeader+4 || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return fmt.Errorf("%w: not a ledger snapshot (%d bytes)", ErrUnreadable, len(b))
	}
	if v := b[len(snapshotMagic)]; v != snapshotVersion {
		return fmt.Errorf("%w: ledger snapshot version %d, this build reads %d", ErrUnreadable, v, snapshotVersion)
	}
	body, crc := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if got := Checksum(body); got != crc {
		return fmt.Errorf("%w: ledger snapshot checksum %08x, expected %08x", ErrUnreadable, got, crc)
	}
	count := binary.BigEndian.Uint64(body[len(snapshotMagic)+1:])
	body = body[snapshotHeader:]
	if uint64(len(body))/uint64(snapshotRecord) != count || len(body)%snapshotRecord != 0 {
		return fmt.Errorf("%w: ledger snapshot of %d ledgers in %d bytes", ErrUnreadable, count, len(body))
	}
	ledgers := make(map[ID]*State, count)
	for ; len(body) > 0; body = body[snapshotRecord:] {
		st := new(State) // each for itself: a deleted ledger must not pin the others
		id, ok := decodeState(body, st)
		if _, twice := ledgers[id]; !ok || twice {
			return fmt.Errorf("%w: ledger snapshot: impossible state of ledger %d", ErrUnreadable, id)
		}
		ledgers[id] = st
	}
	m.ledgers = ledgers
	return nil
}

func decodeState(b []byte, st *State) (ID, bool) {
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	*st = State{
		Owner: Epoch(at(1)), Epoch: Epoch(at(2)), Last: EntryID(at(3)), Bytes: int64(at(4)), Checksum: at(5), Summed: EntryID(at(6)),
		Fenced: b[56]&flagFenced != 0, Closed: b[56]&flagClosed != 0,
	}
	return ID(at(0)), st.fault() == "" && b[56]&^(flagFenced|flagClosed) == 0
}

// fault names the broken invariant of a single state, or is empty.
func (st *State) fault() string {
	switch {
	case st.Last < NoEntry || st.Last == math.MaxInt64 || st.Bytes < 0:
		return "counters out of range"
	case st.Epoch < st.Owner:
		return "epoch before the owner's"
	case st.Epoch > st.Owner && !st.Fenced && !st.Closed:
		return "newer epoch without fence"
	case st.Summed < st.Last, !st.Closed && st.Summed != st.Last:
		return "checksum of other entries"
	}
	return ""
}
