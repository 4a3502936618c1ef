package ledgers

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"geminga/pkg/ledger"
)

// headSize is that of the part of an entry that says where it belongs.
const headSize = 40

// stamp is what an entry's bytes are made of. Whoever knows it knows every byte.
type stamp struct {
	ledger  ledger.ID
	entry   ledger.EntryID
	writer  uint64
	attempt uint64 // the writer's ledgers, counted: what is sent again in another ledger has other bytes
	seq     uint64 // of the writer's entries, over all its ledgers
	bulk    int    // bytes more than usual
}

// content makes the entry: the stamp, and then bytes that follow from it. Most are small, some are not.
func (s stamp) content() []byte {
	x := mix(uint64(s.ledger)<<32 ^ uint64(s.entry)<<16 ^ s.writer<<8 ^ s.attempt ^ s.seq<<24)
	size := headSize + s.bulk + int(x%300)
	switch {
	case x>>32%512 == 0:
		size += 64 << 10
	case x>>32%64 == 0:
		size += 8 << 10
	}
	out := make([]byte, 0, size+8)
	for _, v := range []uint64{uint64(s.ledger), uint64(s.entry), s.writer, s.attempt, s.seq} {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	for len(out) < size {
		x = mix(x)
		out = binary.BigEndian.AppendUint64(out, x)
	}
	return out[:size]
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// compare says what is wrong with an entry that was read.
func (s stamp) compare(got []byte) error {
	want := s.content()
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) < headSize {
		return fmt.Errorf("entry %d of ledger %d has %d bytes, %d were written", s.entry, s.ledger, len(got), len(want))
	}
	other := stamp{bulk: s.bulk}
	other.ledger = ledger.ID(binary.BigEndian.Uint64(got))
	other.entry = ledger.EntryID(binary.BigEndian.Uint64(got[8:]))
	other.writer, other.attempt, other.seq = binary.BigEndian.Uint64(got[16:]), binary.BigEndian.Uint64(got[24:]), binary.BigEndian.Uint64(got[32:])
	if other != s {
		return fmt.Errorf("entry %d of ledger %d is %+v, %+v was written", s.entry, s.ledger, other, s)
	}
	return fmt.Errorf("entry %d of ledger %d: %d bytes that are not the %d that were written", s.entry, s.ledger, len(got), len(want))
}
