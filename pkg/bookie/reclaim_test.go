package bookie

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

const testSegment = 64 << 10

func openTestJournal(t *testing.T, fs vfs.FS) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Options{Dir: "/j", FS: fs, SegmentSize: testSegment, SyncData: true})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func testSpace(j *journal.Journal, fs vfs.FS) *space {
	return &space{journal: j, fs: fs, dir: "/j", rate: 1 << 40, share: reclaimShare, batch: reclaimBatch, log: slog.New(slog.DiscardHandler)}
}

// interleaved is a log whose proposals have an entry for each of some ledgers; then the odd ledgers are deleted.
func interleaved(ledgers, proposals, size int) []*raft.Log {
	return interleavedWithout(2, ledgers, proposals, size)
}

// interleavedWithout deletes one ledger in so many.
func interleavedWithout(oneIn, ledgers, proposals, size int) []*raft.Log {
	var create, remove []byte
	for l := range ledgers {
		create = (&ledger.Command{Op: ledger.OpCreate, Ledger: ledger.ID(l), Epoch: 1}).AppendTo(create)
		if l%oneIn == 1 {
			remove = (&ledger.Command{Op: ledger.OpDelete, Ledger: ledger.ID(l)}).AppendTo(remove)
		}
	}
	data := [][]byte{create}
	for i := range proposals {
		var b []byte
		for l := range ledgers {
			b = append(b, testAppend(ledger.ID(l), 1, ledger.EntryID(i), fmt.Sprintf("%d:%0*d", l, size, i))...)
		}
		data = append(data, b)
	}
	var logs []*raft.Log
	for i, b := range append(data, remove) {
		logs = append(logs, &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: b})
	}
	return logs
}

// stored writes a log to a journal, applies it and compacts all of it.
func stored(t *testing.T, g *journal.Group, logs []*raft.Log) *fsm {
	t.Helper()
	f := newFSM(newHealth(nil))
	s := testStore(t, g, 1)
	for _, l := range logs {
		if err := s.StoreLog(l); err != nil {
			t.Fatal(err)
		}
		f.Apply(l)
	}
	if err := g.CompactPrefix(logs[len(logs)-1].Index); err != nil {
		t.Fatal(err)
	}
	return f
}

// liveBytes checks that every entry that the index names can be read, and counts their bytes.
func liveBytes(t *testing.T, g *journal.Group, f *fsm) int64 {
	t.Helper()
	n := int64(0)
	err := f.view().each(0, func(id ledger.ID, r run) error {
		b, err := g.ReadPiece(r.index, r.piece(), nil)
		if err == nil {
			err = r.check(b)
		}
		if err != nil {
			return fmt.Errorf("ledger %d, entry %d: %w", id, r.first, err)
		}
		n += int64(len(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func diskUse(t *testing.T, fs vfs.FS) int64 {
	t.Helper()
	names, err := fs.List("/j")
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for _, name := range names {
		f, err := fs.Open(filepath.Join("/j", name))
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		n += size
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Half of the ledgers are deleted, and every proposal has entries of both halves. The disk use falls to what the other
// half takes, and all of that stays readable.
func TestReclaimInterleaved(t *testing.T) {
	mem := vfs.NewMem()
	j := openTestJournal(t, mem)
	f := stored(t, j.Group(1), interleaved(8, 1500, 400))
	before := diskUse(t, mem)
	total := swept{}
	for range 3 {
		done, err := testSpace(j, mem).sweep(t.Context(), []holder{{group: j.Group(1), view: f.view}})
		if err != nil {
			t.Fatal(err)
		}
		total.segments += done.segments
		total.copied += done.copied
	}
	live, after := liveBytes(t, j.Group(1), f), diskUse(t, mem)
	const few = 8 * testSegment // the one being written, the next one, four spares, one that is half full, and summaries
	if float64(after) > 1.3*float64(live)+few || before < 2*live {
		t.Errorf("%d bytes on disk, before %d, live %d: %+v", after, before, live, total)
	}
	if total.copied > 2*live {
		t.Errorf("%d bytes were copied for %d that are live", total.copied, live)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openTestJournal(t, mem)
	liveBytes(t, j.Group(1), f)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is a fifth of each segment stays until it is waited for, and is then given back, which takes a while and no second round.
func TestReclaimHurried(t *testing.T) {
	mem := vfs.NewMem()
	const segment = 1 << 20
	j, err := journal.Open(journal.Options{Dir: "/j", FS: mem, SegmentSize: segment})
	if err != nil {
		t.Fatal(err)
	}
	f := stored(t, j.Group(1), interleavedWithout(5, 5, 1000, 2000))
	s, holders := testSpace(j, mem), []holder{{group: j.Group(1), view: f.view}}
	s.batch = segment / reclaimPart
	sweep := func() swept {
		t.Helper()
		done, err := s.sweep(t.Context(), holders)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	all := len(j.Segments())
	if done := sweep(); done.segments > 1 { // one at the end may be half empty
		t.Errorf("without need: %+v of %d segments", done, all)
	}
	s.share = hurriedShare
	sweep()
	if left := len(j.Segments()); left > all*17/20 {
		t.Errorf("%d segments of %d are left of four fifths", left, all)
	}
	if done := sweep(); done.segments > 1 {
		t.Errorf("once more: %+v", done)
	}
	liveBytes(t, j.Group(1), f)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// A crash at any operation of a round loses nothing that a ledger has.
func TestReclaimCrash(t *testing.T) {
	logs := interleaved(4, 120, 400)
	for n := int64(1); ; n++ {
		mem := vfs.NewMem()
		j := openTestJournal(t, mem)
		f := stored(t, j.Group(1), logs)
		mem.PowerOffAfter(n)
		_, err := testSpace(j, mem).sweep(t.Context(), []holder{{group: j.Group(1), view: f.view}})
		_ = j.Close() // its power may be off
		back := openTestJournal(t, mem.Crash(uint64(n)))
		liveBytes(t, back.Group(1), f)
		if cerr := back.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		if err == nil {
			if n < 20 {
				t.Errorf("a round has only %d operations", n)
			}
			return
		}
	}
}

// Whatever a group does, round after round beside it, what its ledgers have stays readable, and what they do not have
// goes in the end.
func TestReclaimRandom(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 5))
		mem := vfs.NewMem()
		j := openTestJournal(t, mem)
		g, other := j.Group(1), j.Group(2)
		f, s := newFSM(newHealth(nil)), testStore(t, g, 1)
		if err := other.Append([]journal.Record{{Index: 1, Term: 1, Data: make([]byte, 2000)}}); err != nil {
			t.Fatal(err)
		}
		holders := []holder{{group: g, view: f.view}, {group: other}}
		for _, l := range randomLog(rng, 1500) {
			if err := s.StoreLog(l); err != nil {
				t.Fatal(err)
			}
			f.Apply(l)
			if rng.IntN(50) == 0 {
				if err := g.CompactPrefix(l.Index - uint64(rng.IntN(10))); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(200) == 0 {
				if _, err := testSpace(j, mem).sweep(t.Context(), holders); err != nil {
					t.Fatal(err)
				}
				liveBytes(t, g, f)
			}
		}
		if _, err := other.Place(1); err != nil {
			t.Fatalf("seed %d: the log of a group whose ledgers are not known: %v", seed, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Of several errors of a move, all damage is reported and the others are passed on.
func TestDamageAmongOtherErrors(t *testing.T) {
	var indexes []uint64
	h := holder{repair: func(index uint64) { indexes = append(indexes, index) }}
	full := errors.New("full")
	err := h.intact(errors.Join(&journal.CorruptError{Index: 3}, full, &journal.CorruptError{Index: 5}))
	if !errors.Is(err, full) || errors.Is(err, journal.ErrCorrupt) || !slices.Equal(indexes, []uint64{3, 5}) {
		t.Errorf("%v, reported %v", err, indexes)
	}
	if err := h.intact(errors.Join(&journal.CorruptError{Index: 7})); err != nil {
		t.Errorf("damage alone: %v", err)
	}
}
