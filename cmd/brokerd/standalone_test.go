package main

import (
	"testing"
	"time"

	"geminga/pkg/bookie"
)

// The settings of bookied's journal reach the embedded bookies, whose journals do not share a directory.
func TestStandaloneJournal(t *testing.T) {
	c, _, _, _, err := parseConfig("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	var o bookie.Options
	o.EnsureDefaults()
	if got := c.journalOf("bookie-1"); got.WriteTimeout != o.Journal.WriteTimeout || got.NoSync || got.Dir != "" {
		t.Errorf("by default %+v", got)
	}
	c, _, _, _, err = parseConfig("test", []string{
		"--set", "journalSyncData=false", "--set", "journalDirectIO=false", "--set", "journalDirectory=/j", "--set", "journalMaxSizeMB=3", "--set", "journalWriteTimeoutSeconds=7",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := bookie.JournalOptions{Dir: "/j/bookie-2", SegmentSize: 3 << 20, NoSync: true, Buffered: true, WriteTimeout: 7 * time.Second}
	if got := c.journalOf("bookie-2"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
