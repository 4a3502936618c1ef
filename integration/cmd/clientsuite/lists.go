package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// test is a line of a list.
type test struct {
	name   string
	tries  int
	fast   bool
	reason string // not applicable; empty: to be run
}

// readList reads a list: a test per line; # begins a comment. In front of the name, "+ " marks a test of the fast part;
// "- " one that is not applicable, with the reason behind; "~ " one that fails by chance whatever the broker does, with the
// reason behind.
func readList(path string) (tests []test, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		switch {
		case len(fields) == 0:
		case fields[0] == "-" && len(fields) > 2:
			tests = append(tests, test{name: fields[1], tries: 1, reason: strings.Join(fields[2:], " ")})
		case fields[0] == "~" && len(fields) > 2:
			tests = append(tests, test{name: fields[1], tries: 3})
		case fields[0] == "+" && len(fields) == 2:
			tests = append(tests, test{name: fields[1], tries: 1, fast: true})
		case len(fields) == 1 && strings.HasPrefix(fields[0], "Test"):
			tests = append(tests, test{name: fields[0], tries: 1})
		default:
			return nil, fmt.Errorf("%s: %q is neither a test nor a test with a reason", path, lines.Text())
		}
	}
	return tests, lines.Err()
}

// choose divides a list into what is run and what is left out.
func (o *options) choose(list []test) (run, left []test) {
	for _, t := range list {
		switch {
		case o.fast && !t.fast:
		case t.reason != "" && !o.all:
			left = append(left, t)
		default:
			run = append(run, t)
		}
	}
	return run, left
}
