//go:build !linux

package vfs

import (
	"errors"
	"os"
)

// syncData is a full sync: on macOS os.File.Sync asks for F_FULLFSYNC, and nothing less is safe there.
func syncData(f *os.File) error { return f.Sync() }

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }

// directFile cannot do anything here.
type directFile struct{}

func (*directFile) write(*os.File, []byte, int64) (n int, err error, done bool) { //nolint:revive // as on Linux
	return 0, nil, false
}

func (*directFile) close() error { return nil }
