package vfs

import "golang.org/x/sys/unix"

// adviseHuge asks for large pages. The memory need not have been touched; what has been may get them later. The advice stays
// with the addresses when the collector uses them for something else.
func adviseHuge(b []byte) {
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // without them it is slower, and nothing else
}
