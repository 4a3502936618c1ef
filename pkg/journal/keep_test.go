package journal

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"geminga/pkg/vfs"
)

// What was truncated does not come back when the segment with the truncation is recycled before that with the records.
func TestTruncationOutlivesItsSegment(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g, other := j.Group(1), j.Group(2)
	next := uint64(0)
	roll := func() uint64 { // fills the segment with another group's records
		segment := newestOf(j)
		for newestOf(j) == segment {
			next++
			must(t, other.Append([]Record{record(2, next, 1000)}))
		}
		return segment
	}
	for i := uint64(1); i <= 5; i++ {
		must(t, g.Append([]Record{record(1, i, 100)}))
	}
	roll()
	must(t, g.TruncateSuffix(3))
	replaced := Record{Index: 3, Term: 9, Data: []byte("the third in its second life")}
	must(t, g.Append([]Record{replaced}))
	must(t, g.CompactPrefix(3))
	cutIn := roll()
	must(t, other.CompactPrefix(next))
	releaseAll(other)
	var in []Held
	g.Held(func(h Held) bool {
		if h.Place.Segment == cutIn {
			in = append(in, h)
		}
		return true
	})
	must(t, g.Move(in))
	must(t, j.Recycle(cutIn))
	for _, crash := range []bool{false, true} {
		if crash {
			mustClose(t, j)
			j = mustOpen(t, testOptions(mem.Crash(1)))
			g = j.Group(1)
		}
		for i := uint64(1); i <= 6; i++ {
			got, err := g.ReadPiece(i, Piece{0, 20}, nil)
			want := record(1, i, 100).Data[:20]
			if i == 3 {
				want = replaced.Data[:20]
			}
			if i <= 3 && (err != nil || !bytes.Equal(got, want)) || i > 3 && err != ErrNotFound {
				t.Errorf("after a restart %t: index %d: %q %v", crash, i, got, err)
			}
		}
	}
	mustClose(t, j)
}

// A restart that is interrupted leaves a segment without a head. It settles nothing about the segments before it that were
// recycled: what was truncated in those does not come back, and nothing passes for damaged.
func TestSegmentWithoutHeadBehindAGap(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g, other := j.Group(1), j.Group(2)
	must(t, other.Append([]Record{record(2, 1, 100)})) // the first segment stays
	must(t, g.Append([]Record{record(1, 1, 100), record(1, 2, 100), record(1, 3, 100)}))
	mustClose(t, j)
	j = mustOpen(t, testOptions(mem))
	must(t, j.Group(1).TruncateSuffix(2))
	must(t, j.Group(1).CompactPrefix(1))
	mustClose(t, j)
	j = mustOpen(t, testOptions(mem))
	torn := newestOf(j)
	after := mem.Crash(0)
	mustClose(t, j)
	f, err := after.Open(filepath.Join(testDir, segmentName(torn)))
	must(t, err)
	_, err = f.WriteAt(make([]byte, sectorSize), segmentHeaderLen) // of the write, only the header reached the disk
	must(t, err)
	must(t, f.Close())
	for range 2 { // so that it is one of the middle
		mustClose(t, mustOpen(t, testOptions(after)))
	}
	if hasHead(t, after, torn) || !hasHead(t, after, torn+1) {
		t.Fatalf("segment %d has a head", torn)
	}
	for _, stay := range [][]uint64{nil, {torn - 1}, {torn}, {torn, torn + 1}, {torn + 1}} {
		withGap(t, after.Crash(0), stay)
	}
}

// withGap recycles all but the first segment, those that stay, and the newest.
func withGap(t *testing.T, mem *vfs.Mem, stay []uint64) {
	t.Helper()
	j := mustOpen(t, testOptions(mem))
	releaseAll(j.Group(1))
	for _, number := range j.Segments() {
		if number != 1 && !slices.Contains(stay, number) && number != newestOf(j) {
			must(t, j.Recycle(number))
		}
	}
	mustClose(t, j)
	r := mustRead(t, mem, nil)
	if d := r.Damage(); len(d) > 0 {
		t.Errorf("%d stay: %v", stay, d)
	}
	must(t, r.Close())
	j = mustOpen(t, testOptions(mem))
	defer mustClose(t, j)
	for i := uint64(2); i <= 3; i++ {
		if _, err := j.Group(1).ReadPiece(i, Piece{0, 1}, nil); err != ErrNotFound {
			t.Errorf("%d stay: index %d, which was truncated: %v", stay, i, err)
		}
	}
}

// hasHead reports whether the first batch of a segment is a head.
func hasHead(t *testing.T, mem *vfs.Mem, number uint64) bool {
	t.Helper()
	f, err := mem.Open(filepath.Join(testDir, segmentName(number)))
	must(t, err)
	size, err := f.Size()
	must(t, err)
	var s scanner
	s.reset(f, number, size)
	h, ok, err := s.batch(segmentHeaderLen)
	must(t, err)
	must(t, f.Close())
	return ok && h.flags&flagHead != 0
}

func newestOf(j *Journal) uint64 {
	ns := j.Segments()
	return ns[len(ns)-1]
}

// A kept record that is damaged stops nobody, says so, and heals by being kept anew; what was pruned reads in pieces.
func TestKeepHeals(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g := j.Group(1)
	for i := uint64(1); i <= 6; i++ {
		must(t, g.Append([]Record{record(1, i, 200)}))
	}
	must(t, g.CompactPrefix(4))
	var p Place
	g.Held(func(h Held) bool {
		if h.Index == 2 {
			p = h.Place
		}
		return true
	})
	mustClose(t, j)
	flip(t, mem, filepath.Join(testDir, segmentName(p.Segment)), p.DataOffset()+5, 4)
	j = mustOpen(t, testOptions(mem))
	g = j.Group(1)
	checkGroup(t, g, 5, 6, 200)
	if _, err := g.ReadPiece(2, Piece{0, 1}, nil); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if err := g.Move([]Held{{Index: 2, Place: p}, {Index: 3, Place: placeOf(t, g, 3)}}); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if again := placeOf(t, g, 3); again.Segment == p.Segment {
		t.Error("what is whole was not moved")
	}
	data := record(1, 2, 200).Data
	must(t, g.Keep([]Kept{
		{Index: 2, Term: 1, Pieces: []Piece{{10, 10}, {20, 5}, {100, 50}}, Data: append(bytes.Clone(data[10:25]), data[100:150]...)},
	}))
	check := func() {
		t.Helper()
		for _, c := range []struct {
			p  Piece
			ok bool
		}{
			{Piece{10, 15}, true}, {Piece{12, 10}, true}, {Piece{100, 50}, true}, {Piece{120, 30}, true}, {Piece{9, 2}, false},
			{Piece{24, 2}, false}, {Piece{149, 2}, false}, {Piece{30, 5}, false}, {Piece{0, 200}, false},
		} {
			got, err := g.ReadPiece(2, c.p, nil)
			if c.ok && (err != nil || !bytes.Equal(got, data[c.p.Offset:c.p.end()])) || !c.ok && err != ErrNotFound {
				t.Errorf("%+v: %d bytes, %v", c.p, len(got), err)
			}
		}
	}
	check()
	for range 2 {
		mustClose(t, j)
		j = mustOpen(t, testOptions(mem))
		g = j.Group(1)
		check()
	}
	mustClose(t, j)
}

// Damage that hides whose record it is is told under the index that was asked for, so that somebody can heal it.
func TestDamagedHeaderIsNamed(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	for i := uint64(1); i <= 4; i++ {
		must(t, j.Group(7).Append([]Record{record(7, i, 200)}))
	}
	must(t, j.Group(7).CompactPrefix(2))
	kept, inLog := placeOf(t, j.Group(7), 2), placeOf(t, j.Group(7), 3)
	mustClose(t, j)
	mustClose(t, mustOpen(t, testOptions(mem))) // from now on there is a summary, which says where they are
	for _, p := range []Place{kept, inLog} {
		flip(t, mem, filepath.Join(testDir, segmentName(p.Segment)), p.Offset+30, 4)
	}
	j = mustOpen(t, testOptions(mem))
	defer mustClose(t, j)
	g := j.Group(7)
	_, read := g.ReadPiece(2, Piece{0, 1}, nil)
	for _, c := range []struct {
		err   error
		index uint64
	}{
		{read, 2},
		{g.Move([]Held{{Index: 2, Place: kept}}), 2},
		{g.Get(3, new(Record)), 3},
	} {
		var why *CorruptError
		if !errors.As(c.err, &why) || why.Group != 7 || why.Index != c.index {
			t.Errorf("index %d: %v", c.index, c.err)
		}
	}
}

func placeOf(t *testing.T, g *Group, index uint64) (p Place) {
	t.Helper()
	g.Held(func(h Held) bool {
		if h.Index == index {
			p = h.Place
		}
		return h.Index < index
	})
	if p.Segment == 0 {
		t.Fatalf("index %d is not held", index)
	}
	return p
}

func TestKeepRefuses(t *testing.T) {
	j := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, j)
	g := j.Group(1)
	must(t, g.Append([]Record{record(1, 5, 100), record(1, 6, 100)}))
	for _, c := range []struct {
		k    Kept
		want error
	}{
		{Kept{Index: 5, Data: []byte("x")}, ErrInLog},
		{Kept{Index: 7, Data: []byte("x")}, ErrInLog},
		{Kept{Index: 0, Data: []byte("x")}, ErrNotNext},
		{Kept{Index: 4, Pieces: []Piece{{0, 2}}, Data: []byte("x")}, ErrPieces},
		{Kept{Index: 4, Pieces: []Piece{{0, 0}}}, ErrPieces},
		{Kept{Index: 4, Pieces: []Piece{{5, 2}, {6, 1}}, Data: []byte("xxx")}, ErrPieces},
		{Kept{Index: 4, Pieces: []Piece{{0, 1}, {6, 1}}, Data: []byte("xx")}, nil},
		{Kept{Index: 3, Data: []byte("all")}, nil},
	} {
		if err := g.Keep([]Kept{c.k}); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.k, err, c.want)
		}
	}
	if b, err := g.ReadPiece(3, Piece{1, 2}, nil); err != nil || string(b) != "ll" {
		t.Errorf("%q %v", b, err)
	}
	must(t, g.TruncateSuffix(1))
	must(t, g.Append([]Record{record(1, 4, 100)})) // whatever was kept there is out of date
	if b, err := g.ReadPiece(4, Piece{0, 100}, nil); err != nil || !bytes.Equal(b, record(1, 4, 100).Data) {
		t.Errorf("%q %v", b, err)
	}
}

// The kept table against a map.
func TestKeptTable(t *testing.T) {
	t.Parallel()
	var k kept
	want := map[uint64]place{}
	state := uint64(7)
	random := func(n uint64) uint64 {
		state = state*6364136223846793005 + 1442695040888963407
		return (state >> 33) % n
	}
	for step := range uint32(20000) {
		index := random(3000)
		switch random(8) {
		case 0, 1, 2, 3:
			p := place{segment: step + 1}
			old, had := k.set(index, p)
			if w, ok := want[index]; had != ok || old != w {
				t.Fatal(step, index, old, w)
			}
			want[index] = p
		case 4, 5, 6:
			old, had := k.remove(index)
			if w, ok := want[index]; had != ok || old != w {
				t.Fatal(step, index, old, w)
			}
			delete(want, index)
		case 7:
			if random(40) != 0 {
				continue
			}
			k.edit(index, func(i uint64, _ *place) bool {
				if i%3 == 0 {
					delete(want, i)
				}
				return i%3 != 0
			})
		}
		if k.n != len(want) {
			t.Fatal(step, k.n, len(want))
		}
	}
	for i := range uint64(3100) {
		p, ok := k.at(i)
		if w, there := want[i]; ok != there || p != w {
			t.Fatal(i, p, w)
		}
	}
	last := uint64(0)
	n := 0
	for _, h := range k.appendTo(nil, 100, 5000) {
		if h.index < 100 || h.index <= last || want[h.index] != h.place {
			t.Fatal(h, last)
		}
		last = h.index
		n++
	}
	for i := range want {
		if i < 100 {
			n++
		}
	}
	if n != len(want) {
		t.Fatal(n, len(want))
	}
}

// A place that is kept costs little more than its 12 bytes, in a row or with gaps.
func TestKeptMemory(t *testing.T) {
	var k kept
	for i := range uint64(100_000) {
		k.set(i, place{segment: 1})
	}
	bytes := 0
	for i := range k.chunks {
		bytes += 64 + 12*cap(k.chunks[i].places)
	}
	if per := float64(bytes) / float64(k.n); per > 16 {
		t.Errorf("%.1f bytes for each place", per)
	}
}

// ReadHeld returns all of a record in the log or out of it, and what Keep has left of one.
func TestReadHeld(t *testing.T) {
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	g := j.Group(1)
	var recs []Record
	for i := uint64(1); i <= 4; i++ {
		recs = append(recs, record(1, i, 100))
	}
	must(t, g.Append(recs))
	must(t, g.CompactPrefix(3))
	pieces := []Piece{{3, 10}, {50, 20}}
	data := append(bytes.Clone(recs[1].Data[3:13]), recs[1].Data[50:70]...)
	must(t, g.Keep([]Kept{{Index: 2, Term: 1, Pieces: pieces, Data: data}}))
	for _, again := range []bool{false, true} {
		if again {
			mustClose(t, j)
			j = mustOpen(t, testOptions(mem))
			g = j.Group(1)
		}
		for i := uint64(1); i <= 4; i++ {
			want, parts := recs[i-1].Data, []Piece(nil)
			if i == 2 {
				want, parts = data, pieces
			}
			k, err := g.ReadHeld(i)
			if err != nil || k.Index != i || !bytes.Equal(k.Data, want) || !slices.Equal(k.Pieces, parts) {
				t.Errorf("again %t: %+v %v", again, k, err)
			}
		}
		if _, err := g.ReadHeld(5); err != ErrNotFound {
			t.Errorf("what is not there: %v", err)
		}
	}
	mustClose(t, j)
}
