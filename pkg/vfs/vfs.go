package vfs

import "io"

// FS names files. Paths use the separator of the system, as path/filepath does.
type FS interface {
	// Create makes a new empty file, open for reading and writing. It fails with fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Rename gives a file another name in the same directory, replacing what had that name.
	Rename(from, to string) error
	// Remove deletes a name. Files that are open stay readable.
	Remove(name string) error
	// List returns the names (not paths) in a directory, sorted.
	List(dir string) ([]string, error)
	// MkdirAll makes a directory and its parents, and makes their names durable.
	MkdirAll(dir string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes the lock file name, making it if needed, until the returned Closer is closed or the process ends.
	// It fails at once with ErrLocked when it is held.
	Lock(name string) (io.Closer, error)
	// FreeSpace returns the bytes that an unprivileged process may still allocate where dir is.
	FreeSpace(dir string) (uint64, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteDirect is WriteAt for bytes that are not read again soon: where system and file system can, they go to the
	// device past the page cache, which neither copies nor keeps them. They can when p lies at a multiple of DirectAlign in
	// memory and in the file and is a multiple of it long; otherwise, or if they refuse, it is WriteAt. It promises no more
	// than WriteAt does: SyncData makes the bytes durable.
	WriteDirect(p []byte, off int64) (int, error)
	// SyncData makes all bytes written so far and the length durable.
	SyncData() error
	// Sync is SyncData and all other metadata.
	Sync() error
	// Preallocate makes the file at least size bytes long, with disk blocks behind every byte, so that later writes
	// below size cannot run out of space where the file system can promise that. Bytes that were there stay, new ones
	// are zero. On error the file may be longer than before, and holds what it held.
	Preallocate(size int64) error
	// Truncate sets the length.
	Truncate(size int64) error
	// Size returns the length.
	Size() (int64, error)
}
