package vfs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directFile is a second descriptor of a file, opened with O_DIRECT when it is first written to. The zero value is ready.
//
// Readers keep using the first one, through the page cache. The kernel drops cached pages of what is written directly,
// before the write and after it, so a read that begins after a write has returned finds its bytes.
type directFile struct {
	mu      sync.Mutex
	f       *os.File
	refused bool // the file system cannot do it, or wants more than DirectAlign
}

// write reports done false if nothing was written because it cannot be done this way.
func (d *directFile) write(of *os.File, p []byte, off int64) (n int, err error, done bool) { //nolint:revive // done says whether err counts
	if len(p) == 0 || len(p)%DirectAlign != 0 || off%DirectAlign != 0 ||
		uintptr(unsafe.Pointer(unsafe.SliceData(p)))%DirectAlign != 0 {
		return 0, nil, false
	}
	f := d.file(of)
	if f == nil {
		return 0, nil, false
	}
	n, err = f.WriteAt(p, off)
	if n == 0 && errors.Is(err, unix.EINVAL) {
		d.mu.Lock()
		d.refused = true
		d.mu.Unlock()
		return 0, nil, false
	}
	return n, err, true
}

func (d *directFile) file(of *os.File) *os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.f == nil && !d.refused {
		var err error // by number: the file may have got another name
		d.f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", of.Fd()), os.O_WRONLY|unix.O_DIRECT, 0)
		d.refused = err != nil
	}
	if d.refused {
		return nil
	}
	return d.f
}

func (d *directFile) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.f == nil {
		return nil
	}
	return d.f.Close()
}
