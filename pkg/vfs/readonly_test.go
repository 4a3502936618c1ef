package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestReadOnlyRefusesChanges(t *testing.T) {
	dir := t.TempDir()
	mem := NewMem()
	for name, fs := range map[string]FS{"disk": Disk{}, "mem": mem} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "file")
			must(t, fs.MkdirAll(dir))
			f, err := fs.Create(path)
			must(t, err)
			_, err = f.WriteAt([]byte("content"), 0)
			must(t, err)
			must(t, f.Close())
			ro := NewReadOnly(fs)
			r, err := ro.Open(path)
			must(t, err)
			defer r.Close()
			_, werr := r.WriteAt([]byte("x"), 0)
			_, cerr := ro.Create(path + "2")
			for i, err := range []error{
				werr, cerr, r.Truncate(0), r.Sync(), r.SyncData(), r.Preallocate(1 << 20), ro.Remove(path), ro.Rename(path, path+"3"),
				ro.MkdirAll(path + "4"), ro.SyncDir(dir),
			} {
				if !errors.Is(err, ErrReadOnly) {
					t.Errorf("change %d: %v", i, err)
				}
			}
			b := make([]byte, 7)
			if _, err := r.ReadAt(b, 0); err != nil || string(b) != "content" {
				t.Errorf("%q %v", b, err)
			}
			if names, err := ro.List(dir); err != nil || len(names) != 1 {
				t.Errorf("%v %v", names, err)
			}
		})
	}
}

// Readers share the lock; whoever writes has it alone; a reader does not make the file.
func TestReadOnlyLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	ro := NewReadOnly(Disk{})
	none, err := ro.Lock(path)
	must(t, err)
	must(t, none.Close())
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the lock file: %v", err)
	}
	alone, err := Disk{}.Lock(path)
	must(t, err)
	if _, err := ro.Lock(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("beside a writer: %v", err)
	}
	must(t, alone.Close())
	one, err := ro.Lock(path)
	must(t, err)
	two, err := ro.Lock(path)
	must(t, err)
	if _, err := (Disk{}).Lock(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("a writer beside readers: %v", err)
	}
	must(t, one.Close())
	must(t, two.Close())
}
