package metadata

import (
	"encoding/binary"
	"fmt"
)

// An encoded transaction; numbers are varints unless said:
//
//	┌────────────┬──────────┬─────────────────────────┬──────────┬──────────────────────────────────────────┐
//	│ version u8 │ count    │ conditions:             │ count    │ operations:                              │
//	│     1      │          │   key, version (signed) │          │   kind u8, key, then put: value          │
//	│            │          │                         │          │                      add: delta (signed) │
//	└────────────┴──────────┴─────────────────────────┴──────────┴──────────────────────────────────────────┘
//	key, value: length, bytes
const txnVersion = 1

// Encode returns the encoding of t, as it travels to the bookies and in the Raft log.
func (t *Txn) Encode() []byte {
	n := 16
	for i := range t.Conditions {
		n += len(t.Conditions[i].Key) + 16
	}
	for i := range t.Ops {
		n += len(t.Ops[i].Key) + len(t.Ops[i].Value) + 16
	}
	b := append(make([]byte, 0, n), txnVersion)
	b = binary.AppendUvarint(b, uint64(len(t.Conditions)))
	for i := range t.Conditions {
		b = appendString(b, t.Conditions[i].Key)
		b = binary.AppendVarint(b, t.Conditions[i].Version)
	}
	b = binary.AppendUvarint(b, uint64(len(t.Ops)))
	for i := range t.Ops {
		op := &t.Ops[i]
		b = append(b, byte(op.Kind))
		b = appendString(b, op.Key)
		switch op.Kind {
		case OpPut:
			b = binary.AppendUvarint(b, uint64(len(op.Value)))
			b = append(b, op.Value...)
		case OpAdd:
			b = binary.AppendVarint(b, op.Delta)
		}
	}
	return b
}

// DecodeTxn reads what Encode wrote, and validates it. Values are copies. Errors are ErrBadTxn or ErrTooLarge.
func DecodeTxn(b []byte) (Txn, error) {
	if len(b) > MaxTxnSize+MaxTxnSize/2 {
		return Txn{}, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(b))
	}
	d := decoder{b: b}
	if v := d.byte(); v != txnVersion {
		return Txn{}, fmt.Errorf("%w: version %d, this build reads %d", ErrBadTxn, v, txnVersion)
	}
	var t Txn
	if n := d.count(2); n > 0 {
		t.Conditions = make([]Condition, n)
	}
	for i := range t.Conditions {
		t.Conditions[i] = Condition{Key: d.string(), Version: d.varint()}
	}
	if n := d.count(2); n > 0 {
		t.Ops = make([]Operation, n)
	}
	for i := range t.Ops {
		op := &t.Ops[i]
		op.Kind, op.Key = OpKind(d.byte()), d.string()
		switch op.Kind {
		case OpPut:
			op.Value = append([]byte{}, d.bytes()...)
		case OpAdd:
			op.Delta = d.varint()
		}
	}
	if d.bad || len(d.b) != 0 {
		return Txn{}, fmt.Errorf("%w: truncated, or bytes after the end", ErrBadTxn)
	}
	if err := t.Validate(); err != nil {
		return Txn{}, err
	}
	return t, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder reads from b; once something does not fit, bad is set and everything reads as zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() {
	d.bad, d.b = true, nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the number of things that take at least size bytes each: more than fit in what is here is an error.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) || n > MaxTxnParts {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }
