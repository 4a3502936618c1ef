package ledger

import "errors"

// Outcomes of ledger operations. Compare with errors.Is; operands are wrapped around them.
//
// ErrNoEntry and ErrNoLedger are proofs, taken from committed commands. Whatever cannot be read is ErrUnreadable,
// whatever was not answered is ErrUnknown: neither says anything about existence.
var (
	ErrNotNext    = errors.New("append does not start at the next entry")
	ErrFenced     = errors.New("ledger fenced by a newer epoch")
	ErrClosed     = errors.New("ledger closed")
	ErrNoLedger   = errors.New("no such ledger")
	ErrExists     = errors.New("ledger exists with another epoch")
	ErrNoEntry    = errors.New("no such entry")
	ErrUnreadable = errors.New("entry unreadable on this replica")
	ErrBehind     = errors.New("replica has not applied the entry yet")
	ErrUnknown    = errors.New("outcome unknown")
	ErrNotLeader  = errors.New("replica does not lead the group")
	ErrNoGroup    = errors.New("no such group here")
	ErrOverloaded = errors.New("overloaded")
	ErrReadOnly   = errors.New("bookie takes no writes")
	ErrBadCommand = errors.New("malformed command")
	ErrNoBookies  = errors.New("no healthy ledger group")
	ErrShutdown   = errors.New("shutting down")
)
