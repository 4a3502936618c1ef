// Package bookieclient is the brokers' way to the bookies: ledgers and metadata over gRPC.
//
//	managedledger ── Append ──► stream of the group ── AppendRequest ──► leader of the group
//	      ▲                       │  queue   what gathers while messages are under way
//	      │                       │  flight  sent, not answered: kept, and sent again after trouble
//	      └──── Waiter ◄──────────┴── AppendResponse ◄───────────────────┘
//	              Create, Fence, Close, Delete ── unary, to the leader, hints followed ──►
//	              Read ── any replica, the next one on trouble ──►
//	              Get, List, Commit, Watch ── leader of the metadata group ──►
//
// A Client promises:
//
//  1. Appends to a ledger reach it in the order of the calls, each entry once, whatever happens to connections and
//     leaders, until the ledger is lost to another owner, abandoned, or the client is closed.
//  2. A Waiter is told growing entries, and after an error nothing more about the appends made before it.
//  3. Every callback of a call comes exactly once, from a goroutine of the client, never from inside the call.
//  4. Every wait ends: each try has a deadline, and each call has one, except Close of a ledger, which is retried until
//     it is answered or the client is closed.
//  5. "Does not exist" is said only when bookies have proved it. What could not be read is ledger.ErrUnreadable, what
//     was not answered ledger.ErrUnknown.
//
// Every method may be called from any goroutine. Brokers' executors call, so nothing in a call blocks: the only locks
// are short and at the leaves. How much may be queued is the callers' admission to decide; the client bounds only
// what is on the wire.
//
// Non-obvious:
//   - A command keeps its boundaries once it was sent. An append that lies wholly at or before the last entry is a
//     retry and succeeds; one that overlaps it in part would be refused (TestAckedPrefixIsWhatTheMachineHolds).
//   - The first answer that leaves a command open ends the whole stream, and everything unanswered goes again in order
//     on a new one. Answers after it are not looked at: they are the echo of the gap, or will be repeated as retries.
//   - A command that the sender is encoding must not be recycled by Abandon at the same moment (command.pinned).
//   - Whether a request left this process decides between "not done" and "unknown", so calls wait for a ready
//     connection first instead of leaving that to gRPC.
package bookieclient
