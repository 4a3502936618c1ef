package main

import (
	"bytes"
	"os"
	"testing"

	"geminga/cmd/internal/settings"
)

// The file that operators start from is what brokerd config prints where nothing is set.
func TestConfFile(t *testing.T) {
	set := (&config{}).register()
	if _, err := set.Load(settings.Sources{}); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	set.Print(&want)
	got, err := os.ReadFile("../../deploy/conf/brokerd.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("deploy/conf/brokerd.conf is stale: make conf writes it anew")
	}
}
