package journal

import (
	"errors"
	"fmt"
	"io/fs"

	"geminga/pkg/vfs"
)

// Exists reports whether a directory holds a journal: any segment at all. A directory that is not there holds none.
func Exists(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("journal: list %s: %w", dir, err)
	}
	for _, name := range names {
		if _, ok := parseName(name, segmentSuffix); ok {
			return true, nil
		}
	}
	return false, nil
}
