package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fs FS, name string) File {
	t.Helper()
	f, err := fs.Create(name)
	must(t, err)
	return f
}

func read(t *testing.T, fs FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	must(t, f.Close())
	return b
}

// TestContract asks the same of every implementation.
func TestContract(t *testing.T) {
	for name, fsys := range map[string]FS{"disk": Disk{}, "mem": NewMem(), "inject": NewInject(NewMem())} {
		t.Run(name, func(t *testing.T) { contract(t, fsys, filepath.Join(t.TempDir(), "a", "b")) })
	}
}

func contract(t *testing.T, fsys FS, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	if _, err := fsys.Create(at("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("create without a directory: %v", err)
	}
	must(t, fsys.MkdirAll(dir))
	must(t, fsys.MkdirAll(dir))
	f := create(t, fsys, at("x"))
	if _, err := fsys.Create(at("x")); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("create twice: %v", err)
	}
	_, err := f.WriteAt([]byte("hello"), 1000)
	must(t, err)
	must(t, f.SyncData())
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, 998); n != 7 || err != io.EOF || !bytes.Equal(b[:7], []byte("\x00\x00hello")) {
		t.Fatalf("%d %v %q", n, err, b)
	}
	if n, err := f.ReadAt(b, 2000); n != 0 || err != io.EOF {
		t.Fatalf("read behind the end: %d %v", n, err)
	}
	must(t, f.Preallocate(5000))
	must(t, f.Preallocate(100))
	if size, err := f.Size(); size != 5000 || err != nil {
		t.Fatal(size, err)
	}
	must(t, f.Truncate(1002))
	must(t, f.Preallocate(1010))
	must(t, f.Sync())
	if got := read(t, fsys, at("x")); len(got) != 1010 || string(got[1000:]) != "he\x00\x00\x00\x00\x00\x00\x00\x00" {
		t.Fatalf("%q", got[1000:])
	}
	must(t, create(t, fsys, at("y")).Close())
	must(t, fsys.Rename(at("x"), at("y")))
	must(t, fsys.SyncDir(dir))
	if names, err := fsys.List(dir); err != nil || fmt.Sprint(names) != "[y]" {
		t.Fatal(names, err)
	}
	must(t, fsys.Remove(at("y")))
	if _, err := f.ReadAt(b, 1000); err != nil && err != io.EOF {
		t.Fatalf("read a removed file: %v", err)
	}
	must(t, f.Close())
	for _, err := range []error{fsys.Remove(at("y")), fsys.Rename(at("y"), at("z"))} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if _, err := fsys.Open(at("y")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	lock, err := fsys.Lock(at("LOCK"))
	must(t, err)
	if _, err := fsys.Lock(at("LOCK")); !errors.Is(err, ErrLocked) {
		t.Fatalf("locked twice: %v", err)
	}
	must(t, lock.Close())
	lock, err = fsys.Lock(at("LOCK"))
	must(t, err)
	must(t, lock.Close())
	if free, err := fsys.FreeSpace(dir); err != nil || free == 0 {
		t.Fatal(free, err)
	}
}

func TestWriteZeros(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	must(t, err)
	_, err = f.WriteString("abc")
	must(t, err)
	must(t, writeZeros(f, 3, 3<<20))
	if info, _ := f.Stat(); info.Size() != 3<<20 {
		t.Fatal(info.Size())
	}
	must(t, f.Close())
}

// A block that was not synced is found old, new, or torn between the two; a synced one is found.
func TestMemCrash(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("/d"))
	f := create(t, m, "/d/f")
	old := bytes.Repeat([]byte{'o'}, 64*blockSize)
	_, err := f.WriteAt(old, 0)
	must(t, err)
	must(t, f.SyncData())
	must(t, m.SyncDir("/d"))
	_, err = f.WriteAt(bytes.Repeat([]byte{'n'}, 32*blockSize), 0)
	must(t, err)
	var kept, dropped, torn int
	for seed := range uint64(20) {
		got := read(t, m.Crash(seed), "/d/f")
		if !bytes.Equal(got, read(t, m.Crash(seed), "/d/f")) {
			t.Fatal("a seed has two outcomes")
		}
		if !bytes.Equal(got[32*blockSize:], old[32*blockSize:]) {
			t.Fatal("synced bytes were lost")
		}
		for b := range 32 {
			switch bytes.Count(got[b*blockSize:(b+1)*blockSize], []byte{'n'}) {
			case 0:
				dropped++
			case blockSize:
				kept++
			default:
				torn++
			}
		}
	}
	if kept < 50 || dropped < 50 || torn < 50 {
		t.Fatalf("kept %d, dropped %d, torn %d", kept, dropped, torn)
	}
	must(t, f.SyncData())
	if got := read(t, m.Crash(1), "/d/f"); bytes.Count(got, []byte{'n'}) != 32*blockSize {
		t.Fatal("synced bytes were lost")
	}
}

// outcomes counts what List finds after crashes with many seeds.
func outcomes(t *testing.T, m *Mem) map[string]int {
	t.Helper()
	found := map[string]int{}
	for seed := range uint64(50) {
		names, err := m.Crash(seed).List("/d")
		must(t, err)
		found[fmt.Sprint(names)]++
	}
	return found
}

func TestMemUnsyncedNameIsLost(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("/d"))
	f := create(t, m, "/d/f")
	must(t, f.Sync())
	if found := outcomes(t, m); found["[]"] == 0 || found["[f]"] == 0 || len(found) != 2 {
		t.Fatal(found)
	}
	must(t, m.SyncDir("/d"))
	if found := outcomes(t, m); len(found) != 1 || found["[f]"] == 0 {
		t.Fatal(found)
	}
	must(t, m.Remove("/d/f"))
	if found := outcomes(t, m); found["[]"] == 0 || found["[f]"] == 0 || len(found) != 2 {
		t.Fatal(found)
	}
}

func TestMemRenameIsWholeOrNotAtAll(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("/d"))
	must(t, create(t, m, "/d/a").Close())
	must(t, create(t, m, "/d/b").Close())
	must(t, m.SyncDir("/d"))
	must(t, m.Rename("/d/a", "/d/b"))
	if found := outcomes(t, m); found["[a b]"] == 0 || found["[b]"] == 0 || len(found) != 2 {
		t.Fatal(found)
	}
	must(t, m.SyncDir("/d"))
	if found := outcomes(t, m); found["[b]"] == 0 || len(found) != 1 {
		t.Fatal(found)
	}
}

func TestMemPowerOff(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("/d"))
	f := create(t, m, "/d/f")
	m.PowerOffAfter(1)
	_, err := f.WriteAt([]byte("x"), 0)
	must(t, err)
	_, open := m.Open("/d/f")
	_, list := m.List("/d")
	_, read := f.ReadAt(make([]byte, 1), 0)
	for _, err := range []error{f.SyncData(), m.SyncDir("/d"), m.Remove("/d/f"), open, list, read} {
		if !errors.Is(err, ErrPowerOff) {
			t.Fatal(err)
		}
	}
	if _, err := m.Crash(1).List("/d"); err != nil {
		t.Fatal("power is off after the crash")
	}
}

func TestMemCapacity(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("/d"))
	m.SetCapacity(1000)
	f := create(t, m, "/d/f")
	must(t, f.Preallocate(900))
	_, err := f.WriteAt(make([]byte, 300), 800)
	if !errors.Is(err, ErrNoSpace) || !errors.Is(f.Preallocate(1001), ErrNoSpace) {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, 100), 800)
	must(t, err)
	if free, _ := m.FreeSpace("/d"); free != 100 {
		t.Fatal(free)
	}
	must(t, m.Remove("/d/f"))
	must(t, create(t, m, "/d/g").Preallocate(1000))
}

// A fault hits once, and the operation after it succeeds: that success proves nothing about what failed.
func TestInjectFailsOnce(t *testing.T) {
	i := NewInject(NewMem())
	must(t, i.MkdirAll("/d"))
	f := create(t, i, "/d/f")
	mine := errors.New("mine")
	i.FailIf(Nth(2, Kinds(OpSync)), mine)
	must(t, f.SyncData())
	if err := f.SyncData(); !errors.Is(err, mine) {
		t.Fatal(err)
	}
	must(t, f.SyncData())
	i.FailIf(func(op Op) bool { return op.Kind == OpWrite && op.Name == "f" }, nil)
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrInjected) {
		t.Fatal(err)
	}
	if size, _ := f.Size(); size != 0 {
		t.Fatal("the write reached the file")
	}
	i.Heal()
	i.TearIf(Nth(1, nil))
	if n, err := f.WriteAt([]byte("1234"), 0); n != 2 || !errors.Is(err, ErrInjected) {
		t.Fatal(n, err)
	}
	if size, _ := f.Size(); size != 2 {
		t.Fatal(size)
	}
	_, err := f.WriteAt([]byte("x"), 0)
	must(t, err)
	if i.Count(OpSync) != 3 || i.Count(OpWrite) != 3 || i.Count() != 10 {
		t.Fatal(i.Count(OpSync), i.Count(OpWrite), i.Count())
	}
}

func TestInjectHangs(t *testing.T) {
	m := NewMem()
	i := NewInject(m)
	must(t, i.MkdirAll("/d"))
	f := create(t, i, "/d/f")
	hang := i.HangIf(Kinds(OpWrite))
	done := make(chan error)
	go func() {
		_, err := f.WriteAt([]byte("late"), 0)
		done <- err
	}()
	<-hang.Reached()
	if len(read(t, m, "/d/f")) != 0 {
		t.Fatal("it did not hang")
	}
	hang.Release()
	must(t, <-done)
	if string(read(t, m, "/d/f")) != "late" {
		t.Fatal("it did not happen")
	}
}
