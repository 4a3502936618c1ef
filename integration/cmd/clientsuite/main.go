// Command clientsuite runs the official Go client's own tests against a fresh brokerd: those of the lists in
// ../clientsuite, one process per test, because a test that fails often takes its process down. The client's version is
// that of go.mod. The tests know only localhost:6650 and localhost:8080: if these are taken, nothing is run.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"geminga/integration/harness"
)

const (
	client     = "github.com/apache/pulsar-client-go"
	pulsarPort = "6650"
	webPort    = "8080"
)

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built daemons")
	flag.StringVar(&o.lists, "lists", "clientsuite/t1.txt,clientsuite/t2.txt,clientsuite/t3.txt", "lists of tests, comma-separated")
	flag.StringVar(&o.work, "work", "", "directory for the client's source, data and logs, kept afterwards; empty: a temporary one")
	flag.IntVar(&o.parallel, "parallel", 2, "tests at a time")
	flag.DurationVar(&o.timeout, "timeout", 60*time.Second, "of one test")
	flag.BoolVar(&o.all, "all", false, "run the tests that are marked as not applicable, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "clientsuite:", err)
		os.Exit(1)
	}
}

type options struct {
	bin, lists, work string
	parallel         int
	timeout          time.Duration
	all              bool
}

func (o *options) run(ctx context.Context) error {
	for _, port := range []string{pulsarPort, webPort} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			fmt.Printf("SKIPPED: the suite needs port %s, which is taken (%v)\n", port, err)
			return nil
		}
		l.Close()
	}
	if o.work == "" {
		dir, err := os.MkdirTemp("", "geminga-clientsuite-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.work = dir
	}
	s := &suite{options: o}
	if err := s.build(ctx); err != nil {
		return err
	}
	failed := 0
	for _, path := range strings.Split(o.lists, ",") {
		n, err := s.list(ctx, path)
		if err != nil {
			return err
		}
		failed += n
	}
	if failed > 0 {
		return fmt.Errorf("%d tests failed", failed)
	}
	return nil
}

// suite is the client's tests, built.
type suite struct {
	*options
	binary, dir string // dir is where the tests find their certificates and keys
}

// build copies the client out of the module cache, which is read-only and outside of any module of ours, and builds its
// tests with its own go.mod.
func (s *suite) build(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", client).Output()
	if err != nil {
		return fmt.Errorf("where is %s: %w", client, err)
	}
	version, cached, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	work, err := filepath.Abs(s.work)
	if err != nil {
		return err
	}
	source := filepath.Join(work, "client-"+version)
	if _, err := os.Stat(source); errors.Is(err, os.ErrNotExist) {
		if err := os.CopyFS(source, os.DirFS(cached)); err != nil {
			return err
		}
	}
	s.dir, s.binary = filepath.Join(source, "pulsar"), filepath.Join(work, "pulsar.test")
	fmt.Printf("building the tests of %s %s\n", client, version)
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", s.binary, "./pulsar")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// list runs one list against a server of its own, and returns how many tests failed.
func (s *suite) list(ctx context.Context, path string) (int, error) {
	tests, left, err := readList(path)
	if err != nil {
		return 0, err
	}
	if s.all {
		tests, left = append(tests, left...), nil
	}
	name := strings.TrimSuffix(filepath.Base(path), ".txt")
	logs := filepath.Join(s.work, name)
	if err := os.RemoveAll(logs); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return 0, err
	}
	server, err := s.start(ctx, logs)
	if err != nil {
		return 0, err
	}
	defer server.Kill()
	results := s.runAll(ctx, tests, logs)
	passed, failed := 0, 0
	for _, r := range results {
		if r == nil {
			passed++
		} else {
			failed++
		}
	}
	fmt.Printf("%s: %d passed, %d failed, %d not applicable\n", name, passed, failed, len(left))
	return failed, ctx.Err()
}

func (s *suite) start(ctx context.Context, dir string) (*harness.Proc, error) {
	bookie, err := harness.FreeAddr()
	if err != nil {
		return nil, err
	}
	_, bookiePort, err := net.SplitHostPort(bookie)
	if err != nil {
		return nil, err
	}
	p := &harness.Proc{
		Name: "brokerd", HTTP: "localhost:" + webPort, Log: filepath.Join(dir, "brokerd.log"),
		Args: []string{
			filepath.Join(s.bin, "brokerd"), "standalone", "--data", filepath.Join(dir, "data"),
			"--set", "bindAddress=127.0.0.1", "--set", "advertisedAddress=localhost",
			"--set", "brokerServicePort=" + pulsarPort, "--set", "webServicePort=" + webPort, "--set", "bookiePort=" + bookiePort,
			// What the suite's own server configuration says. Of three keys, consistent hashing may give one consumer all.
			"--set", "maxMessageSize=1048576", "--set", "subscriptionKeySharedUseConsistentHashing=false",
		},
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := p.WaitReady(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (s *suite) runAll(ctx context.Context, tests []test, logs string) []error {
	results := make([]error, len(tests))
	next := make(chan int)
	var workers sync.WaitGroup
	for range s.parallel {
		workers.Go(func() {
			for i := range next {
				results[i] = s.tries(ctx, tests[i], logs)
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
func (s *suite) tries(ctx context.Context, t test, logs string) error {
	log := filepath.Join(logs, t.name+".log")
	for left := t.tries - 1; ; left-- {
		began := time.Now()
		err := s.one(ctx, t.name, log)
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
func (s *suite) one(ctx context.Context, test, log string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, "-test.run", "^"+test+"$", "-test.v", "-test.timeout", s.timeout.String())
	cmd.Dir = s.dir
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
	var out []string
	for line := range strings.Lines(string(b)) {
		if slices.ContainsFunc([]string{"Error", "panic:", "expected", "actual", "--- FAIL"}, func(w string) bool { return strings.Contains(line, w) }) {
			out = append(out, "    "+strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(out[:min(len(out), 12)], "\n")
}

// test is a line of a list.
type test struct {
	name  string
	tries int
}

// readList reads a list: a test per line; # begins a comment; a line that begins with "- " is a test that is not
// applicable, and why; one that begins with "~ " is a test that fails by chance whatever the broker does, and why.
func readList(path string) (tests, left []test, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		switch {
		case len(fields) == 0:
		case fields[0] == "-" && len(fields) > 2:
			left = append(left, test{fields[1], 1})
		case fields[0] == "~" && len(fields) > 2:
			tests = append(tests, test{fields[1], 3})
		case len(fields) == 1 && fields[0] != "-" && fields[0] != "~":
			tests = append(tests, test{fields[0], 1})
		default:
			return nil, nil, fmt.Errorf("%s: %q is neither a test nor a test with a reason", path, lines.Text())
		}
	}
	return tests, left, lines.Err()
}
