package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A whole bookkeeper.conf is accepted, also strictly; a misspelled name is not; what promises protection is refused.
func TestBookKeepersFile(t *testing.T) {
	var stock strings.Builder
	for text := range strings.Lines(bookkeeperSettings) {
		name, def, ok := strings.Cut(strings.TrimSpace(text), "=")
		if ok && name[0] != '#' {
			stock.WriteString(strings.TrimPrefix(name, "!") + "=" + def + "\n")
		}
	}
	parse := func(text string, args ...string) (*config, error) {
		path := filepath.Join(t.TempDir(), "bookkeeper.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, _, _, err := parseConfig("test", append(args, "--conf", path))
		return c, err
	}
	c, err := parse(stock.String()+"dbStorage_rocksDB_blockSize=65536\n", "--strict-config")
	if err != nil || c.segmentMB != 2048 || c.journalDir != "data/bookkeeper/journal" || c.noSync {
		t.Errorf("%v, %+v", err, c)
	}
	if _, err := parse("journalSyncDat=true", "--strict-config"); err == nil || !strings.Contains(err.Error(), "journalSyncDat") {
		t.Errorf("misspelled: %v", err)
	}
	if _, err := parse("tlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory"); err == nil {
		t.Error("TLS is ignored in silence")
	}
}
