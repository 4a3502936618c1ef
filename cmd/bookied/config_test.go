package main

import (
	"testing"

	"geminga/pkg/bookie"
)

// The mark from which on entries are taken again is never below that at which they are refused.
func TestMarksOfFreeSpace(t *testing.T) {
	for _, c := range []struct {
		free, lwm string
		want      uint64
	}{{"100", "0", 150}, {"100", "130", 130}, {"100", "60", 100}} {
		conf, _, _, _, err := parseConfig("test", []string{"--set", "minFreeSpaceMB=" + c.free, "--set", "minFreeSpaceLwmMB=" + c.lwm})
		if err != nil {
			t.Fatal(err)
		}
		var o bookie.Options
		conf.placement.apply(&o)
		o.EnsureDefaults()
		if o.MinFreeSpaceLwm>>20 != c.want {
			t.Errorf("%s and %s: from %d MiB on", c.free, c.lwm, o.MinFreeSpaceLwm>>20)
		}
	}
}

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
