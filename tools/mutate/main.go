// Mutate shows that tests can fail: it changes the code, one fault at a time, and wants the named test to fail each time.
//
//	mutate [-seeds n] package-directory…
//
// The faults of a package are in testdata/mutations, blocks with an empty line between them:
//
//	# what breaks
//	file ack.go
//	run  TestRandomDispatch
//	- lines that are in the file exactly once; indentation does not count
//	+ lines that take their place; there may be none
//
// The tree is not touched: the compiler is given changed files through an overlay. It runs in the root of the module.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

type mutation struct {
	what, file, run string
	from, to        []string
}

func main() {
	seeds := flag.Int("seeds", 150, "seeds that a property has to find a fault")
	flag.Parse()
	if err := mutateAll(flag.Args(), *seeds); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func mutateAll(dirs []string, seeds int) error {
	survived := 0
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "testdata", "mutations"))
		if err != nil {
			return err
		}
		for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			m, err := parse(block)
			if err != nil {
				return fmt.Errorf("%s: %q: %w", dir, block, err)
			}
			caught, err := try(dir, m, seeds)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", dir, m.what, err)
			}
			if caught == "" {
				survived++
				caught = "SURVIVED"
			}
			fmt.Printf("%-18s %s\n%18s %s\n", m.run, m.what, "", caught)
		}
	}
	if survived > 0 {
		return fmt.Errorf("%d faults were not found", survived)
	}
	return nil
}

func parse(block string) (m mutation, err error) {
	for line := range strings.SplitSeq(block, "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch mark {
		case "#":
			m.what = strings.TrimSpace(m.what + " " + rest)
		case "file":
			m.file = rest
		case "run":
			m.run = rest
		case "-":
			m.from = append(m.from, rest)
		case "+":
			m.to = append(m.to, rest)
		default:
			return m, fmt.Errorf("line %q", line)
		}
	}
	if m.what == "" || m.file == "" || m.run == "" || len(m.from) == 0 {
		return m, errors.New("incomplete")
	}
	return m, nil
}

// apply returns the file with the fault in it.
func (m *mutation) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	at := -1
	for i := range lines {
		if !m.matches(lines[i:]) {
			continue
		}
		if at >= 0 {
			return "", fmt.Errorf("%s has the lines twice, from %d and from %d on", m.file, at+1, i+1)
		}
		at = i
	}
	if at < 0 {
		return "", fmt.Errorf("%s does not have the lines", m.file)
	}
	out := append(append(append([]string{}, lines[:at]...), m.to...), lines[at+len(m.from):]...)
	return strings.Join(out, "\n"), nil
}

func (m *mutation) matches(lines []string) bool {
	if len(lines) < len(m.from) {
		return false
	}
	for i, want := range m.from {
		if strings.TrimSpace(lines[i]) != want {
			return false
		}
	}
	return true
}

// try runs the test on the changed code and returns what it complains of; nothing: it passes.
func try(dir string, m mutation, seeds int) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, m.file))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(string(text))
	if err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	file, overlay := filepath.Join(temp, m.file), filepath.Join(temp, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: file}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(file, []byte(changed), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "test", "-overlay", overlay, "-count=1", "-timeout=3m", "-run", "^"+m.run+"$",
		"./"+filepath.ToSlash(dir), fmt.Sprintf("-properties.seeds=%d", seeds))
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case !errors.As(err, &failed):
		return "", err
	case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
		return "", fmt.Errorf("it does not build:\n%s", out)
	}
	return complaint(string(out)), nil
}

// complaint finds the line that says most: the first error of a test, or a panic.
func complaint(out string) string {
	for line := range strings.SplitSeq(out, "\n") {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "_test.go:") || strings.HasPrefix(line, "panic:") {
			return line
		}
	}
	return "failed"
}
