// Package vfs is the file system as the journal sees it: nine operations on names, nine on files, and three
// implementations of them.
//
//	           journal · bookie
//	                  │ FS, File
//	    ┌─────────────┼──────────────┐
//	  Disk          Mem            Inject(FS)
//	pwrite,      a memory that     fails or hangs
//	fdatasync,   knows what was    chosen operations
//	fallocate,   synced; Crash     of another FS
//	flock        is a power cut
//
// ReadOnly wraps any of them and refuses what would change anything: tools that look at a stopped process's files cannot
// do harm by mistake.
//
// The contract of FS and File is that of POSIX with nothing added: data is safe after SyncData of its file returned
// nil, a name is safe after SyncDir of its directory returned nil, and nothing else is. Mem is as mean as that
// contract allows, so that code tested on it does not lean on what one kernel happens to do.
//
// Concurrency: every method may be called from any goroutine. Two writes to overlapping bytes of a file are the
// caller's own problem, as is a Close during another call.
//
// Non-obvious
//
//   - A failed sync says that the bytes written before it are in an unknown state for ever; a later sync that returns
//     nil proves nothing about them (the kernel drops the dirty mark when it reports the error). TestInjectFailsOnce
//     shows the shape; the users of this package stop writing after the first error.
//   - SyncData also saves the length of the file, as fdatasync does, but not its name. Create, then SyncData, then a
//     power cut may leave no file: TestMemUnsyncedNameIsLost.
//   - Rename is atomic in itself but not durable before SyncDir: TestMemRenameIsWholeOrNotAtAll.
//   - Reads go through the page cache even where WriteDirect goes past it, and never find what was there before a write
//     that has returned: TestDirectWritesAreSeen.
//   - Preallocate on Linux leaves unwritten extents. Their first overwrite still changes metadata, overwriting a
//     recycled file does not.
package vfs
