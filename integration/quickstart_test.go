package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestQuickStart runs the README as it is written: the command that starts the server is `make run`, the program is
// the first Go block. Only the ports differ, so that the test does not collide with a server that runs already.
func TestQuickStart(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("the README has no Go program")
	}
	const port = "localhost:6650"
	if !strings.Contains(string(block[1]), port) {
		t.Fatalf("the program does not connect to %s", port)
	}
	if !strings.Contains(string(readme), "make run") {
		t.Fatal("the README does not say make run")
	}
	p, url := startStandalone(t)
	program := strings.ReplaceAll(string(block[1]), port, strings.TrimPrefix(url, "pulsar://"))

	//nolint:usetesting // it has to lie in this module
	dir, err := os.MkdirTemp(".", "quickstart-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", "./"+dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, p.Tail(20))
	}
	if !strings.Contains(string(out), "hello, Geminga") {
		t.Errorf("the program printed %q", out)
	}
}

// TestMakeRun checks that make run and make cluster start what the other tests start.
func TestMakeRun(t *testing.T) {
	out, err := exec.Command("make", "-n", "-C", "..", "run").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "brokerd standalone") {
		t.Errorf("make run does %s", out)
	}
}
