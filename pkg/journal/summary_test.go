package journal

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"geminga/pkg/vfs"
)

// readCounter counts the bytes that are read.
type readCounter struct {
	vfs.FS
	bytes atomic.Int64
}

type countedFile struct {
	vfs.File
	c *readCounter
}

func (c *readCounter) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	return countedFile{f, c}, err
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.c.bytes.Add(int64(n))
	return n, err
}

// filled returns a journal of some segments, closed, and what was read to open it once more.
func filled(t testing.TB, records, size int) (*vfs.Mem, int64) {
	t.Helper()
	mem := vfs.NewMem()
	o := testOptions(mem)
	o.SegmentSize = 256 << 10
	j := mustOpen(t, o)
	for i := range uint64(records) {
		must(t, j.Group(1).Append([]Record{record(1, i+1, size)}))
	}
	mustClose(t, j)
	mustClose(t, mustOpen(t, o)) // makes the summaries that there was no time for
	c := &readCounter{FS: mem}
	o.FS = c
	j = mustOpen(t, o)
	must(t, j.Group(1).Damaged())
	if n := j.Group(1).LastIndex(); n != uint64(records) {
		t.Fatal(n)
	}
	mustClose(t, j)
	return mem, c.bytes.Load()
}

// A start reads some bytes for each record and the newest segment, however many bytes there are.
func TestOpenReadsSummaries(t *testing.T) {
	_, small := filled(t, 500, 500)
	_, large := filled(t, 500, 20000)
	if segments := int64(500 * 20000 / (256 << 10)); large > small+segments*2*segmentHeaderLen+(512<<10) {
		t.Errorf("%d bytes are read for 250 kB, %d for 10 MB", small, large)
	}
}

// What recovery makes of summaries is what it makes of the segments, whichever of them there are, and a summary that is
// damaged or from another segment is none.
func TestSummariesAgreeWithSegments(t *testing.T) {
	t.Parallel()
	mem, _ := built(t, true)
	mustClose(t, mustOpen(t, testOptions(mem)))
	whole := mem.Crash(0)
	removeSummaries(t, whole)
	want := describe(t, whole)
	names, err := mem.List(testDir)
	must(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, summarySuffix) })
	if len(names) < 3 {
		t.Fatal(names)
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		fs := mem.Crash(0)
		for i, name := range names {
			path := filepath.Join(testDir, name)
			b := contents(t, mem, path)
			switch rng.IntN(5) {
			case 0:
				b = nil
			case 1:
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			case 2:
				b = b[:rng.IntN(len(b))]
			case 3:
				b = contents(t, mem, filepath.Join(testDir, names[(i+1)%len(names)]))
			}
			_ = fs.Remove(path)
			f, err := fs.Create(path)
			must(t, err)
			_, err = f.WriteAt(b, 0)
			must(t, err)
			must(t, f.Close())
		}
		if got := describe(t, fs); got != want {
			t.Fatalf("seed %d: recovered\n%s\nwant\n%s", seed, got, want)
		}
	}
}

func contents(t *testing.T, mem *vfs.Mem, path string) []byte {
	t.Helper()
	f, err := mem.Open(path)
	must(t, err)
	b, err := readAll(f)
	must(t, err)
	must(t, f.Close())
	return b
}

// describe opens a journal and says all of it.
func describe(t *testing.T, fs *vfs.Mem) string {
	t.Helper()
	j := mustOpen(t, testOptions(fs))
	defer mustClose(t, j)
	var out strings.Builder
	for _, id := range j.Groups() {
		g := j.Group(id)
		fmt.Fprintf(&out, "group %d [%d, %d] ops %d damage %v cuts %v stable %v\n",
			id, g.FirstIndex(), g.LastIndex(), g.ops, g.Damaged(), g.cuts, g.stable)
		g.Held(func(h Held) bool {
			fmt.Fprintf(&out, " %+v\n", h)
			return true
		})
	}
	return out.String()
}

// Any bytes are read as a summary without harm.
func FuzzSummary(f *testing.F) {
	var s summary
	header := make([]byte, segmentHeaderLen)
	h := segmentHeader{id: 1, segment: 1, first: 1}
	h.put(header)
	s.begin(header)
	s.record(&recordHeader{kind: kindState, group: 3, index: 1, term: 2, stamp: 4, length: 8}, make([]byte, 8), nil)
	s.record(&recordHeader{kind: kindStable, group: 3, length: 2, extra: 1}, []byte("ab"), []byte("c"))
	s.batch(flagHead)
	s.batch(flagEnd)
	f.Add(s.b[summaryHeaderLen:])
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &summaryReader{b: b, number: 1, off: segmentHeaderLen}
		r.fits(&file{number: 1, size: maxSegmentSize}, bounds{})
	})
}

// A head that drops what concerns recycled segments only takes less than it might have: what follows it is found where
// the summary says, and no byte lies between two batches.
func TestSummaryBehindHeadThatShrank(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g, other := j.Group(1), j.Group(2)
	next := uint64(0)
	roll := func() {
		for segment := newestOf(j); newestOf(j) == segment; {
			next++
			must(t, other.Append([]Record{record(2, next, 600)}))
		}
	}
	for i := uint64(1); i <= 50; i++ { // each leaves a cut, in all more than a sector
		must(t, g.Append([]Record{record(1, i, 10), record(1, i+1, 10)}))
		must(t, g.TruncateSuffix(i+1))
	}
	cuts := newestOf(j)
	roll()
	must(t, g.CompactPrefix(50))
	must(t, other.CompactPrefix(next))
	for _, group := range []*Group{g, other} {
		releaseAll(group)
	}
	for _, n := range j.Segments() {
		if n <= cuts {
			must(t, j.Recycle(n))
		}
	}
	from := next + 1
	roll() // the head of the next one forgets
	shrank := newestOf(j)
	roll()
	mustClose(t, j)
	f, err := mem.Open(filepath.Join(testDir, segmentName(shrank)))
	must(t, err)
	size, err := f.Size()
	must(t, err)
	var s scanner
	s.reset(f, shrank, size)
	head, ok, err := s.batch(segmentHeaderLen)
	if err != nil || !ok || head.flags&flagHead == 0 {
		t.Fatal(ok, err)
	}
	if h, ok, err := s.batch(head.end(segmentHeaderLen)); err != nil || !ok || h.number != head.number+1 {
		t.Errorf("no batch behind the head: %t %v", ok, err)
	}
	must(t, f.Close())
	for range 2 {
		j = mustOpen(t, testOptions(mem))
		checkGroup(t, j.Group(2), from, next, 600)
		mustClose(t, j)
	}
}
