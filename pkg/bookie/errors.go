package bookie

import (
	"errors"
	"fmt"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// Reasons why a bookie refuses to start or stops. Compare with errors.Is; each is wrapped with what to do about it.
var (
	// ErrNotInitialized: the data directory holds no cluster.json.
	ErrNotInitialized = errors.New("data directory is not initialized")
	// ErrExistingState: Init found something in the data directory.
	ErrExistingState = errors.New("data directory is not empty")
	// ErrWrongCluster: the data directory, a peer or a caller belongs to another cluster.
	ErrWrongCluster = errors.New("wrong cluster")
	// ErrIdentity: the cluster knows this bookie id with another instance, so the disk was wiped or swapped.
	ErrIdentity = errors.New("bookie id is taken by another instance")
	// ErrDamaged: a replica's log cannot be read or has lost what it acknowledged. Only that replica stops.
	ErrDamaged = errors.New("replica damaged")
	// ErrStalled: a leader took appends and applied none of them for too long.
	ErrStalled = errors.New("leader applies nothing")
	// ErrStore: a write to stable storage failed or did not return in time. The process must not go on.
	ErrStore = errors.New("stable storage failed")
)

// errUnavailable is the answer of a link without a usable connection.
var errUnavailable = errors.New("peer unavailable")

// errStranger: a peer that the cluster does not know, or does not know yet.
var errStranger = errors.New("unknown bookie")

// errStopped is the answer of a group that has stopped.
var errStopped = errors.New("group stopped")

// codeOf maps the sentinels of a command's outcome to the code on the wire.
//
// Order matters for an error that wraps two of them: a command with a wrong checksum is malformed and unreadable, and
// what the sender has to know is that it is refused for good.
func codeOf(err error) bookiepb.Code {
	switch {
	case err == nil:
		return bookiepb.Code_OK
	case errors.Is(err, ledger.ErrNotNext):
		return bookiepb.Code_NOT_NEXT
	case errors.Is(err, ledger.ErrFenced):
		return bookiepb.Code_FENCED
	case errors.Is(err, ledger.ErrClosed):
		return bookiepb.Code_CLOSED
	case errors.Is(err, ledger.ErrNoLedger):
		return bookiepb.Code_NO_LEDGER
	case errors.Is(err, ledger.ErrExists):
		return bookiepb.Code_EXISTS
	}
	return codeOfService(err)
}

// codeOfService maps the outcomes that the shell produces, not the machine.
func codeOfService(err error) bookiepb.Code {
	switch {
	case errors.Is(err, ledger.ErrBadCommand), errors.Is(err, metadata.ErrBadTxn), errors.Is(err, metadata.ErrTooLarge):
		return bookiepb.Code_BAD_REQUEST
	case errors.Is(err, ledger.ErrNoEntry):
		return bookiepb.Code_NO_ENTRY
	case errors.Is(err, ledger.ErrUnreadable):
		return bookiepb.Code_UNREADABLE
	case errors.Is(err, ledger.ErrBehind):
		return bookiepb.Code_BEHIND
	case errors.Is(err, ledger.ErrNotLeader):
		return bookiepb.Code_NOT_LEADER
	case errors.Is(err, ledger.ErrNoGroup):
		return bookiepb.Code_NO_GROUP
	case errors.Is(err, ledger.ErrOverloaded):
		return bookiepb.Code_OVERLOADED
	case errors.Is(err, ledger.ErrReadOnly), errors.Is(err, ledger.ErrShutdown):
		return bookiepb.Code_READ_ONLY
	case errors.Is(err, metadata.ErrBadVersion):
		return bookiepb.Code_BAD_VERSION
	}
	return bookiepb.Code_UNKNOWN
}

// failure makes a wire result of an error that concerns no ledger's state. Last is set to "empty" so that nobody
// takes a zero for an entry.
func failure(err error, leader string) *bookiepb.Result {
	return &bookiepb.Result{Code: codeOf(err), Last: int64(ledger.NoEntry), Leader: leader, Message: err.Error()}
}

// terminal reports that a stream cannot go on after this code.
func terminal(c bookiepb.Code) bool {
	return c == bookiepb.Code_NOT_LEADER || c == bookiepb.Code_NO_GROUP || c == bookiepb.Code_BAD_REQUEST
}

// notInitialized says what to do about a data directory without cluster.json.
func notInitialized(dir string) error {
	return fmt.Errorf("%w: %s has no %s; run \"bookied init\" once", ErrNotInitialized, dir, clusterFile)
}
