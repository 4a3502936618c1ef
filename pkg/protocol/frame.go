package protocol

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"geminga/rpc/pulsarpb"
)

const (
	// Version is the newest protocol version that we speak.
	Version = 20
	// DefaultMaxMessageSize is what clients assume until CONNECTED tells them otherwise.
	DefaultMaxMessageSize = 5 << 20
	// FramePadding is the room a frame may take beyond the largest message, for command and metadata.
	FramePadding = 10 << 10

	lengthSize = 4 // of each u32 in a frame
)

// MaxFrameSize is the largest value of a frame's total field where messages may have up to maxMessageSize bytes.
func MaxFrameSize(maxMessageSize int) int { return maxMessageSize + FramePadding }

// Type names a command; the value is both BaseCommand.type and the number of the field that holds the command.
type Type = pulsarpb.BaseCommand_Type

// ServerError is the code in an error answer.
type ServerError = pulsarpb.ServerError

// FrameSize says how many bytes the first frame in data takes, its length field included. It is 0 as long as fewer than
// four bytes are there; the frame is complete when len(data) >= FrameSize. maxFrame bounds the total field.
func FrameSize(data []byte, maxFrame int) (int, error) {
	if len(data) < lengthSize {
		return 0, nil
	}
	total := binary.BigEndian.Uint32(data)
	if uint64(total) > uint64(maxFrame) {
		return 0, fmt.Errorf("%w: %d bytes announced, at most %d", ErrFrameTooLarge, total, maxFrame)
	}
	if total < lengthSize {
		return 0, fmt.Errorf("%w: total size %d", ErrBadFrame, total)
	}
	return lengthSize + int(total), nil
}

// Frame is one frame taken apart. Everything aliases the bytes given to Parse.
type Frame struct {
	Type    Type
	Command []byte // encoded BaseCommand
	Body    []byte // encoded command, the field of BaseCommand that Type names; nil if absent
	Payload []byte // payload section; empty for most commands
}

// Parse takes apart one complete frame, length field included. The command's own fields are not looked at yet.
func (f *Frame) Parse(b []byte) error {
	*f = Frame{}
	if len(b) < 2*lengthSize || int64(binary.BigEndian.Uint32(b)) != int64(len(b)-lengthSize) {
		return fmt.Errorf("%w: %d bytes", ErrBadFrame, len(b))
	}
	cmdSize := int64(binary.BigEndian.Uint32(b[lengthSize:]))
	rest := b[2*lengthSize:]
	if cmdSize > int64(len(rest)) {
		return fmt.Errorf("%w: command of %d bytes in a frame with %d", ErrBadFrame, cmdSize, len(rest))
	}
	f.Command, f.Payload = rest[:cmdSize:cmdSize], rest[cmdSize:]
	return f.parseBase()
}

// parseBase finds the type and the one field that goes with it. Fields of other commands are skipped.
//
//nolint:revive // one case for each field of the message
func (f *Frame) parseBase() error {
	const typeField = 1
	typed := false
	for b := f.Command; len(b) > 0; {
		num, wt, n := consumeTag(b)
		if n < 0 {
			return badCommand("BaseCommand")
		}
		b = b[n:]
		switch {
		case num == typeField && wt == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return badCommand("BaseCommand")
			}
			f.Type, typed, b = Type(int32(v)), true, b[n:]
		case typed && num == protowire.Number(f.Type) && wt == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return badCommand("BaseCommand")
			}
			if f.Body != nil {
				return fmt.Errorf("%w: %v occurs twice", ErrBadCommand, f.Type)
			}
			f.Body, b = v[:len(v):len(v)], b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, wt, b)
			if n < 0 {
				return badCommand("BaseCommand")
			}
			b = b[n:]
		}
	}
	if !typed {
		return fmt.Errorf("%w: no type", ErrBadCommand)
	}
	if f.Body == nil && f.Type != pulsarpb.BaseCommand_PING && f.Type != pulsarpb.BaseCommand_PONG {
		return fmt.Errorf("%w: %v without content", ErrBadCommand, f.Type)
	}
	return nil
}

// Unmarshal decodes the command with the generated code. Nothing in cmd aliases the frame.
func (f *Frame) Unmarshal(cmd *pulsarpb.BaseCommand) error {
	if err := proto.Unmarshal(f.Command, cmd); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrBadCommand, f.Type, err)
	}
	return nil
}

// Foreign is another protocol that is often spoken to the wrong port.
type Foreign string

// What Sniff can tell.
const (
	NotForeign Foreign = ""
	TLS        Foreign = "TLS handshake"
	HTTP       Foreign = "HTTP request"
)

// Sniff tells whether the first bytes of a connection belong to another protocol. None of them can be the start of a
// frame of less than 200 MB.
func Sniff(data []byte) Foreign {
	if len(data) < lengthSize {
		return NotForeign
	}
	if data[0] == 0x16 && data[1] == 0x03 {
		return TLS
	}
	switch string(data[:lengthSize]) {
	case "GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI ":
		return HTTP
	}
	return NotForeign
}
