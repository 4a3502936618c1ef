//go:build unix

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes flock, not a POSIX record lock: flock belongs to the open file, so a second opener in the same
// process is refused too, and closing some other descriptor of the file does not drop it.
func lockFile(f *os.File) error { return flock(f, unix.LOCK_EX) }

// shareLock keeps out who would take the lock alone, and goes together with others that share it.
func shareLock(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

func freeSpace(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:unconvert // the field types differ between systems
}
