package managedledger

import "geminga/pkg/ledger"

// Op is one addition to the log. Messages, Owner, Sequence and Highest are the caller's: they come back in
// Listener.Completed untouched.
type Op struct {
	Payload  ledger.Payload
	Owner    any    // a pointer, of the producer
	Sequence uint64 // first sequence id in the entry
	Highest  uint64 // last sequence id in the entry
	Messages int32  // messages in the entry
	// Barrier marks an op without an entry, which completes when everything added before it has.
	Barrier bool
}

// Listener is implemented by the topic. Its methods are called on the topic's executor, never from inside Add.
type Listener interface {
	// Completed says that ops are on a quorum and readable. They come in the order of Add, each once. Those that are no
	// barriers have consecutive entry ids from first on (first is the next entry's position when all are barriers). The
	// slice and the payloads are valid during the call only.
	Completed(ops []Op, first ledger.Position)
	// Lost says that another owner has taken over, or that the log cannot go on: nothing completes any more. The outcome
	// of ops that have not completed is unknown. It is called once at most.
	Lost(err error)
}
