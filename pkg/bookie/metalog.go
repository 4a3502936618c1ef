package bookie

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// metaLog is the metadata group's log and stable store. bbolt has checksums for its two meta pages only, so every entry
// and every value has one of its own here: an entry in its Extensions, which nobody else uses and which are not handed on,
// a value behind it. What does not agree is ErrDamaged, and so is what makes bbolt panic.
type metaLog struct{ bolt *raftboltdb.BoltStore }

// openMetaLog opens the file below dir.
func openMetaLog(dir string, options *bbolt.Options) (s metaLog, err error) {
	path := filepath.Join(dir, boltFile)
	err = guard(func() (err error) {
		s.bolt, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options})
		return err
	})
	if err != nil {
		return metaLog{}, fmt.Errorf("metadata log %s: %w", path, err)
	}
	return s, nil
}

// Close closes the file, if it was opened.
func (s metaLog) Close() error {
	if s.bolt == nil {
		return nil
	}
	return s.bolt.Close()
}

// FirstIndex implements raft.LogStore.
func (s metaLog) FirstIndex() (i uint64, err error) {
	err = guard(func() (err error) { i, err = s.bolt.FirstIndex(); return err })
	return i, err
}

// LastIndex implements raft.LogStore.
func (s metaLog) LastIndex() (i uint64, err error) {
	err = guard(func() (err error) { i, err = s.bolt.LastIndex(); return err })
	return i, err
}

// GetLog implements raft.LogStore.
func (s metaLog) GetLog(index uint64, log *raft.Log) error {
	var found raft.Log
	err := guard(func() error { return s.bolt.GetLog(index, &found) })
	if errors.Is(err, raft.ErrLogNotFound) {
		return raft.ErrLogNotFound // the library compares
	}
	if err != nil {
		return fmt.Errorf("%w: metadata entry %d: %w", ErrDamaged, index, err)
	}
	sum := found.Extensions
	found.Extensions = nil
	if found.Index != index || len(sum) != crc32.Size || binary.BigEndian.Uint32(sum) != entrySum(&found) {
		return fmt.Errorf("%w: metadata entry %d does not agree with its checksum", ErrDamaged, index)
	}
	*log = found
	return nil
}

// StoreLog implements raft.LogStore.
func (s metaLog) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (s metaLog) StoreLogs(logs []*raft.Log) error {
	summed := make([]*raft.Log, len(logs))
	for i, log := range logs {
		l := *log
		l.Extensions = binary.BigEndian.AppendUint32(nil, entrySum(log))
		summed[i] = &l
	}
	return guard(func() error { return s.bolt.StoreLogs(summed) })
}

// DeleteRange implements raft.LogStore.
func (s metaLog) DeleteRange(lo, hi uint64) error {
	return guard(func() error { return s.bolt.DeleteRange(lo, hi) })
}

// entrySum covers what raft acts on.
func entrySum(l *raft.Log) uint32 {
	head := binary.BigEndian.AppendUint64(nil, l.Index)
	head = append(binary.BigEndian.AppendUint64(head, l.Term), byte(l.Type))
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, l.Data)
}

// Set implements raft.StableStore.
func (s metaLog) Set(key, val []byte) error {
	return guard(func() error {
		return s.bolt.Set(key, binary.BigEndian.AppendUint32(val[:len(val):len(val)], valueSum(key, val)))
	})
}

// Get implements raft.StableStore. The error for what is not there is the library's own, which raft compares.
func (s metaLog) Get(key []byte) (val []byte, err error) {
	err = guard(func() (err error) { val, err = s.bolt.Get(key); return err })
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, raftboltdb.ErrKeyNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("%w: metadata value %s: %w", ErrDamaged, key, err)
	}
	n := len(val) - crc32.Size
	if n < 0 || binary.BigEndian.Uint32(val[n:]) != valueSum(key, val[:n]) {
		return nil, fmt.Errorf("%w: metadata value %s does not agree with its checksum", ErrDamaged, key)
	}
	return val[:n], nil
}

func valueSum(key, val []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, val)
}

// SetUint64 implements raft.StableStore.
func (s metaLog) SetUint64(key []byte, val uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, val))
}

// GetUint64 implements raft.StableStore.
func (s metaLog) GetUint64(key []byte) (uint64, error) {
	val, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(val) != 8 {
		return 0, fmt.Errorf("%w: metadata value %s has %d bytes", ErrDamaged, key, len(val))
	}
	return binary.BigEndian.Uint64(val), nil
}
