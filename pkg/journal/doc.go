// Package journal is the write-ahead log that all Raft groups of a bookie share, and at the same time the storage of
// the ledgers: an entry's bytes are written here once, and read from here for ever after.
//
//	Raft group 1     Raft group 2  …  Raft group n     ledger reads
//	   │ Append          │ SetStable      │ Truncate…       │ ReadAt(Place)
//	   ▼                 ▼                ▼                 │
//	┌──────────────── queue ─────────────────┐              │
//	└────────────────────┬───────────────────┘              │
//	                  writer  one pwrite, one fdatasync      │
//	                     │    for all that gathered         │
//	     ┌───────────────┼───────────────────┐              │
//	     ▼               ▼                   ▼              │
//	000000000007.seg   tail (newest bytes,  views           │
//	…0006 …0005 …      in memory)           index → place   │
//	     └───────────────┴──────────◄────────────────────────┘
//
// Records outlive their log. What a group compacts away stays held under its index until it is released, because ledgers
// live there; it may be moved, and all of it or pieces of it may be written anew, be it to free a segment or because it
// was lost and others had it (Held, ReadPiece, Move, Keep, Release). A segment is recycled when no group holds anything
// in it. Nothing on the disk says what was released: after a restart the caller releases it again.
//
// It knows nothing of Raft: a group is a number, with a log of records (index, term, type, bytes) and a few stable
// values. It promises:
//
//   - A call that returned nil is durable (with Options.SyncData): after any crash the effects of all such calls are
//     there, those of a call that was under way are there wholly or not at all, and nothing else is.
//   - What cannot be read is ErrCorrupt, never ErrNotFound. Damage stops the groups whose records it may have hit, and
//     no other.
//   - After a failed or hung write nothing is written any more: see Journal.
//
// Its caller is package bookie: a log store and a stable store per group, the index of the ledgers, the reclaim of
// segments. Every exported method may be called from any goroutine. The goroutines inside are the writer and the
// preparer, which allocates the next segment ahead; Close waits for both.
//
// # Format
//
// All numbers are little endian. A segment is a file NNNNNNNNNNNN.seg, numbered from 1 without a gap at its birth (the
// later removal of older segments leaves gaps), allocated in full before it is begun:
//
//	0          512                                                                     size
//	┌─────────┬──────────┬─────────┬─────────┬───┬──────────┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┐
//	│ header  │ head     │ batch   │ batch   │ … │ end mark │ never written, or an older │
//	│         │ batch    │         │         │   │          │ life of the file           │
//	└─────────┴──────────┴─────────┴─────────┴───┴──────────┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘
//
//	header, 52 bytes and zeros up to 512
//	┌──────────┬─────────┬───────┬────────────┬─────────┬─────────────┬──────────┬─────┐
//	│ magic 8  │version 4│flags 4│ journal 8  │number 8 │first batch 8│ stamp 8  │sum 4│
//	└──────────┴─────────┴───────┴────────────┴─────────┴─────────────┴──────────┴─────┘
//
// A batch is what one write brought. It starts at a multiple of 512 and is padded to one, so no write touches a sector
// with bytes that somebody was answered for. Batches are numbered on through all segments.
//
//	batch header, 48 bytes
//	┌─────┬───────┬─────────┬─────────┬───────┬─────────┬─────────────────┬───────┬─────┐
//	│sum 4│magic 4│number 8 │length 4 │count 4│groups 8 │groups before 8  │flags 4│ 0 4 │ records … padding
//	└─────┴───────┴─────────┴─────────┴───────┴─────────┴─────────────────┴───────┴─────┘
//
//	record header, 48 bytes
//	┌─────┬──────────┬────────┬───────┬───────┬──────┬──────┬───┬──────┬───────┬───────┐
//	│sum 4│data sum 4│length 4│extra 4│group 4│kind 1│type 1│0 2│term 8│index 8│stamp 8│ data … extra …
//	└─────┴──────────┴────────┴───────┴───────┴──────┴──────┴───┴──────┴───────┴───────┘
//
// Each sum over a header is crc32c, started with the segment's scrambled number xor the offset in it. Whatever a recycled file
// held before is therefore not valid in its new life, nor are bytes that landed in the wrong place. The data sum is
// crc32c over data and extra alone, so that callers can compute it before they queue.
//
//	kind       group's log, values, kept     uses
//	entry      a record is added             all fields
//	truncate   index and above are removed   index
//	compact    index and below are kept      index
//	reset      all above index is forgotten  index
//	stable     a value is set                data = value, extra = key
//	state      what holds now (head only)    index = first, term = last, stamp = records so far, type 1 = damaged,
//	                                         data = doubt 8, then cuts: position 8, from 8 (cut.go)
//	move       a copy: its place is here now all fields
//	keep       pieces are kept               index, term, data = pieces, extra = of each piece: offset 4, length 4
//
// The head batch repeats the state and the stable values of every group, so no older segment is needed for anything but
// entries. The end mark is an empty batch; every segment but the newest has one, and the newest too after Close.
//
// # Recovery
//
// Open reads each segment once, from front to back, or instead of it its summary (summary.go), which is written when the
// segment is sealed. So a start reads some bytes for each record, and all bytes of the newest segment only. Damage in a
// segment that has a summary shows when the record is read, or to Scrub.
//
// What reading a segment may find, and what it concludes:
//
//	newest segment without a valid header, nothing behind its head    it was never in use: a spare file
//	a bad batch in the newest segment, no valid batch behind it       torn write, never answered: cut
//	a bad batch with a valid one behind it, or no end mark in         it was synced once: corruption, see replay
//	any older segment
//
// Then it makes what it read durable (it may have come from the page cache of a process that died before its sync),
// puts an end mark over the torn rest, and begins a new segment.
//
// # Looking without recovering
//
// OpenReader reads a journal that no process writes with the same code, and changes nothing: what recovery would find,
// where there is damage, and what each segment is good for. It reads all bytes, whatever summaries there are. The lock of the directory keeps writers out meanwhile.
//
// Scrub does a part of that in an open journal: it walks through the sealed segments at a bounded rate and compares every
// checksum, so that damage shows before somebody needs what is damaged.
//
// # Non-obvious
//
//   - A torn batch and a damaged last batch look the same. The end mark settles it for all segments but the newest after
//     a kill: there, damage to the very last batch is cut. TestBitFlipsAfterKill.
//   - Batch n+1 is written only after batch n was synced; recovery takes that as proof. Do not pipeline. TestCrashSweep.
//   - The writer does not touch memory of its callers between arm and disarm: the deadline gives it back to them. The
//     race detector holds this in TestFaultSweep.
//   - A request whose answer was an error is not reused: the writer may still hold it. poison.go, requests.put.
//   - Group.ops counts records so that a head can tell whether a group lost any where it is unknown whose records were
//     lost. Whoever adds a kind of record must count it in publish and in replay alike. TestBitFlips.
//   - What may be out of date because records were lost is marked damaged, and heads hand that on (table.doubt).
//   - A summary is never synced, and never believed for the newest segment. TestSummariesAgreeWithSegments.
//   - Batches lie one behind the other without a gap, heads too: a summary tells no offsets.
//     TestSummaryBehindHeadThatShrank.
//   - A segment is recycled only when no group holds anything in it, so what recovery rebuilds without it is right.
//     Truncations that lay in it live on in the heads, as cuts: cut.go. TestCrashSweep, which moves and recycles, and TestRandom.
//   - survey, used, identify and replay change no file, because a Reader calls them too. TestReaderAgreesWithRecovery.
//   - What was truncated is gone, and its index with it; what was compacted is held. Compact only what is final.
package journal
