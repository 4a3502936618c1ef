package protocol

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

const (
	magicChecksum    = 0x0e01
	magicBrokerEntry = 0x0e02
	magicSize        = 2
)

// castagnoliTable is read-only. MakeTable returns the shared table that the assembly code recognizes.
var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// Section is a payload section taken apart; everything aliases the bytes given to Parse.
type Section struct {
	BrokerEntry []byte // encoded BrokerEntryMetadata; nil if absent
	Metadata    []byte // encoded MessageMetadata
	Body        []byte // message, or batch of messages
	HasChecksum bool
	Checksum    uint32

	covered []byte // what the checksum is over
}

// Parse takes a payload section apart, all sizes checked. The checksum is not verified yet.
func (s *Section) Parse(b []byte) error {
	*s = Section{}
	if len(b) >= magicSize+lengthSize && binary.BigEndian.Uint16(b) == magicBrokerEntry {
		size := int64(binary.BigEndian.Uint32(b[magicSize:]))
		b = b[magicSize+lengthSize:]
		if size > int64(len(b)) {
			return fmt.Errorf("%w: broker entry metadata of %d bytes, %d left", ErrBadPayload, size, len(b))
		}
		s.BrokerEntry, b = b[:size:size], b[size:]
	}
	if len(b) >= magicSize+lengthSize && binary.BigEndian.Uint16(b) == magicChecksum {
		s.HasChecksum, s.Checksum = true, binary.BigEndian.Uint32(b[magicSize:])
		b = b[magicSize+lengthSize:]
	}
	s.covered = b
	if len(b) < lengthSize {
		return fmt.Errorf("%w: no metadata size in %d bytes", ErrBadPayload, len(b))
	}
	size := int64(binary.BigEndian.Uint32(b))
	b = b[lengthSize:]
	if size > int64(len(b)) {
		return fmt.Errorf("%w: metadata of %d bytes, %d left", ErrBadPayload, size, len(b))
	}
	s.Metadata, s.Body = b[:size:size], b[size:]
	return nil
}

// Verify compares the checksum, if there is one, with the bytes.
func (s *Section) Verify() error {
	if !s.HasChecksum {
		return nil
	}
	if sum := crc32.Checksum(s.covered, castagnoliTable); sum != s.Checksum {
		return fmt.Errorf("%w: %08x announced, %08x computed", ErrChecksum, s.Checksum, sum)
	}
	return nil
}

// AppendSection appends a payload section with checksum. The broker itself only stores what clients made; this is for
// tests, tools and messages of the broker's own.
func AppendSection(b []byte, meta *pulsarpb.MessageMetadata, body []byte) ([]byte, error) {
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, magicChecksum)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // checksum, metadata size
	covered := start + magicSize + lengthSize
	b, err := proto.MarshalOptions{}.MarshalAppend(b, meta)
	if err != nil {
		return b[:start], fmt.Errorf("%w: %w", ErrBadPayload, err)
	}
	binary.BigEndian.PutUint32(b[covered:], uint32(len(b)-covered-lengthSize))
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[start+magicSize:], crc32.Checksum(b[covered:], castagnoliTable))
	return b, nil
}

// Metadata is what the broker wants to know of a MessageMetadata. Byte slices alias the input.
type Metadata struct {
	ProducerName      []byte
	PartitionKey      []byte // nil if absent
	OrderingKey       []byte // nil if absent
	UUID              []byte // of a chunked message
	SchemaVersion     []byte
	SequenceID        uint64
	HighestSequenceID uint64 // 0 if absent
	PublishTime       uint64 // ms
	EventTime         uint64 // ms; 0 if absent
	TxnLeast, TxnMost uint64
	DeliverAt         int64 // ms; 0 if absent
	Compression       pulsarpb.CompressionType
	UncompressedSize  uint32
	NumMessages       int32 // 1 for a message that is not a batch
	Chunks, ChunkID   int32 // Chunks 0: not chunked
	Marker            int32
	Batch             bool // num_messages_in_batch is there
	IsMarker          bool
	KeyBase64         bool // PartitionKey is Base64 text
	InTxn             bool
	Encrypted         bool
}

// Parse reads the fields of interest. Properties and encryption keys are skipped without a look inside.
func (m *Metadata) Parse(b []byte) error {
	*m = Metadata{NumMessages: 1}
	var req, txn required
	f := fields{b: b}
	for f.next() {
		switch f.num {
		case 1:
			req.saw(0, f.setBytes(&m.ProducerName))
		case 2:
			req.saw(1, f.setU64(&m.SequenceID))
		case 3:
			req.saw(2, f.setU64(&m.PublishTime))
		case 22:
			txn.saw(0, f.setU64(&m.TxnLeast))
		case 23:
			txn.saw(1, f.setU64(&m.TxnMost))
		default:
			m.setOptional(&f)
		}
	}
	if f.bad || req != 0b111 {
		return fmt.Errorf("%w: message metadata of %d bytes", ErrBadPayload, len(b))
	}
	m.InTxn = txn == 0b11
	return nil
}

//
//nolint:revive // one case for each field of the message
func (m *Metadata) setOptional(f *fields) {
	switch f.num {
	case 6:
		f.setBytes(&m.PartitionKey)
	case 8:
		if v, ok := f.varint(); ok {
			m.Compression = pulsarpb.CompressionType(int32(v))
		}
	case 9:
		f.setU32(&m.UncompressedSize)
	case 11:
		m.Batch = f.setI32(&m.NumMessages) || m.Batch
	case 12:
		f.setU64(&m.EventTime)
	case 13:
		m.Encrypted = true
	case 16:
		f.setBytes(&m.SchemaVersion)
	case 17:
		f.setBool(&m.KeyBase64)
	case 18:
		f.setBytes(&m.OrderingKey)
	case 19:
		f.setI64(&m.DeliverAt)
	case 20:
		m.IsMarker = f.setI32(&m.Marker) || m.IsMarker
	case 24:
		f.setU64(&m.HighestSequenceID)
	case 26:
		f.setBytes(&m.UUID)
	case 27:
		f.setI32(&m.Chunks)
	case 29:
		f.setI32(&m.ChunkID)
	}
}
