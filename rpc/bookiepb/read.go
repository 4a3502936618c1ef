package bookiepb

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// ReadBody is an outgoing ReadResponse whose entries are not copied. Entries must not change until gRPC has sent them:
// give them an Owner that counts the references, or leave them to the garbage collector.
type ReadBody struct {
	First   int64
	Count   uint32
	Entries []byte
	Owner   Owner // retained while gRPC holds the entries; nil: ordinary memory
	Result  *Result
}

// marshalWire implements outbound.
func (m *ReadBody) marshalWire(mem.BufferPool) (mem.BufferSlice, error) {
	head := make([]byte, 0, 64)
	if m.First != 0 {
		head = protowire.AppendTag(head, 1, protowire.VarintType)
		head = protowire.AppendVarint(head, uint64(m.First))
	}
	if m.Count != 0 {
		head = protowire.AppendTag(head, 2, protowire.VarintType)
		head = protowire.AppendVarint(head, uint64(m.Count))
	}
	if m.Result != nil { // fields may come in any order
		r, err := proto.Marshal(m.Result)
		if err != nil {
			return nil, err
		}
		head = protowire.AppendTag(head, 4, protowire.BytesType)
		head = protowire.AppendBytes(head, r)
	}
	if len(m.Entries) == 0 {
		return mem.BufferSlice{mem.SliceBuffer(head)}, nil
	}
	head = protowire.AppendTag(head, 3, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(m.Entries)))
	var keep mem.BufferPool
	if m.Owner != nil {
		l := newLease()
		l.hold(m.Owner)
		l.seal(1)
		keep = l
	}
	return mem.BufferSlice{mem.SliceBuffer(head), refBuffer(m.Entries, keep)}, nil
}
