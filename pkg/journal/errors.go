package journal

import (
	"errors"
	"fmt"
)

// Sentinels of this package; compare with errors.Is. ErrNotFound is returned exactly as it is by Get, Place and
// GetStable, so that it may be compared with == too.
var (
	// ErrNotFound says that an index is not held, or lies outside [FirstIndex, LastIndex] for what concerns the log, or
	// that a stable key was never set.
	ErrNotFound = errors.New("journal: not found")
	// ErrCorrupt marks bytes that were synced once and are damaged now. The error is a *CorruptError.
	ErrCorrupt = errors.New("journal: corrupt")
	// ErrNoSpace says that no segment could be allocated. Nothing was written; the call may be tried again.
	ErrNoSpace = errors.New("journal: no space for another segment")
	// ErrNotNext says that an append does not start right after LastIndex, or is not contiguous in itself.
	ErrNotNext = errors.New("journal: append is not contiguous")
	// ErrTooLarge says that a record exceeds Options.MaxRecordSize, or a stable key or value its limit.
	ErrTooLarge = errors.New("journal: record too large")
	// ErrPoisoned says that a write or sync failed or hung. The journal takes no writes any more: the process must end.
	ErrPoisoned = errors.New("journal: poisoned by a failed write")
	// ErrDeadline is wrapped in ErrPoisoned when a write or sync did not return in time. It may still land.
	ErrDeadline = errors.New("journal: write did not return in time")
	// ErrClosed says that the journal was closed.
	ErrClosed = errors.New("journal: closed")
	// ErrInUse says that a segment cannot be recycled because a group holds records in it, or that it is being written.
	ErrInUse = errors.New("journal: segment in use")
	// ErrInLog says that Keep was asked for an index that is in the log, or beyond it.
	ErrInLog = errors.New("journal: index is in the log")
	// ErrPieces says that the pieces of a Kept overlap, are empty, or are not what its Data has.
	ErrPieces = errors.New("journal: pieces do not fit")
	// ErrForeign says that a directory holds something that is not a segment of this journal.
	ErrForeign = errors.New("journal: not a segment of this journal")
)

// CorruptError says what is damaged. Group and Index are 0 when the damage hides them.
type CorruptError struct {
	Group   uint32
	Index   uint64
	Segment uint64
	Offset  int64
	Reason  string
}

// Error names the place.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal: corrupt: group %d index %d at segment %d offset %d: %s",
		e.Group, e.Index, e.Segment, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
