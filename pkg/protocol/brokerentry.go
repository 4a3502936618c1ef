package protocol

import "encoding/binary"

// BrokerEntry is what a broker puts in front of an entry that it stores: when that was, and how many messages the topic
// had before the last one of the entry. A field that is 0 and not said to be there is left out.
type BrokerEntry struct {
	Timestamp    uint64 // ms
	Index        uint64
	HasTimestamp bool
	HasIndex     bool
}

// BrokerEntrySize is the most that AppendBrokerEntry appends.
const BrokerEntrySize = magicSize + lengthSize + 2*(1+binary.MaxVarintLen64)

// AppendBrokerEntry appends e in the form in which it stands in front of a payload section. The section's checksum does
// not cover it.
func AppendBrokerEntry(b []byte, e BrokerEntry) []byte {
	b = binary.BigEndian.AppendUint16(b, magicBrokerEntry)
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	if e.HasTimestamp {
		b = binary.AppendUvarint(append(b, 1<<3), e.Timestamp)
	}
	if e.HasIndex {
		b = binary.AppendUvarint(append(b, 2<<3), e.Index)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-lengthSize))
	return b
}

// Parse reads Section.BrokerEntry. Fields that are not known are skipped.
func (e *BrokerEntry) Parse(b []byte) error {
	*e = BrokerEntry{}
	f := fields{b: b}
	for f.next() {
		switch f.num {
		case 1:
			e.HasTimestamp = f.setU64(&e.Timestamp) || e.HasTimestamp
		case 2:
			e.HasIndex = f.setU64(&e.Index) || e.HasIndex
		}
	}
	if f.bad {
		return ErrBadPayload
	}
	return nil
}

// CutBrokerEntry returns the entry without what the broker has put in front: as its producer sent it.
func CutBrokerEntry(entry []byte) []byte {
	if len(entry) < magicSize+lengthSize || binary.BigEndian.Uint16(entry) != magicBrokerEntry {
		return entry
	}
	size := uint64(binary.BigEndian.Uint32(entry[magicSize:]))
	if size > uint64(len(entry)-magicSize-lengthSize) {
		return entry
	}
	return entry[magicSize+lengthSize+size:]
}
