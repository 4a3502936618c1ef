package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What docs/compatibility.md says about limits is so: the default and whether it can be changed of each, Pulsar's default as
// far as its file names one; and no setting that can be changed is missing.
func TestCompatibilityOfLimits(t *testing.T) {
	text, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(text), "\n## Limits, throttles and memory\n")
	if !ok {
		t.Fatal("the part about limits is gone")
	}
	part, _, _ = strings.Cut(part, "\n## ")
	set := (&config{}).register()
	values, dynamic := set.Values(), set.Dynamic()
	pulsar := map[string]string{}
	for line := range strings.Lines(pulsarSettings) {
		if name, def, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			pulsar[strings.TrimPrefix(name, "!")] = def
		}
	}
	plain := func(cell string) string {
		if cell == "empty" {
			return ""
		}
		return strings.Trim(cell, "`")
	}
	seen := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\S+) \\| (\\S+) \\| [^|]+ \\| (yes|no) \\| [^|]*\\|$")
	for _, m := range row.FindAllStringSubmatch(part, -1) {
		name := m[1]
		seen[name] = true
		if def, ok := values[name]; !ok || def != plain(m[3]) {
			t.Errorf("%s: default %q (a setting: %t), the page says %s", name, def, ok, m[3])
		}
		if can := slices.Contains(dynamic, name); can != (m[4] == "yes") {
			t.Errorf("%s: can be changed: %t, the page says %s", name, can, m[4])
		}
		if def, ok := pulsar[name]; m[2] != "–" && (!ok || def != plain(m[2])) {
			t.Errorf("%s: Pulsar's default is %q (in its file: %t), the page says %s", name, def, ok, m[2])
		}
	}
	for _, name := range dynamic {
		if !seen[name] {
			t.Errorf("%s can be changed at run time and is not on the page", name)
		}
	}
	if rows := strings.Count(part, "\n| `"); rows != len(seen) {
		t.Errorf("%d of %d rows were understood", len(seen), rows)
	}
}
