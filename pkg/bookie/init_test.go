package bookie

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"geminga/pkg/vfs"
)

func testInit(fs vfs.FS, dir string) InitOptions {
	return InitOptions{
		DataDir: "/data", MetadataDir: dir, FS: fs, BookieID: "a", ClusterID: "test",
		Metadata: []Member{{"a", "127.0.0.1:1"}},
	}
}

func TestInitRefusals(t *testing.T) {
	for name, change := range map[string]func(*InitOptions){
		"1, 3 or 5":      func(o *InitOptions) { o.Metadata = append(o.Metadata, Member{"b", "127.0.0.1:2"}) },
		"host:port":      func(o *InitOptions) { o.Metadata[0].Address = "nowhere" },
		"bookie id":      func(o *InitOptions) { o.BookieID = "a/b" },
		"named twice":    func(o *InitOptions) { o.Metadata = append(o.Metadata, o.Metadata[0], Member{"c", "h:1"}) },
		"data directory": func(o *InitOptions) { o.DataDir = "" },
		"needs a cluster ": func(o *InitOptions) {
			o.ClusterID = ""
			o.Metadata = []Member{{"a", "h:1"}, {"b", "h:2"}, {"c", "h:3"}}
		},
	} {
		fs := vfs.NewMem()
		o := testInit(fs, filepath.Join(t.TempDir(), "m"))
		change(&o)
		if _, err := Init(o); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
		if names, _ := fs.List("/data"); len(names) != 0 {
			t.Errorf("%s: left %v behind", name, names)
		}
	}
}

// Init never runs over state, whatever that state is.
func TestInitOverState(t *testing.T) {
	fs := vfs.NewMem()
	dir := filepath.Join(t.TempDir(), "m")
	if _, err := Init(testInit(fs, dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(testInit(fs, dir)); !errors.Is(err, ErrExistingState) || !strings.Contains(err.Error(), "already") {
		t.Errorf("second init: %v", err)
	}
	if err := fs.Remove("/data/cluster.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(testInit(fs, dir)); !errors.Is(err, ErrExistingState) {
		t.Errorf("init over the metadata group's state: %v", err)
	}
	f, err := fs.Create("/data/something")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if _, err := Init(testInit(fs, filepath.Join(t.TempDir(), "m"))); !errors.Is(err, ErrExistingState) {
		t.Errorf("init over a file: %v", err)
	}
}

func TestOpenRefusals(t *testing.T) {
	fs := vfs.NewMem()
	dir := filepath.Join(t.TempDir(), "m")
	open := func(change func(*Options)) error {
		o := Options{DataDir: "/data", MetadataDir: dir, FS: fs, ListenAddress: "127.0.0.1:0", Journal: JournalOptions{SegmentSize: 64 << 10}}
		change(&o)
		b, err := Open(context.Background(), o)
		if err == nil {
			err = b.Close(context.Background())
			t.Errorf("it started")
		}
		return err
	}
	if err := open(func(*Options) {}); !errors.Is(err, ErrNotInitialized) || !strings.Contains(err.Error(), "bookied init") {
		t.Errorf("no cluster.json: %v", err)
	}
	if _, err := Init(testInit(fs, dir)); err != nil {
		t.Fatal(err)
	}
	if err := open(func(o *Options) { o.ClusterID = "other" }); !errors.Is(err, ErrWrongCluster) {
		t.Errorf("other cluster: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := open(func(o *Options) { o.ListenAddress = l.Addr().String() }); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("address in use: %v", err)
	}
	lock, err := fs.Lock("/data/lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := open(func(*Options) {}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("locked: %v", err)
	}
	_ = lock.Close()
	if err := open(func(o *Options) { o.MetadataDir = t.TempDir() }); !errors.Is(err, ErrDamaged) {
		t.Errorf("metadata lost: %v", err)
	}
	if err := open(func(o *Options) { o.Raft.MaxAppendEntries = 64 }); err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("message limit: %v", err)
	}
}
