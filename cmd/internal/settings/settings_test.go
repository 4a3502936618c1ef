package settings

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

type target struct {
	port int
	name string
	list []string
	sync bool
	wait time.Duration
}

func newSet(t *target) *Set {
	s := New()
	s.Int(&t.port, "brokerServicePort", 6650, Range{0, 65535}, "port")
	s.String(&t.name, "clusterName", "geminga", "name")
	s.List(&t.list, "bookies", "a:1, b:2", "addresses")
	s.Bool(&t.sync, "journalSyncData", true, "fsync")
	s.Duration(&t.wait, "keepAliveIntervalSeconds", 30, time.Second, "seconds")
	return s
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsAndOrderOfSources(t *testing.T) {
	var got target
	file := writeFile(t, "# comment\n\nbrokerServicePort=7000\nclusterName = from file\nzookeeperServers=zk:2181\n")
	unknown, err := newSet(&got).Load(Sources{
		File:    file,
		Environ: []string{"GEMINGA_brokerServicePort=7001", "PATH=/bin"},
		Sets:    []string{"brokerServicePort=7002", "bookies=c:3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := target{7002, "from file", []string{"c:3"}, true, 30 * time.Second}
	if got.port != want.port || got.name != want.name || !slices.Equal(got.list, want.list) || got.sync != want.sync || got.wait != want.wait {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !slices.Equal(unknown, []string{"zookeeperServers"}) {
		t.Errorf("unknown names of the file: %v", unknown)
	}
}

func TestEveryFaultIsNamedAtOnce(t *testing.T) {
	var got target
	_, err := newSet(&got).Load(Sources{
		Environ: []string{"GEMINGA_brokerServicePrt=1"},
		Sets:    []string{"brokerServicePort=70000", "journalSyncData=perhaps", "typo=1", "noequals", "keepAliveIntervalSeconds=-1"},
	})
	if !errors.Is(err, ErrBadSetting) {
		t.Fatalf("got %v", err)
	}
	for _, name := range []string{"brokerServicePrt", "brokerServicePort", "journalSyncData", "typo", "noequals", "keepAliveIntervalSeconds"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

func TestBadFile(t *testing.T) {
	var got target
	if _, err := newSet(&got).Load(Sources{File: writeFile(t, "clusterName\n")}); !errors.Is(err, ErrBadSetting) {
		t.Errorf("line without = : %v", err)
	}
	if _, err := newSet(&got).Load(Sources{File: "/nonexistent/x.conf"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestPrintedSettingsLoadAgain(t *testing.T) {
	var a, b target
	first := newSet(&a)
	if _, err := first.Load(Sources{Sets: []string{"clusterName=x", "bookies=q:9"}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	first.Print(&out)
	if unknown, err := newSet(&b).Load(Sources{File: writeFile(t, out.String())}); err != nil || len(unknown) != 0 {
		t.Fatal(unknown, err)
	}
	if a.name != b.name || !slices.Equal(a.list, b.list) || a.port != b.port {
		t.Errorf("%+v became %+v", a, b)
	}
}
