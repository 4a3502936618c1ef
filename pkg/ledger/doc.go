// Package ledger holds the meaning of ledgers: their ids, entries, errors, the encoding of commands and entries, and
// the pure state machine that every replica of a group runs.
//
// A ledger is a sequence of entries 0, 1, 2… written by one writer, then closed for ever. It lives in one Raft group.
// A proposal in the group's log is a concatenation of commands (NextCommand takes it apart), for any of its ledgers.
//
//	managedledger ─ entries ─▶ bookieclient ─ AppendEntry, PutAppendHeader ─▶ gRPC ─▶ bookie: NextCommand, CheckBody
//	                                                                                    │ one Raft proposal
//	waiters ◀──────────────────────── Result for each command ◀── Machine.Apply ◀───────┘ committed, on every replica
//	                                                                  │ Change: what to index, what to drop
//
// It promises that a command has the same Result and the same effect on every replica, and the invariants listed at
// Machine. It keeps no payloads: the group's log has them.
//
// Callers: bookie (the machine, decoding), bookieclient (encoding), managedledger and above (ids, payloads, errors),
// bookietest (all of it). Ids, encoders and decoders are free of state and may be used from any goroutine; a Machine by
// one goroutine at a time.
//
// Non-obvious:
//   - A retry of an append that is kept succeeds even after Fence or Close: the answer tells the truth, the entry is
//     there. An append that is not kept never does (testdata/retry).
//   - An append that overlaps the end is refused as a whole, never cut (testdata/add).
//   - A fenced ledger takes no append of any epoch, also none of who fenced it (testdata/fence).
//   - A Close of an older epoch is refused, or it could discard what the newer owner has counted (testdata/close).
//   - Checksum, Summed and Bytes go on covering entries that Close discarded, because the machine does not know their
//     checksums any more: compare replicas by (Summed, Checksum), not by Last.
//   - A Create that arrives after the Delete of its ledger makes an empty ledger that nobody knows (testdata/delete).
//     Nothing is lost by it; ids are never given out twice.
package ledger
