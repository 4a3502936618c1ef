package ledger

// Owner counts the references to memory that payloads point into. Both methods may be called from any goroutine.
// The memory is reused after the last Release: reading it later is a data race.
type Owner interface {
	Retain()
	Release()
}

// Payload is the immutable content of one entry. A nil Owner means ordinary garbage-collected memory.
//
// Whoever keeps a Payload beyond the call that handed it over calls Retain first and Release once when done.
type Payload struct {
	Data  []byte
	Owner Owner
}

// Retain adds a reference.
func (p Payload) Retain() {
	if p.Owner != nil {
		p.Owner.Retain()
	}
}

// Release gives a reference back.
func (p Payload) Release() {
	if p.Owner != nil {
		p.Owner.Release()
	}
}

// Entry is a payload at its place.
type Entry struct {
	Position Position
	Payload  Payload
}

// Waiter learns how far the appends to a ledger have got. One Waiter may serve many appends.
type Waiter interface {
	// Appended says that every entry of the ledger up to and including last is stored on a quorum (err nil), or that
	// the appends beyond last can no longer succeed (err not nil, one of this package's errors: ErrFenced, ErrClosed,
	// ErrNoLedger, ErrUnknown …). Calls for one ledger come one after another with growing last; they come on the
	// goroutine of a stream, so they must be quick and must not block.
	Appended(ref Ref, last EntryID, err error)
}
