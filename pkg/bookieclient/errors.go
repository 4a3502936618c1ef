package bookieclient

import (
	"errors"
	"fmt"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrWrongCluster says that the bookie belongs to another cluster than Options.ClusterID.
	ErrWrongCluster = errors.New("bookie belongs to another cluster")

	errNotSent  = errors.New("not sent")           // the request never left this process
	errProtocol = errors.New("protocol violation") // the bookie answered what it was not asked
)

// verdict is what an outcome means for a caller that may try again.
type verdict uint8

const (
	settled   verdict = iota // the answer; trying again cannot change it
	notDone                  // nothing was done; try again, perhaps elsewhere
	maybe                    // may have been done; only a repeatable request may be tried again
	notHere                  // nothing was done; this bookie is the wrong one
	elsewhere                // a read: ask another replica
)

// outcome is one row of the table.
type outcome struct {
	err     error
	verdict verdict
}

// outcomeOf is the one table between the protocol's codes and the errors of our packages.
//
//nolint:revive // a table has as many branches as lines
func outcomeOf(code bookiepb.Code) outcome {
	switch code {
	case bookiepb.Code_OK:
		return outcome{nil, settled}
	case bookiepb.Code_UNKNOWN:
		return outcome{ledger.ErrUnknown, maybe}
	case bookiepb.Code_NOT_LEADER:
		return outcome{ledger.ErrNotLeader, notHere}
	case bookiepb.Code_OVERLOADED:
		return outcome{ledger.ErrOverloaded, notDone}
	case bookiepb.Code_NO_GROUP:
		return outcome{ledger.ErrNoGroup, notHere}
	case bookiepb.Code_NOT_NEXT:
		return outcome{ledger.ErrNotNext, settled}
	case bookiepb.Code_FENCED:
		return outcome{ledger.ErrFenced, settled}
	case bookiepb.Code_CLOSED:
		return outcome{ledger.ErrClosed, settled}
	case bookiepb.Code_NO_LEDGER:
		return outcome{ledger.ErrNoLedger, settled}
	case bookiepb.Code_EXISTS:
		return outcome{ledger.ErrExists, settled}
	case bookiepb.Code_NO_ENTRY:
		return outcome{ledger.ErrNoEntry, settled}
	case bookiepb.Code_UNREADABLE:
		return outcome{ledger.ErrUnreadable, elsewhere}
	case bookiepb.Code_BEHIND:
		return outcome{ledger.ErrBehind, elsewhere}
	case bookiepb.Code_BAD_REQUEST:
		return outcome{ledger.ErrBadCommand, settled}
	case bookiepb.Code_BAD_VERSION:
		return outcome{metadata.ErrBadVersion, settled}
	case bookiepb.Code_READ_ONLY:
		return outcome{ledger.ErrReadOnly, notDone}
	case bookiepb.Code_WRONG_CLUSTER:
		return outcome{ErrWrongCluster, notHere}
	}
	return outcome{ledger.ErrUnknown, maybe} // a code of a later version
}

// transportError says what a failed call means. Some failures prove that the request was refused before it was looked
// at.
func transportError(address string, err error) error {
	switch status.Code(err) {
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %w: %s: %w", errNotSent, ErrWrongCluster, address, err)
	case codes.Unimplemented:
		return fmt.Errorf("%w: %s: %w", errNotSent, address, err)
	}
	return fmt.Errorf("%s: %w", address, err)
}

// describe makes the error of a result, with what the bookie said about it.
func describe(r bookiepb.PlainResult) error {
	err := outcomeOf(r.Code).err
	if err == nil {
		return nil
	}
	if r.Message == "" {
		return fmt.Errorf("%w: ledger %d, last entry %d, epoch %d", err, r.Ledger, r.Last, r.Epoch)
	}
	return fmt.Errorf("%w: ledger %d, last entry %d, epoch %d: %s", err, r.Ledger, r.Last, r.Epoch, r.Message)
}
