package protocol

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// consumeTag is protowire.ConsumeTag with the limit on field numbers that the generated code has.
func consumeTag(b []byte) (protowire.Number, protowire.Type, int) {
	num, wt, n := protowire.ConsumeTag(b)
	if num > protowire.MaxValidNumber {
		return 0, 0, -1
	}
	return num, wt, n
}

func badCommand(what string) error { return fmt.Errorf("%w: %s", ErrBadCommand, what) }

// fields walks over the fields of one message. It holds the current field between calls to next:
//
//	for f := (fields{b: b}); f.next(); {
//		switch f.num { … f.varint() … }
//	}
//
// A field whose wire type is not the one asked for reads as absent (ok is false), as in the generated code.
type fields struct {
	b   []byte // what follows the current field
	num protowire.Number
	wt  protowire.Type
	val uint64 // varint, fixed32, fixed64
	raw []byte // bytes
	bad bool
}

// next steps to the next field. It returns false at the end, and at the first malformed field, which sets bad.
func (f *fields) next() bool {
	if len(f.b) == 0 {
		return false
	}
	num, wt, n := consumeTag(f.b)
	if n < 0 {
		f.bad = true
		return false
	}
	f.num, f.wt, f.b = num, wt, f.b[n:]
	switch wt {
	case protowire.VarintType:
		f.val, n = protowire.ConsumeVarint(f.b)
	case protowire.BytesType:
		f.raw, n = protowire.ConsumeBytes(f.b)
	default:
		n = protowire.ConsumeFieldValue(num, wt, f.b)
	}
	if n < 0 {
		f.bad = true
		return false
	}
	f.b = f.b[n:]
	return true
}

func (f *fields) varint() (uint64, bool) { return f.val, f.wt == protowire.VarintType }
func (f *fields) bytes() ([]byte, bool)  { return f.raw, f.wt == protowire.BytesType }

// setU64 and its siblings store the current field in *p and report whether they did.
func (f *fields) setU64(p *uint64) bool {
	if f.wt != protowire.VarintType {
		return false
	}
	*p = f.val
	return true
}

func (f *fields) setU32(p *uint32) bool {
	if f.wt != protowire.VarintType {
		return false
	}
	*p = uint32(f.val)
	return true
}

func (f *fields) setI64(p *int64) bool {
	if f.wt != protowire.VarintType {
		return false
	}
	*p = int64(f.val)
	return true
}

func (f *fields) setI32(p *int32) bool {
	if f.wt != protowire.VarintType {
		return false
	}
	*p = int32(f.val)
	return true
}

func (f *fields) setBool(p *bool) bool {
	if f.wt != protowire.VarintType {
		return false
	}
	*p = f.val != 0
	return true
}

func (f *fields) setBytes(p *[]byte) bool {
	if f.wt != protowire.BytesType {
		return false
	}
	*p = f.raw[:len(f.raw):len(f.raw)]
	return true
}
