package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"

	"geminga/pkg/journal"
)

// stores are the logs of groups on three nodes.
type stores struct {
	open  func(node, group int) (logStore, error)
	look  func() written
	close func() error
}

func notCounted() written { return written{} }

func nothing() error { return nil }

// ownDir gives each replica a directory.
func ownDir(dir string, open func(dir string) (logStore, error)) stores {
	return stores{look: notCounted, close: nothing, open: func(node, group int) (logStore, error) {
		own := filepath.Join(dir, fmt.Sprintf("%d-%d", node, group))
		if err := os.MkdirAll(own, 0o755); err != nil {
			return nil, err
		}
		return open(own)
	}}
}

func walStores(dir string) (stores, error) {
	return ownDir(dir, func(own string) (logStore, error) { return wal.Open(own) }), nil
}

// boltStores are opened as the metadata group's log is.
func boltStores(dir string) (stores, error) {
	return ownDir(dir, func(own string) (logStore, error) {
		return boltdb.New(boltdb.Options{
			Path: filepath.Join(own, "log"), BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
		})
	}), nil
}

// journalStores are a journal for each node, shared by its groups.
func journalStores(dir string) (stores, error) {
	fs := newCountingFS()
	var all []*journal.Journal
	s := stores{look: fs.look}
	s.close = func() error {
		var errs []error
		for _, j := range all {
			errs = append(errs, j.Close())
		}
		return errors.Join(errs...)
	}
	for node := range replicas {
		o := journal.DefaultOptions(filepath.Join(dir, fmt.Sprint(node)))
		o.FS = fs
		j, err := journal.Open(o)
		if err != nil {
			return s, errors.Join(err, s.close())
		}
		all = append(all, j)
	}
	s.open = func(node, group int) (logStore, error) { return journalStore{all[node].Group(uint32(group + 1))}, nil }
	return s, nil
}

// journalStore is a group of the journal as a log store: what a bookie does, without snapshots and ledgers.
type journalStore struct{ group *journal.Group }

// FirstIndex implements raft.LogStore.
func (s journalStore) FirstIndex() (uint64, error) { return s.group.FirstIndex(), nil }

// LastIndex implements raft.LogStore.
func (s journalStore) LastIndex() (uint64, error) { return s.group.LastIndex(), nil }

// GetLog implements raft.LogStore.
func (s journalStore) GetLog(index uint64, log *raft.Log) error {
	var rec journal.Record
	if err := s.group.Get(index, &rec); err != nil {
		if errors.Is(err, journal.ErrNotFound) {
			return raft.ErrLogNotFound
		}
		return err
	}
	*log = raft.Log{Index: rec.Index, Term: rec.Term, Type: raft.LogType(rec.Type), Data: rec.Data, Extensions: rec.Extra}
	if rec.Stamp != 0 {
		log.AppendedAt = time.Unix(0, rec.Stamp)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (s journalStore) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (s journalStore) StoreLogs(logs []*raft.Log) error {
	recs := make([]journal.Record, len(logs))
	for i, l := range logs {
		recs[i] = journal.Record{Index: l.Index, Term: l.Term, Type: uint8(l.Type), Data: l.Data, Extra: l.Extensions}
		if !l.AppendedAt.IsZero() {
			recs[i].Stamp = l.AppendedAt.UnixNano()
		}
	}
	return s.group.Append(recs)
}

// DeleteRange implements raft.LogStore for the end of a log: nothing is ever compacted here.
func (s journalStore) DeleteRange(lo, _ uint64) error { return s.group.TruncateSuffix(lo) }

// Set implements raft.StableStore.
func (s journalStore) Set(key, val []byte) error { return s.group.SetStable(key, val) }

// Get implements raft.StableStore.
func (s journalStore) Get(key []byte) ([]byte, error) {
	v, err := s.group.GetStable(key)
	if errors.Is(err, journal.ErrNotFound) {
		return nil, nil
	}
	return v, err
}

// SetUint64 implements raft.StableStore.
func (s journalStore) SetUint64(key []byte, val uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, val))
}

// GetUint64 implements raft.StableStore.
func (s journalStore) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil || len(v) != 8 {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}
