package metadata

import (
	"fmt"
	"unicode/utf8"
)

// Limits of what is stored. They keep a transaction well inside a Raft message, and a page of a list inside an answer.
const (
	MaxKeySize   = 4 << 10
	MaxValueSize = 4 << 20
	MaxTxnSize   = 8 << 20 // encoded
	MaxTxnParts  = 4096    // conditions, and operations
)

// Item is a key with its value. Version 0 means that the key is absent; the value is read-only.
type Item struct {
	Key     string
	Value   []byte
	Version int64
}

// Txn is a transaction: if all conditions hold, all operations are done, else none.
type Txn struct {
	Conditions []Condition
	Ops        []Operation
}

// Condition holds when the key has exactly this version. Version 0: the key is absent.
type Condition struct {
	Key     string
	Version int64
}

// OpKind says what an operation does. The values are part of the wire and of the Raft log: never renumber them.
type OpKind uint8

// The operations.
const (
	OpPut    OpKind = 1 // sets the value, creates the key if need be
	OpDelete OpKind = 2 // removes the key; of an absent key it does nothing
	OpAdd    OpKind = 3 // adds Delta to a counter, whose value is decimal text; an absent one counts as 0
)

// String returns the lower-case name.
func (k OpKind) String() string {
	switch k {
	case OpPut:
		return "put"
	case OpDelete:
		return "delete"
	case OpAdd:
		return "add"
	}
	return fmt.Sprintf("op(%d)", uint8(k))
}

// Operation is one change. A key may occur in one operation of a transaction only.
type Operation struct {
	Kind  OpKind
	Key   string
	Value []byte // put
	Delta int64  // add
}

// Outcome is what became of a transaction.
type Outcome struct {
	Err      error   // nil, or ErrBadVersion, ErrBadTxn, ErrTooLarge with the key: nothing changed
	Failed   int     // with ErrBadVersion: index of the first condition that did not hold, else -1
	Versions []int64 // for each operation: put the new version, delete 0, add the new value of the counter
	Revision uint64  // of the map after the transaction
}

// Put is the operation that sets key to value.
func Put(key string, value []byte) Operation { return Operation{Kind: OpPut, Key: key, Value: value} }

// Delete is the operation that removes key.
func Delete(key string) Operation { return Operation{Kind: OpDelete, Key: key} }

// Add is the operation that adds delta to the counter key.
func Add(key string, delta int64) Operation { return Operation{Kind: OpAdd, Key: key, Delta: delta} }

// If adds the condition that key has this version (0: is absent) and returns the transaction, for chaining.
func (t Txn) If(key string, version int64) Txn {
	t.Conditions = append(t.Conditions, Condition{Key: key, Version: version})
	return t
}

// Then adds operations and returns the transaction, for chaining.
func (t Txn) Then(ops ...Operation) Txn {
	t.Ops = append(t.Ops, ops...)
	return t
}

// Validate reports why the transaction can never be applied, whatever the versions are: ErrBadTxn or ErrTooLarge.
func (t *Txn) Validate() error {
	if len(t.Conditions) > MaxTxnParts || len(t.Ops) > MaxTxnParts {
		return fmt.Errorf("%w: %d conditions, %d operations", ErrTooLarge, len(t.Conditions), len(t.Ops))
	}
	for _, c := range t.Conditions {
		if err := validateKey(c.Key); err != nil {
			return err
		}
		if c.Version < 0 {
			return fmt.Errorf("%w: %s: condition on version %d", ErrBadTxn, c.Key, c.Version)
		}
	}
	size := 0
	seen := make(map[string]struct{}, len(t.Ops))
	for i := range t.Ops {
		op := &t.Ops[i]
		if err := op.validate(); err != nil {
			return err
		}
		if _, twice := seen[op.Key]; twice {
			return fmt.Errorf("%w: %s: two operations on one key", ErrBadTxn, op.Key)
		}
		seen[op.Key] = struct{}{}
		size += len(op.Key) + len(op.Value)
	}
	if size > MaxTxnSize {
		return fmt.Errorf("%w: %d bytes in all", ErrTooLarge, size)
	}
	return nil
}

func (op *Operation) validate() error {
	if err := validateKey(op.Key); err != nil {
		return err
	}
	switch {
	case op.Kind < OpPut || op.Kind > OpAdd:
		return fmt.Errorf("%w: %s: unknown operation %d", ErrBadTxn, op.Key, op.Kind)
	case op.Kind != OpPut && len(op.Value) != 0, op.Kind != OpAdd && op.Delta != 0:
		return fmt.Errorf("%w: %s: operand that %s does not take", ErrBadTxn, op.Key, op.Kind)
	case len(op.Value) > MaxValueSize:
		return fmt.Errorf("%w: %s: value of %d bytes", ErrTooLarge, op.Key, len(op.Value))
	}
	return nil
}

func validateKey(key string) error {
	switch {
	case len(key) > MaxKeySize:
		return fmt.Errorf("%w: key of %d bytes", ErrTooLarge, len(key))
	case len(key) < 2 || key[0] != '/':
		return fmt.Errorf("%w: key %q", ErrBadTxn, key)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: key %q is not UTF-8", ErrBadTxn, key)
	}
	return nil
}
