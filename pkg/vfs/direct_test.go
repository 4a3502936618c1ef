package vfs

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"
)

// TestDirectWritesAreSeen writes a file in pieces of all kinds, with and past the page cache, while readers keep its pages
// cached: what a write has returned for is what every later read finds.
func TestDirectWritesAreSeen(t *testing.T) {
	const size, sector = 128 << 10, DirectAlign
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, fsys := range map[string]FS{"disk": Disk{}, "mem": NewMem()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, fsys.MkdirAll(dir))
			f := create(t, fsys, filepath.Join(dir, "x"))
			must(t, f.Preallocate(size))
			readers, want := keepReading(f, size), make([]byte, size)
			for i := range 100 {
				n := sector * (1 + rnd.IntN(64))
				at := sector * rnd.IntN((size-n)/sector)
				p := Aligned(n)
				fill(p, byte(i))
				write := f.WriteDirect
				switch i % 8 {
				case 0:
					write = f.WriteAt
				case 1: // ends in the middle of a sector
					p = p[:n-7]
				case 2: // lies anywhere in memory
					p = p[1:]
				case 3: // begins in the middle of a sector
					at++
				}
				k, err := write(p, int64(at))
				if err != nil || k != len(p) {
					t.Fatalf("write %d at %d: %d, %v", len(p), at, k, err)
				}
				copy(want[at:], p)
				if i%3 == 0 {
					must(t, f.SyncData())
				}
				compare(t, f, want)
			}
			readers()
			must(t, f.Close())
			if got := read(t, fsys, filepath.Join(dir, "x")); !bytes.Equal(got, want) {
				t.Fatal("another opener reads something else")
			}
		})
	}
}

func fill(p []byte, b byte) {
	for i := range p {
		p[i] = b + byte(i>>9)
	}
}

func compare(t *testing.T, f File, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := f.ReadAt(got, 0)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatal("a read after a write finds something else")
	}
}

// keepReading reads all of a file again and again, whatever is in it, until the returned function is called.
func keepReading(f File, size int) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for buf := make([]byte, size); ; {
			select {
			case <-done:
				return
			default:
				_, _ = f.ReadAt(buf, 0)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// TestDirectWriteAfterRename writes to a file that has another name by now, as a recycled segment does.
func TestDirectWriteAfterRename(t *testing.T) {
	dir, disk := t.TempDir(), Disk{}
	f := create(t, disk, filepath.Join(dir, "a"))
	must(t, f.Preallocate(8192))
	must(t, disk.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	other := create(t, disk, filepath.Join(dir, "a"))
	p := Aligned(4096)
	fill(p, 9)
	_, err := f.WriteDirect(p, 4096)
	must(t, err)
	must(t, f.SyncData())
	must(t, f.Close())
	must(t, other.Close())
	if got := read(t, disk, filepath.Join(dir, "b")); !bytes.Equal(got[4096:], p) {
		t.Fatal("the bytes are not in the file that was open")
	}
	if len(read(t, disk, filepath.Join(dir, "a"))) != 0 {
		t.Fatal("the file with the old name was written to")
	}
}

// TestAligned: memory begins where a direct write may, and a large piece of it where a large page does.
func TestAligned(t *testing.T) {
	for _, n := range []int{1, DirectAlign, 4096, hugePage - 1, hugePage, 3*hugePage + 5} {
		align := DirectAlign
		if n >= hugePage {
			align = hugePage
		}
		b := Aligned(n)
		if len(b) != n || cap(b) != n || uintptr(unsafe.Pointer(&b[0]))%uintptr(align) != 0 {
			t.Errorf("%d bytes: %d of %d at %p", n, len(b), cap(b), &b[0])
		}
		for _, c := range b {
			if c != 0 {
				t.Fatalf("%d bytes are not zero", n)
			}
		}
	}
}
