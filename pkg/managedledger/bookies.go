package managedledger

import (
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// Bookies is what a managed ledger needs from the storage. All methods may be called from any goroutine and return at
// once; every done is called exactly once, on another goroutine, never inline. Implementations retry what can be retried;
// an outcome that stays unknown is ledger.ErrUnknown.
type Bookies interface {
	// Create makes an empty ledger with a fresh id in a healthy group: not in avoid, unless there is no other
	// (avoid 0 = none).
	Create(epoch ledger.Epoch, avoid ledger.GroupID, done func(ledger.Ref, error))
	// Append queues entries [first, first+len(entries)) behind earlier appends to ref. It takes references of its own to
	// the payloads and releases them when it needs them no more; the slice is the caller's again after the call. Progress
	// goes to w.
	Append(ref ledger.Ref, epoch ledger.Epoch, first ledger.EntryID, entries []ledger.Payload, w ledger.Waiter)
	// Abandon drops queued and unanswered appends of ref: their waiters are not called any more, save for calls that are
	// already under way.
	Abandon(ref ledger.Ref)
	// Fence raises the epoch and returns the last entry.
	Fence(ref ledger.Ref, epoch ledger.Epoch, done func(ledger.EntryID, error))
	// Close makes last the last entry for ever. It is retried inside until answered or shut down.
	Close(ref ledger.Ref, last ledger.EntryID, done func(error))
	// Delete removes the ledger; one that does not exist is deleted.
	Delete(ref ledger.Ref, done func(error))
	// Read returns entries from first on: at least one, at most max, none beyond confirmed. Their payloads belong to
	// the receiver, who releases them.
	Read(ref ledger.Ref, first, confirmed ledger.EntryID, max ledger.Limits, done func([]ledger.Entry, error))
}

// Store is the metadata, asynchronous. The rules for done are those of Bookies.
type Store interface {
	// Get returns the item; Version 0 means absent.
	Get(key string, done func(metadata.Item, error))
	// List returns all items whose key starts with prefix, in order of key.
	List(prefix string, done func([]metadata.Item, error))
	// Commit applies a transaction. A failed condition is Outcome.Err = metadata.ErrBadVersion with a nil error; an error
	// that is not nil leaves open whether the transaction has happened, or still will: the caller re-reads.
	Commit(txn metadata.Txn, done func(metadata.Outcome, error))
}
