package vfs

import "unsafe"

// DirectAlign is what has to be aligned to be written past the page cache.
const DirectAlign = 512

// hugePage is the size of a large page of memory where the machine has such.
const hugePage = 2 << 20

// Aligned returns n zeroed bytes that lie at a multiple of DirectAlign. Memory of hugePage and more lies at a multiple of
// that, in large pages where the system gives them: a direct write hands the device pieces of memory that are contiguous for
// the machine, and with pages of 4 KiB a batch is hundreds of them (decision 026).
func Aligned(n int) []byte {
	if n < hugePage {
		return alignedAt(n, DirectAlign)
	}
	b := alignedAt(n, hugePage)
	adviseHuge(b)
	return b
}

func alignedAt(n, align int) []byte {
	b := make([]byte, n+align-1)
	at := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[at : at+n : at+n]
}
