package main

import (
	"testing"

	"geminga/pkg/bookie"
)

// bookied waits for a hung disk as long as the package does, and takes no 0 for a default.
func TestDurations(t *testing.T) {
	c, _, _, _, err := parseConfig("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	var o bookie.Options
	o.EnsureDefaults()
	if c.writeTimeout != o.Journal.WriteTimeout {
		t.Errorf("a hung write may take %s, by the package's default %s", c.writeTimeout, o.Journal.WriteTimeout)
	}
	for _, name := range []string{
		"journalWriteTimeoutSeconds", "metadataElectionTimeoutMillis", "ledgerGroupElectionTimeoutMillis", "shutdownTimeoutSeconds",
	} {
		if _, _, _, _, err := parseConfig("test", []string{"--set", name + "=0"}); err == nil {
			t.Errorf("%s=0 passed", name)
		}
	}
}
