// Package bookie is the storage daemon: it holds replicas of Raft groups, serves ledgers and metadata over gRPC, and
// keeps everything in one journal. cmd/bookied opens one; the one-process mode opens it in the broker's process.
//
//	broker                                     other bookies
//	  │ Append stream per group, Read, Execute       │ two lanes: calls of Raft, all groups of a pair
//	  ▼                                              ▼
//	bookieService ── check commands, checksums   lanes ─▶ raftService ──▶ transport of the group
//	  │                                              │
//	  ▼                                              ▼
//	proposer ──── many streams, one proposal ──▶ hashicorp/raft ──▶ transport ──▶ link ──▶ other bookies
//	  ▲                                              │      │
//	  │ results, in order                  StoreLogs │      │ committed
//	  │                                              ▼      ▼
//	  │                       guardedStore ─▶ journalStore  fsm: ledger.Machine + index
//	  └──────────────────────────────────────────────│──────┘      ▲
//	                                                 ▼             │ where?
//	                                     journal (one per bookie) ◀── Read
//
//	metadata: metadataService ──▶ metaGroup (a Raft group of its own on 1, 3 or 5 bookies, log in bbolt) ──▶ metaFSM
//	          seat: whether this bookie is one of them
//
// What it promises:
//
//   - An append that is answered OK is durable on a majority of its group, and stays.
//   - An outcome is one of done, refused, or unknown. What was given to raft and not answered is unknown, never refused.
//   - NO_LEDGER and NO_ENTRY are proofs. Damage is UNREADABLE, delay is BEHIND.
//   - A read of metadata sees every commit that was answered before the read began.
//   - A process whose stable storage failed or hung says so through Failed and serves no more. A damaged entry stops
//     one replica of one group.
//   - A full disk is none of these: entries are refused before it is full, and a reserve is there to live on when others
//     fill it. Reads go on, and writes when there is room.
//
// Everything exported may be called from any goroutine. Handlers run on gRPC's goroutines, the machines on raft's. Locks
// are leaves: none is held while another package or a callback is called, but for ledger.Machine and metadata.Machine
// under the lock of their fsm.
//
// The records of a ledger group's log are its storage. Snapshots hold the machine and name the layers of the index
// (index.go), no entries (snapshotstore.go); when one is taken the log is compacted, and what leaves it stays in the
// journal, under its index, as long as a ledger has entries in it:
//
//	                    takeSnapshots                      reclaim
//	log of the group ────────────────▶ kept in the journal ───────▶ copied without what was deleted, segments recycled
//	                                        ▲
//	other replicas ──── filler: Fetch ──────┘ what a snapshot brought that is not here, what is damaged
//
// A scrubber reads indexes and journal at a bounded rate, round after round; what it, or a reader, finds damaged is fetched
// from the other replicas. A replica whose log or snapshots are damaged, or whose state is not that of the majority
// (compareStates), begins again with a snapshot of its leader (repairing).
//
// A damaged layer of an index is made anew from the journal first (rebuilding). What no replica has any more is named in the
// status (lostEntries), and everything else is served.
//
// A directory whose bookie does not run is read by Offline, with the journal's reader and the same fsm: the commands
// inspect, verify and dump of bookied. It changes nothing, and cannot know what is committed.
//
// Non-obvious:
//
//   - A layer of an index never changes, says nothing about what was deleted or cut, and may be named by both snapshots. It is
//     removed when none names it, and only after the removal of those that did is durable (TestLayersCrash).
//   - A snapshot that was taken here is read as it is; sent elsewhere, the same file reads as one with all layers in it
//     (namedState, TestIndexAgainstModel).
//   - Bookies are addressed by id in every Raft configuration; where an id listens is looked up (addressBook). A bookie
//     may move; it may not lose its disk, or its journal alone, and keep its id (TestWipedBookieIsRefused,
//     TestLostJournalIsNotBegunAgain).
//   - Heartbeats go through raft's main loop, behind its fsyncs, because the library's fast path for them breaks Raft.
//     The timeouts are longer for it.
//   - raft panics when it cannot persist its term and when it cannot read an entry that it applies. guardedStore fails
//     the replica first and then lies to it, which is safe only because nothing that a failed replica says is sent
//     (health, TestFailedReplicaIsSilent).
//   - raft counts the entries of a message, not their bytes: MaxAppendEntries × the largest proposal must fit a message
//     (Options.Validate, TestFaultsThatPass). Such messages have a connection of their own (lane, TestLargeCallDelaysNoOther).
//   - raft may drop a future when it stops, so nobody waits for one without another way out, and the goroutines that do
//     are not awaited.
//   - The library transfers leadership at shutdown only: a transfer that is interrupted leaves it refusing proposals. A lead
//     is given back without it (steward.yield, TestLeadGoesBack).
//   - What a group's record says is carried out by the group's leader, and forgotten by who is not in it any more
//     (settler.settle, groups.leave, TestReplicasMove). A replica that is placed into a group never founds it.
//   - The metadata group's members move, too. Its newcomers have no say in elections before their own copy of the metadata
//     names them, because they may have been members before and have forgotten it (seat, TestNewcomerHasNoSay).
//   - No change of a configuration begins that the votes which follow could not bear (settler.bears).
//   - A leader is ready after a barrier in its term. Before that it takes appends, whose results come from the machine in
//     any case, but proves nothing about what is absent.
//   - A replica that installed a snapshot counts for the majority at once, but is neither ready nor counted as a new
//     replica before it has the entries, and says UNREADABLE meanwhile (TestBackfill).
//   - The store is not monotonic in raft's sense, or raft would empty the log after each snapshot that it installs, what it
//     acknowledged since included. A gap before an append says that the log is to go (journalStore.StoreLogs).
//   - The log is kept from the older of two snapshots on. A second one of the same index lets it go (snapshotStore).
//   - A call of a leader is compared with the log only where it goes beyond what is applied: raft refuses one that continues
//     a compacted entry, and two replicas that have compacted differently could refuse each other for ever (strip, TestSimulation).
//   - A full follower stores what it is sent to the last byte: a log has no holes, and the deletes come behind. So followers say in
//     every answer whether they are nearly full, and the leader stops when most are (rooms, TestRefusesWhenMostDisksAreFull).
//   - The preferred replica of a group has the shorter election timeout, and gets the lead back after it was away.
package bookie
