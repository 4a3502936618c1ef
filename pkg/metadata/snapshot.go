package metadata

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A snapshot; numbers are varints unless said:
//
//	┌─────────────┬─────────────┬──────────┬───────┬──────────────────────────────────────┬────────────┐
//	│ magic "GMS" │ version u8  │ revision │ count │ count × (key, value, version), sorted │ crc32c u32 │
//	└─────────────┴─────────────┴──────────┴───────┴──────────────────────────────────────┴────────────┘
//
// The checksum covers all before it. Equal machines have equal snapshots, byte for byte.
const (
	snapshotMagic   = "GMS"
	snapshotVersion = 1
)

// castagnoliTable is read-only.
var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// AppendSnapshot appends the whole state of the machine to b.
func (m *Machine) AppendSnapshot(b []byte) []byte {
	start := len(b)
	b = append(b, snapshotMagic...)
	b = append(b, snapshotVersion)
	b = binary.AppendUvarint(b, m.revision)
	b = binary.AppendUvarint(b, uint64(m.items.Len()))
	m.items.Ascend(func(it Item) bool {
		b = appendString(b, it.Key)
		b = binary.AppendUvarint(b, uint64(len(it.Value)))
		b = append(b, it.Value...)
		b = binary.AppendUvarint(b, uint64(it.Version))
		return true
	})
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoliTable))
}

// Restore replaces the state of the machine by a snapshot. On an error, which is ErrBadSnapshot, nothing has changed.
func (m *Machine) Restore(b []byte) error {
	const head = len(snapshotMagic) + 1
	if len(b) < head+4 || string(b[:len(snapshotMagic)]) != snapshotMagic {
		return fmt.Errorf("%w: %d bytes of something else", ErrBadSnapshot, len(b))
	}
	if v := b[head-1]; v != snapshotVersion {
		return fmt.Errorf("%w: version %d, this build reads %d", ErrBadSnapshot, v, snapshotVersion)
	}
	body, crc := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoliTable); got != crc {
		return fmt.Errorf("%w: checksum %08x, expected %08x", ErrBadSnapshot, got, crc)
	}
	restored := NewMachine()
	d := decoder{b: body[head:]}
	restored.revision = d.uvarint()
	count, last := d.uvarint(), ""
	for ; count > 0 && !d.bad; count-- {
		it := Item{Key: d.string(), Value: append([]byte{}, d.bytes()...), Version: int64(d.uvarint())}
		if it.Key <= last || it.Version <= 0 || uint64(it.Version) > restored.revision {
			return fmt.Errorf("%w: impossible item %q", ErrBadSnapshot, it.Key)
		}
		restored.items.ReplaceOrInsert(it)
		last = it.Key
	}
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("%w: truncated, or bytes after the end", ErrBadSnapshot)
	}
	*m = *restored
	return nil
}
