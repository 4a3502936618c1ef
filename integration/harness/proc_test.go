package harness

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFaultIsFoundInTheLog(t *testing.T) {
	for text, broken := range map[string]bool{
		"level=INFO msg=ready\n":                                    false,
		"level=WARN msg=\"no panic: all is well\"\n":                false,
		"a\n==================\nWARNING: DATA RACE\nWrite at 0x1\n": true,
		"a\npanic: runtime error\n":                                 true,
		"a\nfatal error: concurrent map writes\n":                   true,
	} {
		p := &Proc{Log: filepath.Join(t.TempDir(), "log")}
		if err := os.WriteFile(p.Log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.Fault(); (got != "") != broken {
			t.Errorf("%q: fault %q", text, got)
		}
	}
	if (&Proc{Log: "does/not/exist"}).Fault() == "" {
		t.Error("a log that cannot be read counts as sound")
	}
}
