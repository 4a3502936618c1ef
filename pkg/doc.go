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
package pkg
