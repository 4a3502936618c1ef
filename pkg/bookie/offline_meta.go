package bookie

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// offlineMeta is the metadata group's replica of a bookie that does not run.
type offlineMeta struct {
	dir string
	log metaLog
	err error // why even the file cannot be opened
}

// openOfflineMeta opens the log. It cannot be opened through vfs: bbolt does its own I/O.
func openOfflineMeta(dir string) (*offlineMeta, error) {
	m := &offlineMeta{dir: dir}
	options := *bbolt.DefaultOptions
	options.Timeout, options.ReadOnly = boltLockWait, true
	path := filepath.Join(dir, boltFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("metadata log: %w", err)
	}
	var err error
	m.log, err = openMetaLog(dir, &options)
	switch {
	case errors.Is(err, bbolt.ErrTimeout): //nolint:staticcheck // it is the value that the library returns
		return nil, fmt.Errorf("%s is in use by another process; stop the bookie first: %w", path, err)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("metadata log: %w", err)
	case err != nil:
		m.err = err
	}
	return m, nil
}

func (m *offlineMeta) close() error { return m.log.Close() }

// guard makes an error of the panics and the faults with which bbolt answers to a damaged file.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

// group describes the replica.
func (m *offlineMeta) group() OfflineGroup {
	g := OfflineGroup{Group: ledger.MetadataGroup, Kind: "metadata"}
	err := m.err
	if err == nil {
		err = m.bounds(&g)
	}
	g.Damage = text(err)
	return g
}

func (m *offlineMeta) bounds(g *OfflineGroup) (err error) {
	if g.First, err = m.log.FirstIndex(); err != nil {
		return err
	}
	if g.Last, err = m.log.LastIndex(); err != nil {
		return err
	}
	if g.Term, err = m.log.GetUint64([]byte(termKey)); err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	for i := g.First; i <= g.Last && i > 0; i++ {
		var log raft.Log
		if m.log.GetLog(i, &log) != nil {
			g.Unreadable++
			continue
		}
		g.Bytes += int64(len(log.Data))
		g.LastTerm = log.Term
	}
	return nil
}

// verify decodes all of the log and of the snapshots.
func (m *offlineMeta) verify(r *VerifyReport) error {
	bad := func(file string, index uint64, format string, args ...any) {
		r.Damage = append(r.Damage, Damage{File: filepath.Join("metadata", file), Index: index, Reason: fmt.Sprintf(format, args...)})
	}
	if m.err != nil {
		bad(boltFile, 0, "%v", m.err)
	} else if err := m.verifyLog(r, bad); err != nil {
		bad(boltFile, 0, "%v", err)
	}
	dirs, err := filepath.Glob(filepath.Join(m.dir, raftSnapshots, "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if strings.HasSuffix(dir, ".tmp") {
			continue // never finished
		}
		r.Snapshots++
		if err := verifySnapshot(dir); errors.Is(err, ErrDamaged) {
			bad(filepath.Join(raftSnapshots, filepath.Base(dir)), 0, "%v", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (m *offlineMeta) verifyLog(r *VerifyReport, bad func(string, uint64, string, ...any)) error {
	first, err := m.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := m.log.LastIndex()
	if err != nil {
		return err
	}
	for i := first; i <= last && i > 0; i++ {
		var log raft.Log
		r.Metadata++
		err := m.log.GetLog(i, &log)
		switch {
		case err != nil:
			bad(boltFile, i, "cannot be decoded: %v", err)
		case log.Index != i:
			bad(boltFile, i, "holds entry %d", log.Index)
		case log.Type == raft.LogCommand:
			if _, err := metadata.DecodeTxn(log.Data); err != nil {
				bad(boltFile, i, "%v", err)
			}
		}
	}
	return nil
}

// verifySnapshot checks a directory that raft.FileSnapshotStore made. The store itself cannot be asked: it writes when it
// is opened. Damage is ErrDamaged.
func verifySnapshot(dir string) error {
	about, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return missing(err)
	}
	var meta struct {
		raft.SnapshotMeta
		CRC []byte
	}
	if err := json.Unmarshal(about, &meta); err != nil {
		return fmt.Errorf("%w: meta.json: %w", ErrDamaged, err)
	}
	state, err := os.ReadFile(filepath.Join(dir, "state.bin"))
	if err != nil {
		return missing(err)
	}
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = sum.Write(state) // never fails
	if !bytes.Equal(sum.Sum(nil), meta.CRC) {
		return fmt.Errorf("%w: checksum of state.bin", ErrDamaged)
	}
	if err := metadata.NewMachine().Restore(state); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

func missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}
