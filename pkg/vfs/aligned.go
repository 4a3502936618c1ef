package vfs

import "unsafe"

// DirectAlign is what has to be aligned to be written past the page cache.
const DirectAlign = 512

// Aligned returns n bytes that lie at a multiple of DirectAlign.
func Aligned(n int) []byte {
	b := make([]byte, n+DirectAlign-1)
	at := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (DirectAlign - 1)
	return b[at : at+n : at+n]
}
