package journal

import (
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"geminga/pkg/vfs"
)

// alignedFS finds fault with what a file system could not write past the page cache.
type alignedFS struct {
	vfs.FS
	t                *testing.T
	direct, buffered *atomic.Int64
}

func (a alignedFS) Create(name string) (vfs.File, error) { return a.wrap(a.FS.Create(name)) }
func (a alignedFS) Open(name string) (vfs.File, error)   { return a.wrap(a.FS.Open(name)) }

func (a alignedFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return alignedFile{f, a}, nil
}

type alignedFile struct {
	vfs.File
	a alignedFS
}

func (f alignedFile) WriteDirect(p []byte, off int64) (int, error) {
	f.a.direct.Add(1)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if len(p)%vfs.DirectAlign != 0 || off%vfs.DirectAlign != 0 || at%vfs.DirectAlign != 0 {
		f.a.t.Errorf("%d bytes at %d, in memory at %x", len(p), off, at)
	}
	return f.File.WriteDirect(p, off)
}

func (f alignedFile) WriteAt(p []byte, off int64) (int, error) {
	f.a.buffered.Add(1)
	return f.File.WriteAt(p, off)
}

// TestSegmentsAreWrittenDirectly, whatever sizes records have, batches that do not fit into the ring and end marks
// included; and not at all if that is not wanted, or answers come before the sync.
func TestSegmentsAreWrittenDirectly(t *testing.T) {
	for _, c := range []struct {
		sync, buffered, direct bool
	}{{true, false, true}, {true, true, false}, {false, false, false}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			fs := alignedFS{vfs.NewMem(), t, new(atomic.Int64), new(atomic.Int64)}
			o := testOptions(fs)
			o.SyncData, o.Buffered = c.sync, c.buffered
			for run := range uint64(2) {
				j := mustOpen(t, o)
				g := j.Group(1)
				for i := range uint64(40) {
					r := record(1, run*40+i+1, int(i*i*37)%20000)
					must(t, g.Append([]Record{r}))
				}
				mustClose(t, j)
			}
			summaries := fs.buffered.Load() // which are not segments, and go through the cache
			if c.direct != (fs.direct.Load() >= 80) || c.direct == (summaries >= 80) {
				t.Errorf("%d direct writes, %d through the page cache", fs.direct.Load(), summaries)
			}
		})
	}
}
