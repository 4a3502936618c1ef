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
	s.Duration(&t.wait, "keepAliveIntervalSeconds", 30, time.Second, "seconds").Dynamic()
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
	report, err := newSet(&got).Load(Sources{
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
	if !slices.Equal(report.Unknown, []string{"zookeeperServers"}) {
		t.Errorf("unknown names of the file: %v", report.Unknown)
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
	if report, err := newSet(&b).Load(Sources{File: writeFile(t, out.String())}); err != nil || len(report.Unknown) != 0 {
		t.Fatal(report, err)
	}
	if a.name != b.name || !slices.Equal(a.list, b.list) || a.port != b.port {
		t.Errorf("%+v became %+v", a, b)
	}
}

func TestPrintTellsUnitOriginAndDynamic(t *testing.T) {
	var got target
	s := newSet(&got)
	file := writeFile(t, "\nbrokerServicePort=1\n")
	if _, err := s.Load(Sources{File: file}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s.Print(&out)
	for _, want := range []string{
		"# seconds\n# default \"30\", in seconds, dynamic\nkeepAliveIntervalSeconds=30\n",
		"# port\n# default \"6650\", now from: " + file + ":2\nbrokerServicePort=1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// A secret shows nowhere: not printed, not among the values, not in a complaint.
func TestSecretsAreHidden(t *testing.T) {
	const secret = "hunter2"
	var key string
	s := New()
	s.String(&key, "gossipSecretKey", "", "key").Secret()
	s.Func("pin", "", "digits", func(v string) error {
		if v != "" {
			return errors.New("bad pin " + v)
		}
		return nil
	}).Secret()
	_, err := s.Load(Sources{Sets: []string{"gossipSecretKey=" + secret, "pin=" + secret}})
	var out bytes.Buffer
	s.Print(&out)
	if key != secret || err == nil || !strings.Contains(err.Error(), "pin") {
		t.Fatalf("%q, %v", key, err)
	}
	for what, text := range map[string]string{"print": out.String(), "values": s.Values()["gossipSecretKey"], "error": err.Error()} {
		if strings.Contains(text, secret) {
			t.Errorf("%s shows it: %s", what, text)
		}
	}
	again := New()
	again.String(&key, "gossipSecretKey", "", "key").Secret()
	again.String(new(string), "pin", "", "digits").Secret()
	if _, err := again.Load(Sources{File: writeFile(t, out.String())}); err != nil || key != "" {
		t.Errorf("what is printed loads as %q, %v", key, err)
	}
}

const foreign = "# of Pulsar\nzookeeperServers=\nmaxTenants=0\nclusterName=\nbookkeeper_*\n!authenticationEnabled=false\n"

func TestForeignNames(t *testing.T) {
	var got target
	load := func(strict bool, text string, sets ...string) (Report, error) {
		s := newSet(&got)
		s.Foreign(ParseForeign(foreign))
		return s.Load(Sources{File: writeFile(t, text), Sets: sets, Strict: strict})
	}
	file := "zookeeperServers=\nmaxTenants=3\nclusterName=c\nbookkeeper_x=1\nauthenticationEnabled=false\n"
	for _, strict := range []bool{false, true} {
		r, err := load(strict, file, "maxTenants = 0")
		if err != nil || len(r.Unknown) != 0 || got.name != "c" {
			t.Errorf("%+v, %v", r, err)
		}
		if want := []string{"authenticationEnabled", "bookkeeper_x", "maxTenants", "zookeeperServers"}; !slices.Equal(r.Unsupported, want) {
			t.Errorf("unsupported %v", r.Unsupported)
		}
		if want := []string{"bookkeeper_x"}; !slices.Equal(r.Changed, want) { // the last value of a name counts
			t.Errorf("changed %v", r.Changed)
		}
	}
	r, err := load(false, "maxTennants=1\n")
	if err != nil || !slices.Equal(r.Unknown, []string{"maxTennants"}) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = load(true, "\nmaxTennants=1\n"); !errors.Is(err, ErrBadSetting) || !strings.Contains(err.Error(), ":2: unknown name maxTennants") {
		t.Errorf("strict: %v", err)
	}
	if _, err = load(false, "authenticationEnabled=true\n"); !errors.Is(err, ErrBadSetting) {
		t.Errorf("protection is dropped in silence: %v", err)
	}
}

// In Pulsar's files an empty value means the default.
func TestEmptyIsDefault(t *testing.T) {
	var got target
	if _, err := newSet(&got).Load(Sources{File: writeFile(t, "brokerServicePort=\nclusterName= \nkeepAliveIntervalSeconds=\n")}); err != nil {
		t.Fatal(err)
	}
	if got.port != 6650 || got.name != "geminga" || got.wait != 30*time.Second {
		t.Errorf("%+v", got)
	}
}

func TestOverlay(t *testing.T) {
	var a, b target
	loaded := newSet(&a)
	if _, err := loaded.Load(Sources{Sets: []string{"keepAliveIntervalSeconds=7", "brokerServicePort=1"}}); err != nil {
		t.Fatal(err)
	}
	over := newSet(&b)
	if err := over.Overlay(loaded, map[string]string{"keepAliveIntervalSeconds": "9"}); err != nil || b.wait != 9*time.Second || b.port != 1 {
		t.Errorf("%v, %+v", err, b)
	}
	if a.wait != 7*time.Second || over.Values()["keepAliveIntervalSeconds"] != "9" || !slices.Equal(over.Dynamic(), []string{"keepAliveIntervalSeconds"}) {
		t.Errorf("%+v, %v, %v", a, over.Values(), over.Dynamic())
	}
	if err := newSet(&b).Overlay(loaded, nil); err != nil || b.wait != 7*time.Second {
		t.Errorf("what is not stored any more: %v, %+v", err, b)
	}
	for stored, want := range map[string]error{"brokerServicePort": ErrNotDynamic, "typo": ErrNotDynamic, "keepAliveIntervalSeconds": ErrBadSetting} {
		if err := newSet(&b).Overlay(loaded, map[string]string{stored: "x"}); !errors.Is(err, want) || !strings.Contains(err.Error(), stored) {
			t.Errorf("%s: %v", stored, err)
		}
	}
}
