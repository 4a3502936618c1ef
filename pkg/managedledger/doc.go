// Package managedledger makes one endless log out of many ledgers, and keeps the places of its readers.
//
//	topic's executor                                                       subscription's executor
//
//	Add ─▶ ring ─▶ Bookies.Append                                          Cursor.Read ◀──────────────┐
//	                    │                                                    │    ▲                   │ wake
//	                    ▼ Waiter (a stream's goroutine)                      │    │ hit               │
//	               writer: newest acknowledged entry                         ▼    │                   │
//	                    │ one task, however many acks                      Cache ─┘   Bookies.Read    │
//	                    ▼                                                    ▲          (miss)        │
//	   complete: insert into the cache ──────────────────────────────────────┘                        │
//	             advance LastConfirmed ──▶ Listener.Completed ──▶ notify ─────────────────────────────┘
//
//	metadata:  topic's key    {epoch, ledgers}          put by compare-and-set; who puts a newer epoch owns the topic
//	           cursor's key   {epoch, ledger or state}  likewise
//
// It promises:
//
//   - Ops complete in the order of Add, each once, at consecutive positions; what has completed is on a quorum and stays
//     readable at its position, with its content, whoever owns the topic afterwards, until its ledger is trimmed: when all
//     durable cursors are behind it and retention is over (trim.go).
//   - LastConfirmed never goes back.
//   - A group of bookies that stops acknowledging costs LedgerStallTimeout, not an election (trouble.go).
//   - An owner that another one has replaced completes nothing that the new one does not see, and is told: Lost.
//   - A receipt for an acknowledgement means that it survives a crash, unless the cursor has more than MaxUnackedRanges
//     holes before it (a warning says so). Other acknowledgements survive a crash when they are older than
//     CursorFlushInterval. That holds of parts of batches as well.
//
// Callers are topic, and admin through it. A ManagedLedger lives on the topic's executor and a Cursor on its
// subscription's; neither has a lock, both assert their executor in invariants builds. Between the two go the view of
// the log (an atomic pointer to an immutable list, and the confirmed entry), one flag per cursor, and the Cache, whose
// shards are the only locks here. No goroutine is started.
//
// What is where: managedledger.go the type and its invariants · open.go recovery · add.go adds and completions · roll.go
// full ledgers · trouble.go troubled ones · trim.go those that nobody needs · close.go · view.go arithmetic of positions ·
// cursor*.go · ackset.go and parts.go · cache.go · list.go and record.go versioned puts with unknown outcomes.
//
// Non-obvious:
//
//   - Nothing is in flight to two ledgers at a time (roll.go:drained; TestSimulation).
//   - The list decides, groups follow: a ledger closed in the list at S has S+1 entries whatever its group holds
//     (TestScripts/trouble).
//   - An acknowledgement that comes after the decision to leave a ledger is ignored: the op will complete elsewhere
//     (TestLateAcknowledgementIsIgnored).
//   - A ledger that is put behind others must have a larger id than they, or positions do not ascend: one that was made
//     before an older owner's last put is thrown away (open.go:create; TestSimulation).
//   - Two ledgers may be open in the list, of which the second is empty as long as the first may get entries; recovery
//     fences them in order (TestCrashAtEveryStep).
//   - Listener.Completed may Add; the ledger is not rolled meanwhile, because the ops it is told of are still in the ring
//     (TestAddInsideCompleted).
//   - Whoever turns Cursor.waiting from true to false goes on with the Read (cursor_read.go:park).
//   - A put of unknown outcome may arrive after we have read that it had not: it names the version we name again, so one
//     of the two fails (record.go).
//   - The list shrinks before bookies delete, and names what they may still have (trim.go; TestTrimCrashAtEveryRequest).
//   - A cursor may stand in a ledger that is gone: Cursor.log moves it on (TestTrim).
//   - A delta is written only behind a record that is known to be stored; after any doubt the state goes to a new ledger
//     (cursor_store.go:handle; TestAcknowledgementsSurviveACrashAtEveryRequest).
//   - Backlog is computed from positions each time; nothing is counted up and down (TestBacklogIsWhatCountingFinds).
//   - Cached entries hold their root buffer, which may be much larger, unless CopyEntries is set.
package managedledger
