package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

const (
	// firstSequence makes every sequence id of a run take five bytes, so that one template serves all frames.
	firstSequence = 1 << 28
	// noKey holds the place of a key, which has as many decimal digits.
	noKey = "########"
	// stampSize is the room that the payload must have for the time of its publication.
	stampSize = 8
	// magicSize and sumSize are in front of what a section's checksum covers.
	magicSize, sumSize = 2, 4
)

// template is a SEND frame whose sequence id, key and time are replaced in place.
type template struct {
	bytes                         []byte
	sequence, section, key, stamp int // offsets
	sums                          *crc32.Table
}

// message is what differs from frame to frame.
type message struct {
	n     int           // its number, which makes the sequence id
	key   int           // less than 10^8
	stamp time.Duration // time of publication, since an epoch of the caller's
}

// newTemplate makes a frame with a payload of size bytes, at least stampSize.
func newTemplate(producer uint64, size int) (*template, error) {
	section, err := protocol.AppendSection(nil, &pulsarpb.MessageMetadata{
		ProducerName: proto.String("bench"), SequenceId: proto.Uint64(0), PublishTime: proto.Uint64(1), PartitionKey: proto.String(noKey),
	}, make([]byte, size))
	if err != nil {
		return nil, err
	}
	b, err := protocol.AppendPayloadFrame(nil, &pulsarpb.BaseCommand{
		Type: pulsarpb.BaseCommand_SEND.Enum(),
		Send: &pulsarpb.CommandSend{ProducerId: &producer, SequenceId: proto.Uint64(firstSequence), NumMessages: proto.Int32(1)},
	}, section)
	if err != nil {
		return nil, err
	}
	t := &template{
		bytes: b, section: len(b) - len(section), stamp: len(b) - size,
		sequence: bytes.Index(b, protowire.AppendVarint(nil, firstSequence)),
		key:      bytes.Index(b, []byte(noKey)),
		sums:     crc32.MakeTable(crc32.Castagnoli),
	}
	if t.sequence < 0 || t.key < 0 || size < stampSize {
		return nil, errors.New("no room for sequence id, key and time in the frame")
	}
	return t, nil
}

// appendTo appends the frame of a message.
func (t *template) appendTo(out []byte, m message) []byte {
	start := len(out)
	out = append(out, t.bytes...)
	b := out[start:]
	v := uint64(firstSequence + m.n)
	for i := range 4 {
		b[t.sequence+i] = byte(v>>(7*i)) | 0x80
	}
	b[t.sequence+4] = byte(v >> 28)
	for i, k := len(noKey)-1, m.key; i >= 0; i, k = i-1, k/10 {
		b[t.key+i] = byte('0' + k%10)
	}
	binary.BigEndian.PutUint64(b[t.stamp:], uint64(m.stamp))
	sum := crc32.Checksum(b[t.section+magicSize+sumSize:], t.sums)
	binary.BigEndian.PutUint32(b[t.section+magicSize:], sum)
	return out
}

// stampOf reads the time of publication of the message in f. section is scratch.
func stampOf(f *protocol.Frame, section *protocol.Section) (time.Duration, error) {
	if err := section.Parse(f.Payload); err != nil {
		return 0, err
	}
	if len(section.Body) < stampSize {
		return 0, fmt.Errorf("a message of %d bytes", len(section.Body))
	}
	return time.Duration(binary.BigEndian.Uint64(section.Body)), nil
}
