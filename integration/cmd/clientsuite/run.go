package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// runList runs one list against servers of its own.
func (o *options) runList(ctx context.Context, on, path string) (result, error) {
	r := result{list: strings.TrimSuffix(filepath.Base(path), ".txt"), on: on}
	list, err := readList(path)
	if err != nil {
		return r, err
	}
	tests, left := o.choose(list)
	logs := filepath.Join(o.work, on, r.list)
	if err := os.RemoveAll(logs); err != nil {
		return r, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return r, err
	}
	stop, err := o.start(ctx, on, logs)
	if stop != nil {
		defer stop()
	}
	if err != nil {
		return r, err
	}
	for _, err := range o.runAll(ctx, tests, logs) {
		if err == nil {
			r.passed++
		} else {
			r.failed++
		}
	}
	r.left = len(left)
	fmt.Printf("%s on %s: %d passed, %d failed, %d not applicable\n", r.list, on, r.passed, r.failed, r.left)
	for _, t := range left {
		fmt.Printf("    %s: %s\n", t.name, t.reason)
	}
	return r, ctx.Err()
}

func (o *options) runAll(ctx context.Context, tests []test, logs string) []error {
	results := make([]error, len(tests))
	next := make(chan int)
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() {
			for i := range next {
				results[i] = o.tries(ctx, tests[i], logs)
			}
		})
	}
	for i := range tests {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}

// tries runs a test, and one that is known to fail by chance up to three times.
func (o *options) tries(ctx context.Context, t test, logs string) error {
	log := filepath.Join(logs, t.name+".log")
	for left := t.tries - 1; ; left-- {
		began := time.Now()
		err := o.one(ctx, t.name, log)
		if err == nil {
			fmt.Printf("PASS %s (%.1f s)\n", t.name, time.Since(began).Seconds())
			return nil
		}
		if left <= 0 || ctx.Err() != nil {
			fmt.Printf("FAIL %s: %v\n%s\n", t.name, err, failure(log))
			return err
		}
		fmt.Printf("again: %s\n", t.name)
	}
}

// one runs one test. A binary that knows no test of this name succeeds, so its word is not enough.
func (o *options) one(ctx context.Context, test, log string) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.binary(), "-test.run", "^"+test+"$", "-test.v", "-test.timeout", o.timeout.String())
	cmd.Dir = filepath.Join(o.source(), "pulsar") // the tests find their certificates and keys from there
	out, err := cmd.CombinedOutput()
	if werr := os.WriteFile(log, out, 0o644); werr != nil {
		return werr
	}
	if err == nil && !strings.Contains(string(out), "--- PASS: "+test+" ") {
		err = errors.New("was not run")
	}
	return err
}

// failure picks the lines of a log that say what went wrong.
func failure(log string) string {
	b, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	words := []string{"Error", "panic:", "expected", "actual", "--- FAIL"}
	var out []string
	for line := range strings.Lines(string(b)) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
			out = append(out, "    "+strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(out[:min(len(out), 12)], "\n")
}
