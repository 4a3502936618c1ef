package bookiepb

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codecName is the content subtype: the bytes are plain protobuf, so a peer with gRPC's own codec understands them.
const codecName = "proto"

// outbound is a message that lays out its own wire form, in pieces. The pieces belong to gRPC afterwards.
type outbound interface {
	marshalWire(pool mem.BufferPool) (mem.BufferSlice, error)
}

// inbound is a message that reads its own wire form. It takes references of its own to data that it keeps.
type inbound interface {
	unmarshalWire(data mem.BufferSlice, pool mem.BufferPool) error
}

// Codec returns the codec of both sides, for grpc.ForceCodecV2 and grpc.ForceServerCodecV2.
func Codec() encoding.CodecV2 { return codec{pool: &pool{}} }

type codec struct{ pool mem.BufferPool }

func (codec) Name() string { return codecName }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case outbound:
		return m.marshalWire(c.pool)
	case proto.Message:
		return c.marshalProto(m)
	}
	return nil, fmt.Errorf("bookiepb: cannot marshal %T", v)
}

func (c codec) marshalProto(m proto.Message) (mem.BufferSlice, error) {
	size := proto.Size(m)
	options := proto.MarshalOptions{UseCachedSize: true} // size was computed above, and nobody changes m meanwhile
	if mem.IsBelowBufferPoolingThreshold(size) {
		b, err := options.Marshal(m)
		if err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	buf := c.pool.Get(size)
	if _, err := options.MarshalAppend((*buf)[:0], m); err != nil {
		c.pool.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, c.pool)}, nil
}

// Unmarshal implements encoding.CodecV2. gRPC frees data after it.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case inbound:
		return m.unmarshalWire(data, c.pool)
	case *AppendRequest:
		return unmarshalAppendRequest(data, m)
	case *ReadResponse:
		return unmarshalReadResponse(data, m)
	case proto.Message:
		buf := data.MaterializeToBuffer(c.pool)
		defer buf.Free()
		return proto.Unmarshal(buf.ReadOnlyData(), m)
	}
	return fmt.Errorf("bookiepb: cannot unmarshal into %T", v)
}

// unmarshalAppendRequest lets Commands alias one fresh buffer, which then belongs to the receiver.
func unmarshalAppendRequest(data mem.BufferSlice, m *AppendRequest) error {
	m.Reset()
	return eachField(data.Materialize(), func(f field) error {
		if f.number == 1 && f.kind == protowire.BytesType {
			m.Commands = f.bytes
		}
		return nil
	})
}

// unmarshalReadResponse lets Entries alias one fresh buffer, which then belongs to the receiver.
func unmarshalReadResponse(data mem.BufferSlice, m *ReadResponse) error {
	m.Reset()
	return eachField(data.Materialize(), func(f field) error {
		switch {
		case f.number == 1 && f.kind == protowire.VarintType:
			m.First = int64(f.varint)
		case f.number == 2 && f.kind == protowire.VarintType:
			m.Count = uint32(f.varint)
		case f.number == 3 && f.kind == protowire.BytesType:
			m.Entries = f.bytes
		case f.number == 4 && f.kind == protowire.BytesType:
			m.Result = &Result{}
			return proto.Unmarshal(f.bytes, m.Result)
		}
		return nil
	})
}

// field is one field on the wire. bytes aliases the message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  []byte
}

// eachField walks the fields of a message. Unknown ones are the callback's to ignore; malformed ones are an error.
func eachField(b []byte, visit func(field) error) error {
	for len(b) > 0 {
		f, n, err := nextField(b)
		if err != nil {
			return err
		}
		if err := visit(f); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// nextField reads the field at the start of b and says how long it is.
func nextField(b []byte) (field, int, error) {
	number, kind, head := protowire.ConsumeTag(b)
	if head < 0 {
		return field{}, 0, fmt.Errorf("bookiepb: bad field tag: %w", protowire.ParseError(head))
	}
	f := field{number: number, kind: kind}
	var n int
	switch kind {
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(b[head:])
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b[head:])
	default:
		n = protowire.ConsumeFieldValue(number, kind, b[head:])
	}
	if n < 0 {
		return field{}, 0, fmt.Errorf("bookiepb: bad field %d: %w", number, protowire.ParseError(n))
	}
	return f, head + n, nil
}
