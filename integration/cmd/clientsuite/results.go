package main

import (
	"fmt"
	"os"
	"strings"
)

// result is the outcome of one list on one kind of server.
type result struct {
	list, on             string
	passed, failed, left int
}

// table is the results in Markdown.
func table(all []result) string {
	var b strings.Builder
	b.WriteString("| list | on | passed | failed | not applicable |\n|---|---|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(&b, "| `%s.txt` | %s | %d | %d | %d |\n", r.list, r.on, r.passed, r.failed, r.left)
	}
	return b.String()
}

// The table in a file stands between these lines.
const (
	tableBegins = "<!-- client-suite -->\n"
	tableEnds   = "<!-- end of client-suite -->"
)

// rewrite replaces the table in a file.
func rewrite(path string, all []result) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, begins := strings.Cut(string(text), tableBegins)
	_, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table", path)
	}
	return os.WriteFile(path, []byte(head+tableBegins+table(all)+tableEnds+tail), 0o644)
}
