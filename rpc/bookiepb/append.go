package bookiepb

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// RefThreshold is the payload size from which a reference to it goes to gRPC instead of a copy. Below it a copy is
// cheaper than the bookkeeping (BenchmarkAppendBody).
const RefThreshold = 4096

// bodyHead is room in front of the commands for the field's tag and length.
const bodyHead = 1 + 5

// minChunk keeps small bodies above the size below which gRPC does not reuse buffers.
const minChunk = 2048

// AppendBody is an outgoing AppendRequest. On the wire it is the same message; in memory it is one pooled buffer with
// the command heads and small entries, and references to the large payloads between them:
//
//	chunk  │ tag len │ head │ entry │ entry │ len crc │        │ len crc │ …
//	refs                                              │ payload│         │ payload …
//
// Use: Begin, then Tail/SetTail and Ref in the order of the bytes, then pass it to SendMsg, once; or Discard.
type AppendBody struct {
	pool  mem.BufferPool
	chunk *[]byte
	refs  []bodyRef
	size  int // bytes in refs
	lease *lease
}

// bodyRef is a payload that follows the first `after` bytes of the chunk.
type bodyRef struct {
	after int
	data  []byte
}

// Begin starts a body whose bytes that are not given by Ref are at most inline.
func (b *AppendBody) Begin(inline int) {
	if b.pool == nil {
		b.pool = &pool{}
	}
	b.Discard()
	b.chunk = b.pool.Get(max(bodyHead+inline, minChunk))
	*b.chunk = (*b.chunk)[:bodyHead]
}

// Tail returns the buffer to append to. Give the result back with SetTail before any other call.
func (b *AppendBody) Tail() []byte { return *b.chunk }

// SetTail takes what Tail returned, grown.
func (b *AppendBody) SetTail(p []byte) { *b.chunk = p }

// Ref adds data without copying it. The owner, when there is one, is retained until gRPC is done with it.
func (b *AppendBody) Ref(data []byte, owner Owner) {
	if len(data) == 0 {
		return
	}
	b.refs = append(b.refs, bodyRef{after: len(*b.chunk), data: data})
	b.size += len(data)
	if owner != nil {
		if b.lease == nil {
			b.lease = newLease()
		}
		b.lease.hold(owner)
	}
}

// Len returns the number of bytes of commands so far.
func (b *AppendBody) Len() int {
	if b.chunk == nil {
		return 0
	}
	return len(*b.chunk) - bodyHead + b.size
}

// Discard drops a body that was begun and not sent.
func (b *AppendBody) Discard() {
	if b.chunk != nil {
		b.pool.Put(b.chunk)
	}
	if b.lease != nil {
		b.lease.release()
	}
	b.clear()
}

func (b *AppendBody) clear() {
	clear(b.refs)
	b.chunk, b.refs, b.size, b.lease = nil, b.refs[:0], 0, nil
}

// marshalWire implements outbound. It leaves b empty.
func (b *AppendBody) marshalWire(mem.BufferPool) (mem.BufferSlice, error) {
	if b.chunk == nil {
		return nil, fmt.Errorf("bookiepb: AppendBody sent without Begin, or twice")
	}
	defer b.clear()
	var head [bodyHead]byte
	h := protowire.AppendTag(head[:0], 1, protowire.BytesType)
	h = protowire.AppendVarint(h, uint64(b.Len()))
	start := bodyHead - len(h)
	if start < 0 {
		return nil, fmt.Errorf("bookiepb: AppendBody of %d bytes", b.Len())
	}
	copy((*b.chunk)[start:], h)

	whole := mem.NewBuffer(b.chunk, b.pool)
	defer whole.Free()
	out := make(mem.BufferSlice, 0, 2*len(b.refs)+1)
	var keep mem.BufferPool // nil: ordinary memory, freeing does nothing
	if b.lease != nil {
		b.lease.seal(len(b.refs))
		keep = b.lease
	}
	for i := range b.refs {
		r := &b.refs[i]
		if r.after > start {
			out = append(out, whole.Slice(start, r.after))
			start = r.after
		}
		out = append(out, refBuffer(r.data, keep))
	}
	if end := len(*b.chunk); end > start {
		out = append(out, whole.Slice(start, end))
	}
	return out, nil
}

// refBuffer wraps data that stays where it is. Every buffer calls pool.Put once when gRPC has freed it, the small ones
// at once, because gRPC does not count references to them.
func refBuffer(data []byte, pool mem.BufferPool) mem.Buffer {
	if pool != nil && mem.IsBelowBufferPoolingThreshold(cap(data)) {
		data = append([]byte(nil), data...)
		pool.Put(&data)
		return mem.SliceBuffer(data)
	}
	return mem.NewBuffer(&data, pool)
}

// AppendResults is a received AppendResponse. Results is used again by the next RecvMsg into it.
type AppendResults struct {
	Results []PlainResult
}

// PlainResult is Result without the message machinery. Leader and Message are empty in the good case, so that a
// result costs no allocation.
type PlainResult struct {
	Code    Code
	Ledger  uint64
	Last    int64
	Epoch   uint64
	Leader  string
	Message string
}

func (m *AppendResults) unmarshalWire(data mem.BufferSlice, pool mem.BufferPool) error {
	buf := data.MaterializeToBuffer(pool)
	defer buf.Free()
	clear(m.Results)
	m.Results = m.Results[:0]
	b := buf.ReadOnlyData()
	for len(b) > 0 {
		f, n, err := nextField(b)
		if err != nil {
			return err
		}
		if f.number == 1 && f.kind == protowire.BytesType {
			m.Results = append(m.Results, PlainResult{})
			if err := m.Results[len(m.Results)-1].unmarshal(f.bytes); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

func (r *PlainResult) unmarshal(b []byte) error {
	for len(b) > 0 {
		f, n, err := nextField(b)
		if err != nil {
			return err
		}
		b = b[n:]
		switch {
		case f.kind == protowire.VarintType && f.number == 1:
			r.Code = Code(int32(f.varint))
		case f.kind == protowire.VarintType && f.number == 2:
			r.Ledger = f.varint
		case f.kind == protowire.VarintType && f.number == 3:
			r.Last = int64(f.varint)
		case f.kind == protowire.VarintType && f.number == 4:
			r.Epoch = f.varint
		case f.kind == protowire.BytesType && f.number == 5:
			r.Leader = string(f.bytes)
		case f.kind == protowire.BytesType && f.number == 6:
			r.Message = string(f.bytes)
		}
	}
	return nil
}

// Plain returns r in the form that append streams use.
func (r *Result) Plain() PlainResult {
	return PlainResult{Code: r.GetCode(), Ledger: r.GetLedger(), Last: r.GetLast(), Epoch: r.GetEpoch(),
		Leader: r.GetLeader(), Message: r.GetMessage()}
}
