package bookie

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"geminga/pkg/vfs"
)

// maxSmallFile bounds what readFile takes into memory.
const maxSmallFile = 16 << 20

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// readFile reads a small file.
func readFile(fsys vfs.FS, path string) (b []byte, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxSmallFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d were expected", path, size, maxSmallFile)
	}
	b = make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && (!errors.Is(err, io.EOF) || n != len(b)) {
		return nil, err
	}
	return b, nil
}

// writeFile replaces a small file: after a crash it holds the old content or the new, never a part.
func writeFile(fsys vfs.FS, path string, b []byte) error {
	tmp := path + ".tmp"
	if err := fsys.Remove(tmp); err != nil && !isNotExist(err) {
		return err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}
