package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// EntryHeaderLen is the size of an entry's frame without the payload.
//
//	┌────────────┬────────────┬───────────┐
//	│ length u32 │ crc32c u32 │ payload … │   big endian; length and crc32c of the payload only
//	└────────────┴────────────┴───────────┘
//
// The same frame is used in append commands and in answers to reads, so that an entry's checksum, made by the broker
// that wrote it, comes back to the broker that reads it.
const EntryHeaderLen = 4 + 4

// castagnoliTable is read-only.
var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C of a payload.
func Checksum(payload []byte) uint32 { return crc32.Checksum(payload, castagnoliTable) }

// AppendEntry appends the framed payload to b.
func AppendEntry(b []byte, payload []byte) []byte {
	return append(AppendEntryHeader(b, payload), payload...)
}

// AppendEntryHeader appends only the frame of the payload to b, for callers that send the payload from where it lies.
func AppendEntryHeader(b []byte, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return binary.BigEndian.AppendUint32(b, Checksum(payload))
}

// FramedLen is the length of a framed payload of n bytes.
func FramedLen(n int) int { return EntryHeaderLen + n }

// NextEntry takes the first framed entry off body and checks its checksum. The payload aliases body. Errors are
// ErrUnreadable: they say that these bytes are damaged, never that the entry does not exist.
func NextEntry(body []byte) (payload, rest []byte, err error) {
	payload, crc, rest, ok := cutEntry(body)
	if !ok {
		return nil, nil, fmt.Errorf("%w: broken frame (%d bytes)", ErrUnreadable, len(body))
	}
	if got := Checksum(payload); got != crc {
		return nil, nil, fmt.Errorf("%w: checksum %08x, expected %08x", ErrUnreadable, got, crc)
	}
	return payload, rest, nil
}

// CutEntry splits the first frame off body without comparing the checksum: for tools that go on behind damage.
func CutEntry(body []byte) (payload []byte, crc uint32, rest []byte, ok bool) { return cutEntry(body) }

// cutEntry splits the first frame off body without looking at the payload.
func cutEntry(body []byte) (payload []byte, crc uint32, rest []byte, ok bool) {
	if len(body) < EntryHeaderLen {
		return nil, 0, nil, false
	}
	n := binary.BigEndian.Uint32(body)
	crc = binary.BigEndian.Uint32(body[4:])
	body = body[EntryHeaderLen:]
	if uint64(n) > uint64(len(body)) {
		return nil, 0, nil, false
	}
	return body[:n:n], crc, body[n:], true
}

// CheckBody walks the body of an append: the frames fill it exactly, there are Count of them, and every checksum is
// right. Other commands have no body. Errors are ErrBadCommand; a wrong checksum is ErrUnreadable as well.
func (c *Command) CheckBody() error {
	if c.Op != OpAppend {
		return nil
	}
	body := c.Body // c.String() below, not c: a command that escapes into fmt is an allocation for every caller
	for i := range c.Count {
		_, rest, err := NextEntry(body)
		if err != nil {
			return fmt.Errorf("%w: %s: entry %d: %w", ErrBadCommand, c.String(), c.First+EntryID(i), err)
		}
		body = rest
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %s: %d bytes after the last entry", ErrBadCommand, c.String(), len(body))
	}
	return nil
}

// Sum continues the running checksum of a ledger over a body whose first entry has the given id: what State.Checksum is
// for the entries up to State.Summed. It trusts the checksums of the entries. The error is ErrUnreadable.
func Sum(sum uint64, first EntryID, body []byte) (uint64, error) {
	for id := first; len(body) > 0; id++ {
		_, crc, rest, ok := cutEntry(body)
		if !ok {
			return 0, fmt.Errorf("%w: broken frame (%d bytes)", ErrUnreadable, len(body))
		}
		sum, body = foldEntry(sum, id, crc), rest
	}
	return sum, nil
}

// sumBody folds the (entry id, crc) pairs of a body into sum, and counts payload bytes. It trusts the checksums, which
// were checked when the command entered the group, but not the frames.
func sumBody(sum uint64, first EntryID, count int, body []byte) (newSum uint64, bytes int64, ok bool) {
	for i := range count {
		payload, crc, rest, ok := cutEntry(body)
		if !ok {
			return 0, 0, false
		}
		sum = foldEntry(sum, first+EntryID(i), crc)
		bytes += int64(len(payload))
		body = rest
	}
	return sum, bytes, len(body) == 0
}

// foldEntry is one step of the running checksum: order matters, and each bit of the input reaches all of the sum
// (the finalizer of splitmix64). It is no defence against malice, only against replicas that drift apart.
func foldEntry(sum uint64, id EntryID, crc uint32) uint64 {
	x := sum + 0x9e3779b97f4a7c15
	x ^= uint64(id)<<32 ^ uint64(id)>>32 ^ uint64(crc)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
