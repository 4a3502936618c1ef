// Package topic is a topic: its producers, deduplication of what they send, its subscriptions with their dispatchers, and
// their consumers. It gives the log of managedledger its meaning as a Pulsar topic.
//
//	broker: one batch per (loop turn, topic)                      Sink.Deliver ──▶ broker ▲
//	   │ Publish                                                                          │
//	═══▼══ the topic's executor ═══════════════════   ═══ each subscription's executor ═══╪══
//	order → deduplication → ManagedLedger.Add            Flow, Ack, Redeliver ─▶ pump ─▶ dispatch
//	completed ──▶ receipts, gathered per Sink                                │      ▲
//	   │                                                              Cursor.Read ──┘ entries
//	   ▼ Sink.Receipts
//
// Promises:
//
//   - Receipts of a producer come in the order of its messages, each message exactly one, and a receipt without error
//     means that the message is stored.
//   - What was acknowledged is not delivered again while the topic lives; what was not acknowledged is, once somebody can
//     take it. Order is that of the log on Exclusive and Failover subscriptions, and within a key on Key_Shared ones.
//   - A key of a Key_Shared subscription is unacknowledged at one consumer at a time, and one that is stuck holds back no
//     other.
//   - A message with a time of delivery comes at that time or later, on Shared and Key_Shared subscriptions; one that is
//     due does not wait behind one that is not (delays).
//   - Consumers are given no more messages than they have asked for, save for the rest of one batch.
//   - What a subscription, or all of a topic, are given per second is bounded by rates (dispatchRates), to ± 5 % each second
//     that there is a backlog. Topics that are not persistent have none.
//   - A topic that is not persistent keeps nothing and promises only the order (transient).
//   - A topic that is closed or lost never makes a client drop its connection: its producers and consumers are closed
//     one by one.
//
// The broker calls it. Methods of Topic run on the topic's executor, methods of Consumer on the subscription's; state
// crosses from one to the other by posted tasks only. The package starts no goroutines and has no locks.
//
// Non-obvious:
//
//   - A registration that was removed still has messages in flight; they complete and come back as receipts to its Sink.
//   - A duplicate of something in flight is a Barrier in the log: its receipt waits for the original and keeps its place
//     (testdata/dedup).
//   - A read ahead may wait at the end of the log for ever, so reads of entries to replay run beside it.
//   - Cursor.Read may complete before it returns; pump is a loop so that this does not recurse.
//   - Permits are granted − delivered and nothing else. They survive redelivery, blocking and unblocking untouched.
//   - To Key_Shared a key is a hash of 16 bits; a queue per hash keeps the order and a count of holders per hash tells
//     when it may move (keyed). Both are kept at all times, not from a join or leave on.
//   - While a failover subscription's active consumer changes, what is read goes to the replay set; only when the new one
//     is served is all that forgotten and the cursor rewound (testdata/failover).
//   - A subscription ends on its own executor first; see slot for the race with Subscribe.
package topic
