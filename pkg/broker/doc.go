// Package broker is the front of brokerd: it listens, speaks the Pulsar binary protocol with clients, finds and takes
// ownership of topics, and passes everything on to them. cmd/brokerd opens a Server; admin reads its statistics.
//
//	 client
//	   │ frame                                                                    ▲ frames, one write per turn
//	┌──▼────────────────────── I/O loop (eventloop) ──────────────────────────────┴──────────┐
//	│ handler.Data ─▶ conn.frame ─▶ table of commands ─▶ cmd_*.go            outbox.Run        │
//	│                                   │ SEND: batch per (turn, topic)        ▲ posted once   │
//	└───────────────────────────────────┼──────────────────────────────────────┼──────────────┘
//	      TurnEnd: post one batch       ▼                                      │ sink: Receipts, Deliver, Close…
//	 topic's executor:   Publish, AddProducer, Subscribe      ─────────────────┤
//	 subscription's:     Flow, Ack, Redeliver, Close          ─────────────────┘
//
//	 beside the path: topics (map of open topics) · ownership (bundles, compare-and-set) · probe (is that client alive?)
//
// Who owns what: a conn with its producers and consumers belongs to its loop; a topic to its executor; the maps of topics
// and bundles to a lock each, under which nothing is called. Every handler runs on a loop and never blocks: what takes
// time is asked of an executor or of the store, and the answer is posted back to the loop.
//
// What is taken in is bounded. Before each frame a connection is asked whether there is a reason to stop it: its sends
// or its loop's bytes in flight, a publish rate, output that the client does not read (throttle). Stopped, neither its
// socket is read nor a frame that was read already is worked on. Beside that, frameMemory holds the reads of all sockets
// when request frames keep too many receive buffers; it never stops a frame that is there.
//
// Promises to clients: a request is answered once, with its id; receipts of a producer come in the order of its sends;
// MESSAGE never precedes SUCCESS; whatever may pass by itself is an error that clients retry; one producer's trouble
// never costs the others on the connection. Bytes that are no protocol close the connection and leave at most one line
// per kind and ten seconds in the log.
//
// # Non-obvious
//
//   - Whatever is posted to a topic's executor for a connection must come after the sends that the connection has made in
//     this turn, which still wait in a batch: loopState.post first (TestCloseProducerDrains).
//   - A SEND for a producer that we have closed is no offence: it was on its way. conn.dropped (TestUnload).
//   - SEND_ERROR makes clients drop the whole connection, so storage trouble never makes one (TestLostTopic).
//   - Clients match words in error texts: Server.text (TestTransientTexts).
//   - ServiceNotReady in the answer to a lookup closes the client's connection: quietCode (TestLookupErrors).
//   - sink.Room and the loop must not miss each other: the order in sink (TestSlowConsumer).
//   - A consumer on a loop that is short of room for output gets a little each time it has read everything, and no more:
//     what slow ones keep is bounded for all together, and none is starved by them (TestSlowConsumersShareABudget).
//   - ConsumerBusy is final for some clients, so the one in the way is probed first (TestExclusiveTakeover).
//   - A frame that waits in a stopped connection may keep the very memory whose release frees the sockets: so the two are
//     independent, whichever ends first (TestStalls).
//   - A loop that only holds a receive buffer for its next read keeps nothing: only frames count, or a broker whose reads
//     are held would never free them (TestSmallFramesPinRoots).
//   - Who is refused by a rate stands in a line; a rate that is changed, closed or gone with its topic must call the line
//     (TestPublishRateChanges, TestPublishRateUnload).
//   - A bundle's epoch must never shrink for a topic, so the number of bundles is stored with the namespace.
package broker
