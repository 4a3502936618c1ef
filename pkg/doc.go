// Package pkg is the map of Geminga: the path of a message, the packages on it, and four journeys through the code.
// It holds no code; layout_test.go beside this file makes the map binding.
//
//	 producer                                                                consumer
//	    │ SEND frame                                                             ▲ MESSAGE frame
//	    ▼                                                                        │
//	┌────────────────────────────────── brokerd ─────────────────────────────────┴─────────┐
//	│ eventloop      I/O loops; a connection lives on one; reads into counted root buffers  │
//	│ protocol       frame ⇄ command, payloads are never copied                             │
//	│ broker         connections, one file per command, lookup and ownership                │
//	│    │ one batch per (loop turn, topic)                        one batch per loop ▲     │
//	│ ═══▼═══════ executor: the topic's serial executor ══════   ═══ the subscription's ═══ │
//	│ topic          producers, deduplication, order             dispatcher → consumer      │
//	│ managedledger  one endless log out of many ledgers         cursor              ▲      │
//	│    │ Append(batch)             entry cache ──────────────── read ──────────────┘      │
//	│ bookieclient   one ordered gRPC stream per ledger group                               │
//	└────┼──────────────────────────────────────────────────────────────▲──────────────────┘
//	     │ rpc/bookie.proto                                              │ results, in order
//	┌────▼────────────────────────────── bookied ────────────────────────┴─────────────────┐
//	│ bookie         proposer: many appends → one Raft proposal → hashicorp/raft             │
//	│    │ StoreLogs on leader and followers           │ committed                          │
//	│ journal        all groups, one file, one sync    ledger.Machine.Apply (pure)          │
//	│ vfs            a disk, or a memory that crashes                                       │
//	└──────────────────────────────────────────────────────────────────────────────────────┘
//
// Beside the path: cluster (gossip: who is alive), metadata (versioned keys, replicated by a Raft group of the bookies),
// admin (HTTP), telemetry (the OpenTelemetry SDK, set up by cmd only), invariant (assertions that compile away),
// bookietest (bookies in memory for tests of everything above them).
//
// Three rules give the shape. Down the path only: an upper package may import a lower one, never the reverse; the way
// back is a callback or a small interface that the upper package owns. Meaning in the middle, I/O at both ends: ledger
// and metadata are pure state machines. One owner: every piece of mutable state belongs to one serial executor or one
// goroutine; locks exist only at the leaves.
//
// # Four journeys
//
// Each step is package/file.go:func; journeys_test.go beside this file fails when one is gone. ══ marks a change of
// goroutine: a posted task or a network.
//
// Publish: from SEND to SEND_RECEIPT.
//
//	 1 eventloop/loop.go:Loop.turn              reads the socket into a root buffer, calls broker/conn.go:handler.Data
//	 2 broker/cmd_send.go:handleSend            checks the frame, adds the message to the batch of (turn, topic)
//	 3 broker/conn.go:handler.TurnEnd           ══▶ the topic's executor, one task per batch: topic/publish.go:Topic.Publish
//	 4 managedledger/add.go:ManagedLedger.Add   gives it an entry id and a place in the ring
//	 5 bookieclient/stream.go:Client.Append     queues it; session.go:stream.send ══▶ leader of the ledger group, by gRPC
//	 6 bookie/append.go:appendStream.receive    checks every checksum ══▶ proposer.go:proposer.run: one Raft proposal of many
//	 7 bookie/store.go:journalStore.StoreLogs   on leader and followers; journal/writer.go:Journal.writeBatch: one write, one sync
//	 8 bookie/fsm.go:fsm.ApplyBatch             the ledger machine decides ══▶ append.go:appendStream.send ══▶ broker
//	 9 bookieclient/answers.go:stream.answered  ══▶ the topic's executor: managedledger/add.go:ManagedLedger.progressed, complete
//	10 topic/publish.go:Topic.completed         receipts to broker/sink.go:sink.Receipts ══▶ the loop: loop.go:writeReceipts
//
// Deliver: from permits to MESSAGE.
//
//	1 broker/cmd_flow.go:handleFlow            ══▶ the subscription's executor: topic/consumer.go:Consumer.Flow
//	2 topic/read.go:subscription.pump          reads while somebody has permits and a writable connection
//	3 managedledger/cursor_read.go:Cursor.Read from the cache, never beyond LastConfirmed; or else
//	4 bookieclient/read.go:Client.Read         ══▶ bookie/read.go:bookieService.Read of any replica ══▶ managedledger/cursor_read.go:Cursor.fetched
//	5 managedledger/cursor_read.go:Cursor.park nothing there: sleeps until managedledger/add.go:ManagedLedger.notify
//	6 topic/dispatch.go:subscription.dispatch  chooses a consumer for each entry; what nobody can take is read again later
//	7 topic/dispatch.go:subscription.handOver  one call of broker/sink.go:sink.Deliver for each consumer ══▶ the loop
//	8 broker/loop.go:writeDeliveries           cmd_subscribe.go:conn.deliver writes the header and refers to the payload
//	9 broker/sink.go:sink.settle               wakes consumers whose connection had been full
//
// Acknowledge: from ACK to ACK_RESPONSE.
//
//	1 broker/cmd_ack.go:handleAck              ══▶ the subscription's executor: topic/ack.go:Consumer.Ack
//	2 topic/ack.go:subscription.ackIndividual  or ackCumulative: forgets what was pending, frees blocked consumers
//	3 managedledger/cursor.go:Cursor.Delete    or MarkDelete: moves the mark, or notes a hole behind it
//	4 managedledger/cursor_store.go:cursorStore.changed  a receipt is wanted: written now; else within a second
//	5 managedledger/cursor_store.go:cursorStore.append   what has changed, one entry of the cursor's own ledger
//	6 (steps 5 to 8 of Publish)                it is an append like any other
//	7 managedledger/cursor_store.go:stateAppend.Appended  ══▶ the subscription's executor: cursorStore.written
//	8 broker/cmd_ack.go:conn.ackDone           on the loop: ACK_RESPONSE to all whose acknowledgement is in that state
//
// Change of owner: broker A is gone, a client asks broker B.
//
//	 1 broker/cmd_lookup.go:handleLookup        broker/ownership.go:ownership.lookup reads the bundle's record
//	 2 broker/ownership.go:ownership.decide     A is alive, by gossip: redirect. Else B if it is the candidate
//	 3 broker/ownership.go:ownership.claim      compare-and-set {B, epoch+1}. This, and not gossip, decides
//	 4 broker/cmd_producer.go:handleProducer    the client is back: broker/topics.go:topics.get opens the topic
//	 5 managedledger/open.go:opening.loaded     the topic's list of ledgers; a newer epoch in it: B gives up
//	 6 managedledger/open.go:opening.fence      raises the epoch of the open ledger and learns its last entry. From here on
//	                                            A's appends are refused, and so never acknowledged
//	 7 managedledger/open.go:opening.save       puts the list by compare-and-set: old ledger closed there, new one, epoch
//	 8 topic/topic.go:Topic.recover             replays for deduplication; then cursors, managedledger/cursor_open.go:cursorOpening.load
//	 9 managedledger/add.go:ManagedLedger.failed  in A, should it live: ErrFenced; broker/topics.go:topics.lost and
//	10 broker/ownership.go:ownership.lost       A closes the topics of the bundle, its clients look them up again
//
// # Locks
//
// Locks are leaves: under one, nothing is called that takes another. Two pairs are the exception, always in this order:
// bookie's metaFSM.mu before a watcher.mu, bookieclient's streams.mu before lifetime.mu.
// Under a lock nobody waits for a disk or a network. What must not be reordered is posted to an executor instead.
package pkg
