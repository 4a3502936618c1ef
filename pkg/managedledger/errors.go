package managedledger

import "errors"

var (
	// ErrLost says that a newer owner has taken the topic: nothing more will complete here.
	ErrLost = errors.New("managed ledger taken by a newer owner")
	// ErrClosed says that the managed ledger or cursor was closed, or its topic deleted, before the operation was done.
	ErrClosed = errors.New("managed ledger closed")
	// ErrBadPosition says that a position lies beyond the last confirmed entry.
	ErrBadPosition = errors.New("position beyond the last confirmed entry")
	// ErrBusy says that a cursor has a read under way already.
	ErrBusy = errors.New("cursor is reading already")
	// ErrCorrupt says that a metadata record or a cursor's state does not decode.
	ErrCorrupt = errors.New("managed ledger record corrupt")
	// ErrCursorExists says that a cursor of that name is open already.
	ErrCursorExists = errors.New("cursor is open already")
	// ErrTooManyParts says that a cursor keeps track of as many partly acknowledged batches as it may.
	ErrTooManyParts = errors.New("too many partly acknowledged batches")

	// errConflict says that a versioned put met another version: somebody else has written the record.
	errConflict  = errors.New("record changed by another owner")
	errBadAnswer = errors.New("answer holds entries that were not asked for")
)
