package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/vfs"
)

// built returns a file system with a journal that a workload filled, closed or as kill -9 leaves it.
func built(t *testing.T, closed bool) (*vfs.Mem, *workload) {
	t.Helper()
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	w := newWorkload()
	must(t, w.run(j, 80))
	if closed {
		mustClose(t, j)
		return mem, w
	}
	after := mem.Crash(1)
	mustClose(t, j)
	return after, w
}

// region is a stretch of a segment that matters.
type region struct {
	path     string
	from, to int64
	group    uint32 // whose record it is, 0: headers
	entry    bool   // the bytes behind the header of an entry
}

// regions lists the batches of all segments, without padding, in order.
func regions(t *testing.T, mem *vfs.Mem) []region {
	t.Helper()
	names, err := mem.List(testDir)
	must(t, err)
	var all []region
	for _, name := range names {
		number, ok := parseName(name, segmentSuffix)
		if !ok {
			continue
		}
		path := filepath.Join(testDir, name)
		f, err := mem.Open(path)
		must(t, err)
		size, _ := f.Size()
		var s scanner
		s.reset(f, number, size)
		first, ok, err := s.batch(segmentHeaderLen)
		must(t, err)
		if !ok {
			continue // prepared
		}
		all = append(all, region{path: path, from: 0, to: 52})
		for off, n := int64(segmentHeaderLen), first.number; ; n++ {
			h, ok, err := s.batch(off)
			must(t, err)
			if !ok || h.number != n {
				break
			}
			all = append(all, region{path: path, from: off, to: off + batchHeaderLen})
			list, _, _, err := s.records(&h, off, nil)
			must(t, err)
			for _, f := range list {
				all = append(all, region{path: path, from: f.off, to: f.off + recordHeaderLen})
				if f.size() > recordHeaderLen {
					all = append(all, region{path, f.off + recordHeaderLen, f.off + f.size(), f.group, f.kind == kindEntry})
				}
			}
			off += padded(batchHeaderLen + int64(h.length))
		}
	}
	return all
}

// removeSummaries makes recovery read everything.
func removeSummaries(t *testing.T, mem *vfs.Mem) {
	t.Helper()
	names, err := mem.List(testDir)
	must(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, summarySuffix) {
			must(t, mem.Remove(filepath.Join(testDir, name)))
		}
	}
}

func flip(t *testing.T, mem *vfs.Mem, path string, off int64, mask byte) {
	t.Helper()
	f, err := mem.Open(path)
	must(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, off)
	must(t, err)
	b[0] ^= mask
	_, err = f.WriteAt(b, off)
	must(t, err)
	must(t, f.SyncData())
	must(t, f.Close())
}

// TestBitFlips flips one bit anywhere in a closed journal. Each group must then be whole, or say that it is not; a flip
// in an entry stops its own group and no other, and the error names it. The damage is still there after more restarts.
func TestBitFlips(t *testing.T) {
	t.Parallel()
	mem, w := built(t, true)
	all := regions(t, mem)
	damaged := 0
	for seed := range uint64(120 * *sweeps) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := all[rng.IntN(len(all))]
		off := r.from + rng.Int64N(r.to-r.from)
		name := fmt.Sprintf("seed %d: %s at %d (%+v)", seed, r.path, off, r)
		hurt, summaries := mem.Crash(0), seed%2 == 0
		if !summaries {
			removeSummaries(t, hurt)
		}
		flip(t, hurt, r.path, off, 1<<rng.IntN(8))
		bad := map[uint32]string{}
		for round := range 3 {
			j, err := Open(testOptions(hurt))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for id, m := range w.acked {
				g := j.Group(id)
				err := g.Damaged()
				if err == nil {
					if err := matchesHurt(g, m, summaries); err != nil {
						t.Fatalf("%s round %d: group %d passes for whole: %v", name, round, id, err)
					}
					if bad[id] != "" {
						t.Fatalf("%s round %d: group %d healed by itself: %s", name, round, id, bad[id])
					}
					continue
				}
				checkStopped(t, name, g, err)
				if err := matchesHurt(g, m, summaries); err != nil {
					t.Fatalf("%s round %d: group %d: %v", name, round, id, err)
				}
				bad[id] = err.Error()
				if r.group != 0 && r.group != id {
					t.Fatalf("%s: group %d is damaged too: %v", name, id, err)
				}
			}
			if round < 2 { // whole groups go on
				for id := range w.acked {
					if bad[id] == "" {
						must(t, j.Group(id).SetStable([]byte("more"), []byte("x")))
					}
				}
			}
			mustClose(t, j)
		}
		if len(bad) > 0 {
			damaged++
		}
	}
	if damaged < 6 {
		t.Errorf("only %d of the flips did damage", damaged)
	}
}

// matchesHurt is matches, but what outlived the log may be damaged, or not there: others have it. Of a group that is
// stopped only that is looked at. In a segment that has a summary damage shows when the entry is read.
func matchesHurt(g *Group, m *model, summaries bool) error {
	if g.Damaged() == nil {
		if err := matchesLog(g, m); err != nil && (!summaries || !errors.Is(err, ErrCorrupt)) {
			return err
		}
	}
	return matchesKept(g, m, func(err error) bool { return errors.Is(err, ErrCorrupt) || err == ErrNotFound })
}

// TestTruncatedFiles cuts the end off a segment that another one followed. Groups are whole, or say that they are not.
func TestTruncatedFiles(t *testing.T) {
	t.Parallel()
	mem, w := built(t, true)
	all := regions(t, mem)
	newest := all[len(all)-1].path
	for seed := range uint64(40 * *sweeps) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := all[rng.IntN(len(all))]
		if r.path == newest {
			continue
		}
		hurt, summaries := mem.Crash(0), seed%2 == 0
		if !summaries {
			removeSummaries(t, hurt)
		}
		f, err := hurt.Open(r.path)
		must(t, err)
		at := r.from + rng.Int64N(r.to-r.from)
		if seed%5 == 0 {
			at = rng.Int64N(2 * segmentHeaderLen) // in its header, or in its head
		}
		must(t, f.Truncate(at))
		must(t, f.Sync())
		must(t, f.Close())
		j, err := Open(testOptions(hurt))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for id, m := range w.acked {
			if err := matchesHurt(j.Group(id), m, summaries); err != nil {
				t.Fatalf("seed %d: %s cut at %d: group %d: %v", seed, r.path, at, id, err)
			}
		}
		mustClose(t, j)
	}
}

// checkStopped looks at what a damaged group answers.
func checkStopped(t *testing.T, name string, g *Group, damage error) {
	t.Helper()
	var c *CorruptError
	if !errors.Is(damage, ErrCorrupt) || !errors.As(damage, &c) || c.Group != g.id {
		t.Fatalf("%s: group %d: %v", name, g.id, damage)
	}
	for i := g.FirstIndex(); i <= g.LastIndex() && i > 0; i++ {
		if err := g.Get(i, new(Record)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s: group %d index %d: %v", name, g.id, i, err)
		}
	}
	if err := g.Append([]Record{{Index: g.LastIndex() + 1}}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%s: group %d: append: %v", name, g.id, err)
	}
}

// TestBitFlipsAfterKill does the same to a journal that was not closed. A flip in the last batch looks like a torn
// write and cuts it; anywhere else it must be noticed.
func TestBitFlipsAfterKill(t *testing.T) {
	t.Parallel()
	mem, w := built(t, false)
	all := regions(t, mem)
	last := len(all) - 1
	for all[last].to-all[last].from != batchHeaderLen || all[last].from%sectorSize != 0 {
		last--
	}
	for seed := range uint64(80 * *sweeps) {
		rng := rand.New(rand.NewPCG(seed, 2))
		r := all[rng.IntN(last)]
		off := r.from + rng.Int64N(r.to-r.from)
		hurt := mem.Crash(0)
		flip(t, hurt, r.path, off, 1<<rng.IntN(8))
		j := mustOpen(t, testOptions(hurt))
		for id, m := range w.acked {
			if j.Group(id).Damaged() != nil {
				continue
			}
			if err := matchesHurt(j.Group(id), m, true); err != nil {
				t.Fatalf("seed %d: %s at %d: group %d passes for whole: %v", seed, r.path, off, id, err)
			}
		}
		mustClose(t, j)
	}
}

// A damaged entry heals by being compacted away, lost records only by Reset.
func TestHealing(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	for i := uint64(1); i <= 10; i++ {
		must(t, j.Group(1).Append([]Record{record(1, i, 100)}))
		must(t, j.Group(2).Append([]Record{record(2, i, 100)}))
	}
	p, err := j.Group(1).Place(4)
	must(t, err)
	q, err := j.Group(2).Place(5)
	must(t, err)
	mustClose(t, j)
	name := func(p Place) string { return filepath.Join(testDir, segmentName(p.Segment)) }
	flip(t, mem, name(p), p.Offset+recordHeaderLen+7, 1)
	j = mustOpen(t, testOptions(mem))
	var c *CorruptError
	if err := j.Group(1).Get(7, new(Record)); !errors.As(err, &c) || c.Index != 4 || c.Segment != p.Segment || c.Offset != p.Offset {
		t.Fatal(err)
	}
	if _, err := j.ReadAt(p, nil); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	must(t, j.Group(1).CompactPrefix(4))
	checkGroup(t, j.Group(1), 5, 10, 100)
	must(t, j.Group(1).Append([]Record{record(1, 11, 100)}))
	mustClose(t, j)
	removeSummaries(t, mem)
	flip(t, mem, name(q), q.Offset+16, 1) // the header: whose record it is cannot be told
	j = mustOpen(t, testOptions(mem))
	checkGroup(t, j.Group(1), 5, 11, 100)
	if err := j.Group(2).Damaged(); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	must(t, j.Group(2).Reset(0))
	checkGroup(t, j.Group(2), 0, 0, 0)
	must(t, j.Group(2).Append([]Record{record(2, 90, 100)}))
	mustClose(t, j)
	j = mustOpen(t, testOptions(mem))
	checkGroup(t, j.Group(1), 5, 11, 100)
	checkGroup(t, j.Group(2), 90, 90, 100)
	mustClose(t, j)
}

// Recycled files are kept for the next segments, and given back but for one when their space is needed.
func TestShed(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g := j.Group(1)
	next := uint64(1)
	for ; len(j.Segments()) < 2+maxSpares; next++ {
		must(t, g.Append([]Record{record(1, next, 700)}))
	}
	must(t, g.CompactPrefix(next-2))
	releaseAll(g)
	for _, old := range j.Segments()[:maxSpares] {
		must(t, j.Recycle(old))
	}
	free := func() uint64 {
		n, err := mem.FreeSpace("")
		must(t, err)
		return n
	}
	before := free()
	files, err := j.Shed()
	must(t, err)
	if got := free() - before; files != maxSpares-1 || got != uint64(files)*uint64(testOptions(mem).SegmentSize) {
		t.Errorf("%d files removed, %d bytes given back", files, got)
	}
	if files, err := j.Shed(); files != 0 || err != nil {
		t.Errorf("once more: %d files, %v", files, err)
	}
	for want := len(j.Segments()) + 3; len(j.Segments()) < want; next++ {
		must(t, g.Append([]Record{record(1, next, 700)}))
	}
	mustClose(t, j)
}

// The bytes of an earlier life of a file are valid under no other segment number.
func TestRecycledSegmentStaysDead(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g := j.Group(1)
	next := uint64(1)
	fill := func(segments int) {
		for want := len(j.Segments()) + segments; len(j.Segments()) < want; next++ {
			must(t, g.Append([]Record{record(1, next, 700)}))
		}
	}
	fill(2)
	old := j.Segments()[0]
	p, err := g.Place(1)
	must(t, err)
	if err := j.Recycle(old); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	must(t, g.CompactPrefix(next-2))
	if err := j.Recycle(old); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
	releaseAll(g)
	must(t, j.Recycle(old))
	if _, err := j.ReadAt(p, nil); !errors.Is(err, ErrNotFound) && err != nil {
		t.Fatal(err)
	}
	if err := j.Recycle(old); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	met := false
	for range 4 {
		fill(1)
		met = met || metStale(t, j, mem, old)
	}
	if !met {
		t.Fatal("the file was not used again")
	}
	first, last := g.FirstIndex(), g.LastIndex()
	crashed := mustOpen(t, testOptions(mem.Crash(3)))
	checkGroup(t, crashed.Group(1), first, last, 700)
	mustClose(t, crashed)
	mustClose(t, j)
}

// releaseAll releases all that the group has kept.
func releaseAll(g *Group) {
	var list []uint64
	g.Held(func(h Held) bool {
		list = append(list, h.Index)
		return true
	})
	g.Release(list)
}

// metStale looks for headers of batches of an old segment in the newest one and the one that is prepared.
func metStale(t *testing.T, j *Journal, mem *vfs.Mem, old uint64) bool {
	t.Helper()
	met := false
	newest := j.Segments()[len(j.Segments())-1]
	for _, n := range []uint64{newest, newest + 1} {
		f, err := mem.Open(j.segs.path(n))
		if err != nil {
			continue
		}
		b := make([]byte, batchHeaderLen)
		for off := int64(segmentHeaderLen); off < minSegmentSize; off += sectorSize {
			_, err := f.ReadAt(b, off)
			must(t, err)
			var h batchHeader
			if !h.parse(b, seedOf(old), off) {
				continue
			}
			met = true
			if h.parse(b, seedOf(n), off) {
				t.Fatalf("batch %d of segment %d is valid in segment %d", h.number, old, n)
			}
		}
	}
	return met
}

// A full disk refuses the calls that need another segment, and nothing else; with room again it goes on by itself.
func TestNoSpace(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g := j.Group(1)
	must(t, g.Append([]Record{record(1, 1, 1000)}))
	mem.SetCapacity(minSegmentSize + 100)
	i := uint64(2)
	var err error
	for ; err == nil; i++ {
		err = g.Append([]Record{record(1, i, 3000)})
	}
	if !errors.Is(err, ErrNoSpace) || !errors.Is(err, vfs.ErrNoSpace) || i < 4 {
		t.Fatal(i, err)
	}
	if err := g.Append([]Record{record(1, i-1, 3000)}); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	must(t, g.SetStable([]byte("small"), []byte("fits")))
	must(t, j.Err())
	must(t, g.Get(1, new(Record)))
	mem.SetCapacity(1 << 20)
	must(t, g.Append([]Record{record(1, i-1, 3000)}))
	mustClose(t, j)
	j = mustOpen(t, testOptions(mem))
	if g := j.Group(1); g.LastIndex() != i-1 || g.Damaged() != nil {
		t.Fatal(g.LastIndex(), g.Damaged())
	}
	mustClose(t, j)
}

// A write that hangs releases its caller, and everybody else, after the deadline, and Close does not wait for it.
func TestHungSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		inject := vfs.NewInject(mem)
		j := mustOpen(t, testOptions(inject))
		must(t, j.Group(1).Append([]Record{record(1, 1, 100)}))
		hang := inject.HangIf(vfs.Kinds(vfs.OpSync))
		errs := make(chan error, 3)
		for id := uint32(1); id <= 3; id++ {
			go func() { errs <- j.Group(id).SetStable([]byte("k"), []byte("v")) }()
		}
		<-j.Failed()
		for range 3 {
			if err := <-errs; !errors.Is(err, ErrPoisoned) || !errors.Is(err, ErrDeadline) {
				t.Error(err)
			}
		}
		must(t, j.Group(1).Get(1, new(Record)))
		if err := j.Close(); !errors.Is(err, ErrDeadline) {
			t.Error(err)
		}
		if _, err := Open(testOptions(mem)); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("the directory is free while a write is under way: %v", err)
		}
		hang.Release()
	})
}

// Time in which the process did not run is not the disk's: a jump of the clock, as after a stop, is one step at most.
func TestStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inject := vfs.NewInject(vfs.NewMem())
		o := testOptions(inject)
		o.WriteDeadline = 10 * time.Second
		j := mustOpen(t, o)
		hang := inject.HangIf(vfs.Kinds(vfs.OpSync))
		done := make(chan error, 1)
		go func() { done <- j.Group(1).SetStable([]byte("k"), []byte("v")) }()
		<-hang.Reached()
		j.mu.Lock()
		j.due = time.Now().Add(-time.Hour)
		j.mu.Unlock()
		j.expired()
		time.Sleep(o.WriteDeadline - 2*o.WriteDeadline/deadlineSteps)
		must(t, j.Err())
		hang.Release()
		must(t, <-done)
		time.Sleep(2 * o.WriteDeadline)
		must(t, j.Err())
		mustClose(t, j)
	})
}

// A directory that holds segments of two journals is refused.
func TestForeignSegment(t *testing.T) {
	mem := vfs.NewMem()
	a := mustOpen(t, testOptions(mem))
	must(t, a.Group(1).Append([]Record{record(1, 1, 100)}))
	mustClose(t, a)
	f, err := mem.Open(filepath.Join(testDir, segmentName(1)))
	must(t, err)
	h := segmentHeader{flags: segmentSynced, id: 1234, segment: 1, first: 1}
	b := make([]byte, segmentHeaderLen)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	o := testOptions(mem)
	mustClose(t, mustOpen(t, o))
	h.put(b)
	_, err = f.WriteAt(b, 0)
	must(t, err)
	if _, err := Open(o); !errors.Is(err, ErrForeign) {
		t.Fatal(err)
	}
}

// Neither does Close wait for a segment that is being allocated ahead, and hangs.
func TestHungPreparer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inject := vfs.NewInject(vfs.NewMem())
		j := mustOpen(t, testOptions(inject))
		hang := inject.HangIf(vfs.Kinds(vfs.OpPreallocate))
		must(t, j.Group(1).Append([]Record{record(1, 1, minSegmentSize/2)}))
		<-hang.Reached()
		must(t, j.Group(1).Append([]Record{record(1, 2, 100)}))
		if err := j.Close(); !errors.Is(err, ErrDeadline) {
			t.Error(err)
		}
		hang.Release()
	})
}

// MaxGroupWait lets a batch wait for company, and no longer.
func TestMaxGroupWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inject := vfs.NewInject(vfs.NewMem())
		o := testOptions(inject)
		o.MaxGroupWait = time.Millisecond
		j := mustOpen(t, o)
		before, start := inject.Count(vfs.OpWrite), time.Now()
		var wg sync.WaitGroup
		for id := uint32(1); id <= 5; id++ {
			wg.Go(func() {
				if err := j.Group(id).SetStable([]byte("k"), nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n, took := inject.Count(vfs.OpWrite)-before, time.Since(start); n != 1 || took != o.MaxGroupWait {
			t.Errorf("%d writes in %v", n, took)
		}
		mustClose(t, j)
	})
}
