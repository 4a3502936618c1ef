package journal

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"geminga/pkg/vfs"
)

// BenchmarkAppend has groups append records of a size, each waiting for its own to be durable before the next, as a
// Raft group does. Beside bytes/s it reports what the disk gives a bare loop of pwrite and fdatasync with batches of
// the size that the journal came to write, measured right after it on a file of the same kind, and the journal's share
// of that.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{128, 1 << 10, 8 << 10, 64 << 10} {
		for _, groups := range []int{1, 8, 32} {
			for _, sync := range []bool{true, false} {
				b.Run(fmt.Sprintf("size=%s/groups=%d/sync=%v", human(size), groups, sync), func(b *testing.B) {
					benchAppend(b, size, groups, sync)
				})
			}
		}
	}
}

func human(n int) string {
	if n >= 1<<10 {
		return fmt.Sprintf("%dk", n>>10)
	}
	return fmt.Sprint(n)
}

func benchAppend(b *testing.B, size, groups int, syncData bool) {
	o := DefaultOptions(filepath.Join(b.TempDir(), "journal"))
	o.SyncData = syncData
	inject := vfs.NewInject(vfs.Disk{})
	o.FS = inject
	j := mustOpen(b, o)
	data := payload(1, 1, 1, size)
	writes := inject.Count(vfs.OpWrite)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var wg sync.WaitGroup
	b.ResetTimer()
	for id := range groups {
		wg.Go(func() {
			g := j.Group(uint32(id + 1))
			recs := make([]Record, 1)
			for i := id; i < b.N; i += groups {
				recs[0] = Record{Index: uint64(i/groups + 1), Term: 1, Data: data}
				if err := g.Append(recs); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	writes = max(1, inject.Count(vfs.OpWrite)-writes)
	perBatch := float64(b.N) / float64(writes)
	b.ReportMetric(perBatch, "records/batch")
	mustClose(b, j)
	batch := padded(batchHeaderLen + int64(perBatch*float64(recordHeaderLen+size)))
	bare := bareLoop(b, batch, int(min(writes, 3000)), syncData) * perBatch * float64(size) / float64(batch)
	b.ReportMetric(bare/1e6, "bare-MB/s")
	b.ReportMetric(float64(b.N)*float64(size)/b.Elapsed().Seconds()/bare, "of-bare")
}

// bareLoop returns the bytes a second of sequential writes, each synced, into a file allocated as segments are.
func bareLoop(b *testing.B, batch int64, n int, sync bool) float64 {
	f, err := vfs.Disk{}.Create(filepath.Join(b.TempDir(), "bare"))
	must(b, err)
	must(b, f.Preallocate(min(1<<30, batch*int64(n))))
	must(b, f.Sync())
	buf := payload(2, 2, 2, int(batch))
	start := time.Now()
	written := int64(0)
	for off := int64(0); n > 0 && off+batch <= 1<<30; n-- {
		_, err := f.WriteAt(buf, off)
		must(b, err)
		if sync {
			must(b, f.SyncData())
		}
		off += batch
		written += batch
	}
	elapsed := time.Since(start).Seconds()
	must(b, f.Close())
	return float64(written) / elapsed
}

// BenchmarkGet reads from memory and from the page cache.
func BenchmarkGet(b *testing.B) {
	for _, from := range []string{"memory", "file"} {
		b.Run("size=16k/from="+from, func(b *testing.B) {
			o := DefaultOptions(filepath.Join(b.TempDir(), "journal"))
			if from == "file" {
				o.TailSize = minTailSize
			}
			j := mustOpen(b, o)
			defer mustClose(b, j)
			g := j.Group(1)
			const n = 256
			var recs []Record
			for i := uint64(1); i <= n; i++ {
				recs = append(recs, record(1, i, 16<<10))
			}
			must(b, g.Append(recs))
			b.SetBytes(16 << 10)
			b.ReportAllocs()
			b.ResetTimer()
			var buf []byte
			for i := range b.N {
				p, err := g.Place(uint64(i%n) + 1)
				must(b, err)
				if buf, err = j.ReadAt(p, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReadPiece reads pieces of large records: a ledger's entries in a proposal that has those of many.
func BenchmarkReadPiece(b *testing.B) {
	for _, from := range []string{"memory", "file"} {
		for _, size := range []int{16 << 10, 256 << 10} {
			for _, piece := range []uint32{1 << 10, 16 << 10} {
				b.Run(fmt.Sprintf("record=%s/piece=%s/from=%s", human(size), human(int(piece)), from), func(b *testing.B) {
					benchReadPiece(b, size, piece, from == "file")
				})
			}
		}
	}
}

func benchReadPiece(b *testing.B, size int, piece uint32, file bool) {
	o := DefaultOptions(filepath.Join(b.TempDir(), "journal"))
	if file {
		o.TailSize = minTailSize
	}
	j := mustOpen(b, o)
	defer mustClose(b, j)
	g := j.Group(1)
	const n = 16
	for i := uint64(1); i <= n; i++ {
		must(b, g.Append([]Record{record(1, i, size)}))
	}
	buf := make([]byte, 2*size)
	b.SetBytes(int64(piece))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_, err := g.ReadPiece(uint64(i%n)+1, Piece{uint32(size) - piece, piece}, buf)
		must(b, err)
	}
}
