// Package journal is the write-ahead log that all Raft groups of a bookie share.
package journal
