// Command clientsuite runs the official Go client's own tests against a fresh standalone broker, and against a fresh
// cluster of three bookies and two brokers: those of the lists in ../clientsuite, one process per test, because a test that
// fails often takes its process down. The client's version is that of go.mod; its tests are not changed.
//
// The tests know only localhost:6650 and localhost:8080. Where the system allows it (Linux), everything runs in a network
// namespace of its own, in which these are free; elsewhere they have to be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	o := &options{}
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built daemons")
	flag.StringVar(&o.lists, "lists", "clientsuite/t1.txt,clientsuite/t2.txt,clientsuite/t3.txt", "lists of tests, comma-separated")
	flag.StringVar(&o.on, "on", "standalone,cluster", "servers to run them against, comma-separated: standalone, cluster")
	flag.StringVar(&o.work, "work", "", "directory for the client's source, data and logs, kept afterwards; empty: a temporary one")
	flag.StringVar(&o.doc, "doc", "", "file whose table of results is rewritten")
	flag.IntVar(&o.parallel, "parallel", 2, "tests at a time")
	flag.DurationVar(&o.timeout, "timeout", 60*time.Second, "of one test")
	flag.BoolVar(&o.fast, "fast", false, "run only the tests that are marked as the fast part")
	flag.BoolVar(&o.all, "all", false, "run the tests that are marked as not applicable, too")
	flag.BoolVar(&o.inside, "inside", false, "the client is built and the network is ours: set by the command itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx)
	stop()
	if err == nil {
		return
	}
	if o.inside && errors.Is(err, errNoNamespace) {
		os.Exit(exitNoNamespace)
	}
	fmt.Fprintln(os.Stderr, "clientsuite:", err)
	os.Exit(1)
}

type options struct {
	bin, lists, on, work, doc string
	parallel                  int
	timeout                   time.Duration
	fast, all, inside         bool
}

func (o *options) run(ctx context.Context) error {
	if o.inside {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("%w: loopback: %w", errNoNamespace, err)
		}
		return o.runLists(ctx)
	}
	if o.work == "" {
		dir, err := os.MkdirTemp("", "geminga-clientsuite-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.work = dir
	}
	version, err := o.build(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("tests of %s %s\n", client, version)
	err = o.runInside(ctx)
	if !errors.Is(err, errNoNamespace) {
		return err
	}
	fmt.Println(err)
	if err := portsFree(); err != nil {
		return err
	}
	return o.runLists(ctx)
}

// runLists runs every list against every kind of server.
func (o *options) runLists(ctx context.Context) error {
	var all []result
	failed := 0
	for on := range strings.SplitSeq(o.on, ",") {
		for path := range strings.SplitSeq(o.lists, ",") {
			r, err := o.runList(ctx, on, path)
			if err != nil {
				return err
			}
			all, failed = append(all, r), failed+r.failed
		}
	}
	fmt.Println(table(all))
	if o.doc != "" {
		if err := rewrite(o.doc, all); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d tests failed", failed)
	}
	return nil
}
