package metadata

import "errors"

// Outcomes of a transaction. They are wrapped with the key: compare with errors.Is. A transaction that fails changes
// nothing.
var (
	// ErrBadVersion: a condition did not hold.
	ErrBadVersion = errors.New("key has another version")
	// ErrBadTxn: the transaction makes no sense and never will.
	ErrBadTxn = errors.New("malformed transaction")
	// ErrTooLarge: a key, a value or the transaction exceeds its limit.
	ErrTooLarge = errors.New("transaction too large")
	// ErrBadSnapshot: the bytes are no snapshot that this build can read.
	ErrBadSnapshot = errors.New("unreadable metadata snapshot")
)
