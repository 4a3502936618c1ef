package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"geminga/pkg/vfs"
)

func mustRead(t *testing.T, mem *vfs.Mem, visit func(uint32, *Record, Place) error) *Reader {
	t.Helper()
	ops := mem.Ops()
	r, err := OpenReader(t.Context(), ReadOptions{Dir: testDir, FS: mem, Visit: visit})
	must(t, err)
	r.Groups()
	if mem.Ops() != ops {
		t.Errorf("reading changed something: %d operations", mem.Ops()-ops)
	}
	return r
}

// agrees compares what a Reader says with what Open makes of the same files.
func agrees(t *testing.T, name string, r *Reader, j *Journal) {
	t.Helper()
	groups := r.Groups()
	if len(groups) != len(j.Groups()) {
		t.Fatalf("%s: groups %v, %v recovered", name, groups, j.Groups())
	}
	for _, info := range groups {
		g := j.Group(info.ID)
		if info.First != g.FirstIndex() || info.Last != g.LastIndex() || fmt.Sprint(info.Damage) != fmt.Sprint(g.Damaged()) && !willMeet(g, info.Damage) {
			t.Fatalf("%s: %+v, recovered [%d, %d] %v", name, info, g.FirstIndex(), g.LastIndex(), g.Damaged())
		}
		if info.Damage != nil && len(r.Damage()) == 0 {
			t.Fatalf("%s: %+v, but no damage was found", name, info)
		}
		for i := info.First; i <= info.Last && info.Damage == nil && i > 0; i++ {
			var a, b Record
			errA, errB := r.Get(info.ID, i, &a), g.Get(i, &b)
			if fmt.Sprint(errA) != fmt.Sprint(errB) || errA != nil && (!errors.Is(errA, ErrCorrupt) || len(r.Damage()) == 0) {
				t.Fatalf("%s: group %d index %d: %v, recovered %v", name, info.ID, i, errA, errB)
			}
			if a.Term != b.Term || string(a.Data) != string(b.Data) {
				t.Fatalf("%s: group %d index %d differs", name, info.ID, i)
			}
		}
	}
}

// willMeet reports that a group does not know yet of damage in its log, because it lies in a segment with a summary.
func willMeet(g *Group, damage error) bool {
	var why *CorruptError
	return errors.As(damage, &why) && g.Damaged() == nil && errors.Is(g.Get(why.Index, new(Record)), ErrCorrupt)
}

// A Reader agrees with recovery about whole and about damaged journals, closed or not, and changes nothing.
func TestReaderAgreesWithRecovery(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{true, false} {
		mem, _ := built(t, closed)
		all := regions(t, mem)
		found := 0
		for seed := range uint64(30) {
			rng := rand.New(rand.NewPCG(seed, 9))
			hurt := mem.Crash(seed)
			r := all[rng.IntN(len(all))]
			off := r.from + rng.Int64N(r.to-r.from)
			if seed > 0 {
				flip(t, hurt, r.path, off, 1<<rng.IntN(8))
			}
			name := fmt.Sprintf("closed %t, seed %d: %s at %d", closed, seed, r.path, off)
			reader := mustRead(t, hurt, nil)
			j := mustOpen(t, testOptions(hurt.Crash(0)))
			agrees(t, name, reader, j)
			mustClose(t, j)
			must(t, reader.Close())
			if closed && seed > 0 && len(reader.Damage()) == 0 {
				t.Fatalf("%s: not found", name)
			}
			for _, d := range reader.Damage() {
				if filepath.Join(testDir, segmentName(d.Segment)) == r.path && d.Offset <= off {
					found++
					break
				}
			}
		}
		if want := 29; closed && found < want {
			t.Errorf("%d of %d flips were found at or before their place", found, want)
		}
	}
}

// What a Reader says of the files: live, recyclable, newest, spare, torn.
func TestReaderSegments(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g := j.Group(1)
	for i := uint64(1); len(j.Segments()) < 5; i++ {
		must(t, g.Append([]Record{record(1, i, 1000)}))
	}
	p, err := g.Place(g.FirstIndex())
	must(t, err)
	inFirst := p.Segment
	last := g.LastIndex()
	must(t, g.CompactPrefix(last-5))
	for i := uint64(1); i <= 30; i++ {
		must(t, j.Group(2).Append([]Record{record(2, i, 1000)}))
	}
	must(t, j.Group(2).TruncateSuffix(1))
	releaseAll(g)
	must(t, j.Recycle(inFirst))
	must(t, g.Append([]Record{record(1, last+1, 1000)}))
	killed := mem.Crash(0)
	mustClose(t, j)

	entries := 0
	r := mustRead(t, killed, func(group uint32, rec *Record, p Place) error {
		entries++
		if p.Segment == inFirst || rec.Index == 0 {
			t.Errorf("visited %d %d %+v", group, rec.Index, p)
		}
		return nil
	})
	states := map[SegmentState]int{}
	sum, live, first := 0, 0, uint64(0)
	r.Held(1, func(h Held) bool { // what was released is held again
		if first == 0 {
			first = h.Index
		}
		return true
	})
	for _, s := range r.Segments() {
		states[s.State]++
		sum += s.Entries
		live += s.LiveEntries
		if (s.State == SegmentRecyclable) != (s.LiveEntries == 0 && s.Batches > 0 && s.State != SegmentNewest) {
			t.Errorf("%+v", s)
		}
		if (s.State == SegmentNewest) == s.Ended && s.Batches > 0 {
			t.Errorf("only the newest has no end mark: %+v", s)
		}
	}
	if sum != entries || live != int(last+1-first)+1 || first <= 1 || states[SegmentNewest] != 1 || states[SegmentRecyclable] == 0 || states[SegmentLive] == 0 ||
		states[SegmentSpare]+states[SegmentUnused] == 0 {
		t.Errorf("%d entries, %d visited, %d live, %v", sum, entries, live, states)
	}
	if _, err := OpenReader(t.Context(), ReadOptions{Dir: testDir, FS: killed}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second reader in memory: %v", err)
	}
	must(t, r.Close())

	p, err = lastPlace(r)
	must(t, err)
	flip(t, killed, filepath.Join(testDir, segmentName(p.Segment)), p.DataOffset()+3, 1)
	r = mustRead(t, killed, nil)
	defer r.Close()
	newest := r.segment(p.Segment)
	if newest.TornAt == 0 || newest.TornAt > p.Offset || len(r.Damage()) != 0 || r.Groups()[0].Last != last || r.Groups()[0].Kept != live-6 {
		t.Errorf("a torn write: %+v, damage %v, %+v", newest, r.Damage(), r.Groups())
	}
}

func lastPlace(r *Reader) (Place, error) {
	p, ok := r.Place(1, r.Groups()[0].Last)
	if !ok {
		return p, errors.New("no place")
	}
	return p, nil
}

// A damaged group is read where it is whole; the damage says where it is.
func TestReaderReadsAroundDamage(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	for i := uint64(1); i <= 10; i++ {
		must(t, j.Group(7).Append([]Record{record(7, i, 100)}))
	}
	p, err := j.Group(7).Place(4)
	must(t, err)
	if _, err := OpenReader(t.Context(), ReadOptions{Dir: testDir, FS: mem}); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("reading what runs: %v", err)
	}
	mustClose(t, j)
	flip(t, mem, filepath.Join(testDir, segmentName(p.Segment)), p.DataOffset()+7, 1)
	r := mustRead(t, mem, nil)
	defer r.Close()
	var rec Record
	for i := uint64(1); i <= 10; i++ {
		err := r.Get(7, i, &rec)
		var c *CorruptError
		if i != 4 && err != nil || i == 4 && (!errors.As(err, &c) || c.Segment != p.Segment || c.Offset != p.Offset) {
			t.Errorf("index %d: %v", i, err)
		}
	}
	if d := r.Damage(); len(d) != 1 || d[0].Group != 7 || d[0].Index != 4 || d[0].Segment != p.Segment || d[0].Offset != p.Offset {
		t.Errorf("damage %+v", d)
	}
	if err := r.Get(7, 11, &rec); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenReader(ctx, ReadOptions{Dir: testDir, FS: mem.Crash(0)}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
