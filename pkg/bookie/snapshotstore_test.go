package bookie

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

// randomLog is the log of a group with a few ledgers that are written, fenced, closed early and deleted.
func randomLog(rng *rand.Rand, entries int) []*raft.Log {
	var logs []*raft.Log
	last := map[ledger.ID]ledger.EntryID{}
	next := ledger.ID(1)
	for i := range entries {
		var data []byte
		for range 1 + rng.IntN(4) {
			ids := slices.Sorted(maps.Keys(last))
			if len(ids) < 2 || rng.IntN(20) == 0 {
				data = (&ledger.Command{Op: ledger.OpCreate, Ledger: next, Epoch: 1}).AppendTo(data)
				last[next] = ledger.NoEntry
				next++
				continue
			}
			id := ids[rng.IntN(len(ids))]
			switch rng.IntN(12) {
			case 0:
				data = (&ledger.Command{Op: ledger.OpDelete, Ledger: id}).AppendTo(data)
				delete(last, id)
			case 1:
				to := ledger.EntryID(rng.IntN(int(last[id])+2)) - 1
				data = (&ledger.Command{Op: ledger.OpClose, Ledger: id, Epoch: 1, Last: to}).AppendTo(data)
			case 2:
				data = (&ledger.Command{Op: ledger.OpFence, Ledger: id, Epoch: 2}).AppendTo(data)
			default:
				payloads := make([]string, 1+rng.IntN(3))
				for k := range payloads {
					payloads[k] = fmt.Sprintf("ledger %d, entry %d", id, int(last[id])+1+k)
				}
				data = append(data, testAppend(id, 1, last[id]+1, payloads...)...)
				last[id] += ledger.EntryID(len(payloads)) // refused ones end this ledger's appends; that is fine
			}
		}
		logs = append(logs, &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: data})
	}
	return logs
}

func encodeFSM(t *testing.T, f *fsm) []byte {
	t.Helper()
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := snap.(*fsmState).encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// allRuns is the whole index.
func allRuns(t *testing.T, f *fsm) []need {
	t.Helper()
	var out []need
	if err := f.view().each(0, func(id ledger.ID, r run) error {
		out = append(out, need{id, r})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// A machine and its index that were restored from a snapshot, and went on from there, are those that replayed
// everything; also when the snapshot is encoded only after the machine went on.
func TestSnapshotAndReplayIsReplay(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		logs := randomLog(rng, 120)
		whole, some := newFSM(newHealth(nil)), newFSM(newHealth(nil))
		cut := rng.IntN(len(logs) + 1)
		some.ApplyBatch(logs[:cut])
		early := encodeFSM(t, some)
		snap, err := some.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		some.ApplyBatch(logs[cut:])
		var late bytes.Buffer
		if err := snap.(*fsmState).encode(&late); err != nil || !bytes.Equal(late.Bytes(), early) {
			t.Fatalf("seed %d: what came after a snapshot at %d is in it (%v)", seed, cut, err)
		}
		back := newFSM(newHealth(nil))
		if err := back.Restore(io.NopCloser(&late)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back.ApplyBatch(logs[cut:])
		whole.ApplyBatch(logs)
		if !bytes.Equal(encodeFSM(t, back), encodeFSM(t, whole)) || back.applied.Load() != whole.applied.Load() {
			t.Fatalf("seed %d: snapshot at %d and replay differ from replay", seed, cut)
		}
		if !slices.Equal(allRuns(t, back), allRuns(t, whole)) {
			t.Fatalf("seed %d: the index differs", seed)
		}
	}
}

// No bit of a snapshot can flip, and no part of it be missing, without being noticed; and nothing changes then.
func TestDamagedStateIsNotRestored(t *testing.T) {
	f := newFSM(newHealth(nil))
	f.ApplyBatch(randomLog(rand.New(rand.NewPCG(1, 1)), 30))
	good := encodeFSM(t, f)
	for i := range len(good) * 8 {
		b := bytes.Clone(good)
		b[i/8] ^= 1 << (i % 8)
		if err := f.Restore(io.NopCloser(bytes.NewReader(b))); err == nil {
			t.Fatalf("bit %d", i)
		}
	}
	for n := range good {
		if err := f.Restore(io.NopCloser(bytes.NewReader(good[:n]))); err == nil {
			t.Fatalf("%d bytes of %d", n, len(good))
		}
	}
	if !bytes.Equal(encodeFSM(t, f), good) {
		t.Fatal("a refused snapshot changed something")
	}
}

func openSnapshots(t *testing.T, fs vfs.FS) *snapshotStore {
	t.Helper()
	s, err := openSnapshotStore(fs, "/s", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func writeSnapshot(s *snapshotStore, f *fsm, index, term uint64) error {
	sink, err := s.Create(1, index, term, configurationOf([]string{"a", "b"}), 1, nil)
	if err != nil {
		return err
	}
	return f.stateLocked().Persist(sink)
}

func restoreNewest(t *testing.T, s *snapshotStore) (*fsm, raft.SnapshotMeta) {
	t.Helper()
	m, ok := s.newest()
	if !ok {
		return nil, m
	}
	meta, r, err := s.Open(m.ID)
	if err != nil {
		t.Fatal(err)
	}
	f := newFSM(newHealth(nil))
	if err := f.Restore(r); err != nil {
		t.Fatal(err)
	}
	return f, *meta
}

// A crash at any operation leaves the snapshot before or the new one, whole, and never less than was reported.
func TestSnapshotStoreCrash(t *testing.T) {
	logs := randomLog(rand.New(rand.NewPCG(7, 7)), 60)
	for n := int64(1); ; n++ {
		mem := vfs.NewMem()
		s := openSnapshots(t, mem)
		f := newFSM(newHealth(nil))
		mem.PowerOffAfter(n)
		done, finished := uint64(0), true
		for i := 0; i < 60; i += 20 {
			f.ApplyBatch(logs[i : i+20])
			if err := writeSnapshot(s, f, uint64(i+20), 1); err != nil {
				finished = false
				break
			}
			done = uint64(i + 20)
		}
		s = openSnapshots(t, mem.Crash(uint64(n)))
		back, meta := restoreNewest(t, s)
		if len(s.damaged) > 0 || meta.Index < done || meta.Index > done+20 {
			t.Fatalf("crash at %d: snapshot %d (%d damaged), %d was done", n, meta.Index, len(s.damaged), done)
		}
		if back != nil && (back.applied.Load() != meta.Index || len(meta.Configuration.Servers) != 2) {
			t.Fatalf("crash at %d: %+v restored up to %d", n, meta, back.applied.Load())
		}
		if finished {
			if n < 10 || len(s.metas) != snapshotKept || s.floor() != 40 {
				t.Fatalf("after %d operations %d snapshots, floor %d", n, len(s.metas), s.floor())
			}
			return
		}
	}
}

// A bit that flips anywhere in a file is noticed when the store opens, and the snapshot before is the newest then.
func TestDamagedSnapshotIsLeftOut(t *testing.T) {
	mem := vfs.NewMem()
	s := openSnapshots(t, mem)
	f := newFSM(newHealth(nil))
	logs := randomLog(rand.New(rand.NewPCG(9, 9)), 40)
	for i := 0; i < 40; i += 20 {
		f.ApplyBatch(logs[i : i+20])
		if err := writeSnapshot(s, f, uint64(i+20), 1); err != nil {
			t.Fatal(err)
		}
	}
	m, _ := s.newest()
	file, err := mem.Open(filepath.Join("/s", m.ID))
	if err != nil {
		t.Fatal(err)
	}
	size, _ := file.Size()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		at, bit := rng.Int64N(size), byte(1)<<rng.IntN(8)
		flip := func() {
			var b [1]byte
			if _, err := file.ReadAt(b[:], at); err != nil {
				t.Fatal(err)
			}
			b[0] ^= bit
			if _, err := file.WriteAt(b[:], at); err != nil {
				t.Fatal(err)
			}
		}
		flip()
		s := openSnapshots(t, mem)
		if m, _ := s.newest(); m.Index != 20 || len(s.damaged) != 1 || s.damaged[0].Index != 40 {
			t.Fatalf("byte %d of %d, bit %d: newest is %d, %d damaged", at, size, bit, m.Index, len(s.damaged))
		}
		flip()
	}
	if err := writeSnapshot(openSnapshots(t, mem), f, 40, 1); err != nil {
		t.Fatal(err)
	}
}

// A snapshot of another version that is whole is no damage, which would be replaced: the store does not open, and nothing
// is removed.
func TestSnapshotOfAnotherVersion(t *testing.T) {
	mem := vfs.NewMem()
	f := newFSM(newHealth(nil))
	f.ApplyBatch(randomLog(rand.New(rand.NewPCG(9, 9)), 20))
	s := openSnapshots(t, mem)
	if err := writeSnapshot(s, f, 20, 1); err != nil {
		t.Fatal(err)
	}
	m, _ := s.newest()
	file, err := mem.Open(filepath.Join("/s", m.ID))
	if err != nil {
		t.Fatal(err)
	}
	state, err := readFileMeta(file, &m)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, state.Size())
	if _, err := state.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	size, _ := file.Size()
	b[len(stateMagic)]--
	b = binary.BigEndian.AppendUint32(b[:len(b)-stateTrailer], crc32.Checksum(b[:len(b)-stateTrailer], castagnoli))
	if _, err := file.WriteAt(b, size-int64(len(b))); err != nil {
		t.Fatal(err)
	}
	ops := mem.Ops()
	if _, err := openSnapshotStore(mem, "/s", slog.New(slog.DiscardHandler)); !errors.Is(err, errStateVersion) || isDamage(err) {
		t.Fatalf("opened: %v", err)
	}
	if _, err := decodeState(b); !errors.Is(err, errStateVersion) {
		t.Fatalf("restored: %v", err)
	}
	names, _ := mem.List("/s")
	if !slices.Contains(names, m.ID) || mem.Ops() > ops+1 { // it makes the directory
		t.Fatalf("%d operations changed something: %v", mem.Ops()-ops, names)
	}
}
