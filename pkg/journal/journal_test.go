package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"geminga/pkg/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "/journal"

// testOptions are small, so that everything happens often.
func testOptions(fs vfs.FS) Options {
	return Options{Dir: testDir, FS: fs, SegmentSize: minSegmentSize, SyncData: true, TailSize: minTailSize}
}

func mustOpen(t testing.TB, o Options) *Journal {
	t.Helper()
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func mustClose(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// payload is what index of group holds after the generation-th rewrite.
func payload(group uint32, index, generation uint64, size int) []byte {
	rng := rand.NewPCG(uint64(group)<<32|index, generation)
	b := make([]byte, 0, size+8)
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
	}
	return b[:size]
}

func record(group uint32, index uint64, size int) Record {
	r := Record{Index: index, Term: index / 3, Type: uint8(index), Stamp: int64(index) * 1000}
	r.Data = payload(group, index, 0, size)
	if index%4 == 0 {
		r.Extra = []byte(fmt.Sprintf("extra %d", index))
	}
	return r
}

func sameRecord(a, b *Record) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && a.Stamp == b.Stamp &&
		bytes.Equal(a.Data, b.Data) && bytes.Equal(a.Extra, b.Extra)
}

func checkGroup(t *testing.T, g *Group, first, last uint64, size int) {
	t.Helper()
	if g.FirstIndex() != first || g.LastIndex() != last {
		t.Fatalf("group %d is [%d, %d], want [%d, %d]", g.ID(), g.FirstIndex(), g.LastIndex(), first, last)
	}
	for i := first; i <= last && i > 0; i++ {
		var got Record
		if err := g.Get(i, &got); err != nil {
			t.Fatalf("group %d index %d: %v", g.ID(), i, err)
		}
		if want := record(g.ID(), i, size); !sameRecord(&got, &want) {
			t.Fatalf("group %d index %d: %v", g.ID(), i, got)
		}
		p, err := g.Place(i)
		if err != nil {
			t.Fatal(err)
		}
		data, err := g.j.ReadAt(p, make([]byte, 0, 4096))
		if err != nil || !bytes.Equal(data, got.Data) {
			t.Fatalf("read at %+v: %v", p, err)
		}
	}
	for _, i := range []uint64{0, first - 1, last + 1} {
		if err := g.Get(i, new(Record)); (i < first || i > last || i == 0) && err != ErrNotFound {
			t.Fatalf("group %d index %d: %v, want ErrNotFound itself", g.ID(), i, err)
		}
	}
}

func TestAppendAndReopen(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	for i := uint64(1); i <= 200; i++ {
		for id := uint32(1); id <= 3; id++ {
			if err := j.Group(id).Append([]Record{record(id, i, 300)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(j.Segments()); n < 5 {
		t.Fatalf("%d segments", n)
	}
	must(t, j.Group(1).CompactPrefix(100))
	must(t, j.Group(2).TruncateSuffix(151))
	must(t, j.Group(2).Append([]Record{record(2, 151, 300), record(2, 152, 300)}))
	must(t, j.Group(3).CompactPrefix(1000))
	must(t, j.Group(4).SetStable([]byte("term"), []byte("7")))
	check := func() {
		t.Helper()
		checkGroup(t, j.Group(1), 101, 200, 300)
		checkGroup(t, j.Group(2), 1, 152, 300)
		checkGroup(t, j.Group(3), 0, 0, 300)
		if v, err := j.Group(4).GetStable([]byte("term")); err != nil || string(v) != "7" {
			t.Fatalf("%q %v", v, err)
		}
		if _, err := j.Group(4).GetStable([]byte("vote")); err != ErrNotFound {
			t.Fatal(err)
		}
		if got := fmt.Sprint(j.Groups()); got != "[1 2 3 4]" {
			t.Fatal(got)
		}
		for _, g := range j.allGroups() {
			must(t, g.Damaged())
		}
	}
	check()
	for range 3 {
		mustClose(t, j)
		j = mustOpen(t, testOptions(mem))
		check()
	}
	j2, err := Open(testOptions(mem))
	if !errors.Is(err, vfs.ErrLocked) || j2 != nil {
		t.Fatalf("second opener: %v", err)
	}
	mustClose(t, j)
	j = mustOpen(t, testOptions(mem.Crash(1)))
	check()
	mustClose(t, j)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBadInput(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.MaxRecordSize = 1000
	j := mustOpen(t, o)
	defer func() { // what was refused left nothing behind
		mustClose(t, j)
		j = mustOpen(t, o)
		if g := j.Group(1); g.Damaged() != nil || g.FirstIndex() != 1 || g.LastIndex() != 1 {
			t.Error(g.Damaged(), g.FirstIndex(), g.LastIndex())
		}
		mustClose(t, j)
	}()
	g := j.Group(1)
	for _, c := range []struct {
		recs []Record
		want error
	}{
		{[]Record{{Index: 0}}, ErrNotNext},
		{[]Record{{Index: 1}, {Index: 3}}, ErrNotNext},
		{[]Record{{Index: 1, Data: make([]byte, 1001)}}, ErrTooLarge},
		{[]Record{{Index: 1, Data: make([]byte, 900), Extra: make([]byte, 101)}}, ErrTooLarge},
		{[]Record{{Index: 1, Data: make([]byte, 1000)}}, nil},
		{[]Record{{Index: 1}}, ErrNotNext},
		{[]Record{{Index: 3}}, ErrNotNext},
		{nil, nil},
	} {
		if err := g.Append(c.recs); !errors.Is(err, c.want) {
			t.Errorf("%d records: %v, want %v", len(c.recs), err, c.want)
		}
	}
	if err := g.SetStable(make([]byte, maxStableKey+1), nil); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if err := g.SetStable(nil, make([]byte, maxStableValue+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	for _, p := range []Place{{}, {1, 512, 10}, {1, -1, 100}, {1, 1 << 40, 100}, {1, 600, 100}, {9, 600, 100}} {
		if data, err := j.ReadAt(p, nil); err == nil {
			t.Errorf("%+v: %d bytes", p, len(data))
		}
	}
}

// One call larger than a segment gets a segment of its own size; larger than the tail, memory of its own.
func TestLargeAppend(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	var recs []Record
	for i := uint64(1); i <= 10; i++ {
		recs = append(recs, record(1, i, 20<<10))
	}
	must(t, j.Group(1).Append(recs))
	must(t, j.Group(1).Append([]Record{record(1, 11, 20<<10)}))
	checkGroup(t, j.Group(1), 1, 11, 20<<10)
	mustClose(t, j)
	j = mustOpen(t, testOptions(mem))
	checkGroup(t, j.Group(1), 1, 11, 20<<10)
	mustClose(t, j)
}

func TestConcurrentGroups(t *testing.T) {
	o := testOptions(vfs.Disk{})
	o.Dir = filepath.Join(t.TempDir(), "journal")
	o.SegmentSize = 256 << 10
	j := mustOpen(t, o)
	const groups, appends, each = 32, 20, 3
	var wg sync.WaitGroup
	for id := uint32(1); id <= groups; id++ {
		wg.Go(func() {
			g := j.Group(id)
			for i := uint64(1); i <= appends*each; i += each {
				if err := g.Append([]Record{record(id, i, 500), record(id, i+1, 500), record(id, i+2, 500)}); err != nil {
					t.Error(err)
					return
				}
				var rec Record
				if err := g.Get(i+1, &rec); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for i := range 5 {
				if err := j.Group(id).SetStable([]byte("k"), []byte{byte(i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for range 2 {
		for id := uint32(1); id <= groups; id++ {
			checkGroup(t, j.Group(id), 1, appends*each, 500)
			if v, err := j.Group(id).GetStable([]byte("k")); err != nil || v[0] != 4 {
				t.Fatal(v, err)
			}
		}
		mustClose(t, j)
		j = mustOpen(t, o)
	}
	mustClose(t, j)
}

// waitFor polls a condition that another goroutine is about to make true.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// Reading all over many segments keeps few files open.
func TestOpenFiles(t *testing.T) {
	j := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, j)
	g := j.Group(1)
	for i := uint64(1); i <= 3*(maxOpen+20); i++ {
		must(t, g.Append([]Record{record(1, i, 4500)}))
	}
	if n := len(j.Segments()); n <= maxOpen+10 {
		t.Fatal(n)
	}
	for range 2 {
		checkGroup(t, g, 1, g.LastIndex(), 4500)
		if j.segs.open > maxOpen+1 {
			t.Fatalf("%d files are open", j.segs.open)
		}
	}
}
