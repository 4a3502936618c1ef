// Package metadata holds the meaning of the cluster's metadata: a pure ordered map of versioned keys with
// transactions, and the layout of the keys.
//
//	managedledger, broker ─ Txn ─▶ bookieclient ─ Txn.Encode ─▶ gRPC ─▶ bookie ─ proposal of the metadata group
//	                                                                      │ committed, on every replica
//	       Outcome ◀──────────────────────────── DecodeTxn, Machine.Apply ┤
//	       watchers ◀──────────────────────────────────────────── events ─┘
//
// A transaction is a list of conditions on versions, then a list of operations; all or nothing. It promises that every
// replica gives the same Outcome and holds the same map, and the invariants listed at Machine.
//
// Callers: bookie (the machine), bookieclient and everything above it (transactions, keys), bookietest (all of it). A
// Machine belongs to one goroutine; a Clone of it, made in constant time, may be read elsewhere (snapshots, lists).
// Everything else is free of state.
//
// Non-obvious:
//   - The version of a key is the revision of the transaction that wrote it: it never repeats, and does not grow by 1.
//   - A condition with version 0 means absent, not any. There is no unconditional condition: leave it out.
//   - Deleting an absent key succeeds, tells watchers nothing and does not raise the revision.
//   - A counter's Outcome.Versions is its value, not its version: the version is the Outcome's Revision.
//   - A failed transaction does not raise the revision, so retrying one that failed is free of side effects; retrying
//     one whose outcome is unknown is not, unless it has conditions.
package metadata
