//go:build !linux

package vfs

import (
	"errors"
	"os"
)

// syncData is a full sync: on macOS os.File.Sync asks for F_FULLFSYNC, and nothing less is safe there.
func syncData(f *os.File) error { return f.Sync() }

func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
