// Package ledgers writes to bookies as brokers do, through pkg/bookieclient, and checks afterwards what was promised, at
// each bookie by itself.
//
// A writer is what a topic is to its owner: a list of ledgers, of which the last one is open. Entries are acknowledged in
// order. A ledger ends when it is full, when its group is silent (the writer closes it at its last acknowledged entry and
// sends the rest again in another group, unless it was made to wait), or when another client takes the writer over: it
// fences the ledger and closes it at the last entry that the fence names, while the one before goes on and does not know.
// Who may end a ledger and where is decided under a lock, where brokers use the metadata.
//
// Every byte of an entry follows from its ledger, its id, and what the list says, so nothing that was written is kept.
//
// The promises, for each ledger, at each replica of its group:
//
//  1. Every entry up to the closing one is there with the bytes that were sent. That includes all that were acknowledged.
//  2. There is no entry behind the closing one.
//  3. No acknowledgement, early or late, is of an entry behind the one that a fence named.
//  4. A ledger that was deleted is nowhere; no other is missing.
//  5. Replicas agree on length, state and running checksum, also in the data directories of bookies that were stopped.
//
// And while bookies die: reads of acknowledged entries give their bytes, or no answer.
package ledgers
