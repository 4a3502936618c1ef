// Command bench measures brokerd in a real cluster: three bookied and one brokerd as processes, which it starts.
//
//	bench          one measurement, beside a bare loop
//	bench sweep    a row for each numIOThreads, then one for each dispatcherMaxReadBatchSize
//	bench cost     what a delivered message costs: subscriptions, their types, consumers, acks; what an unacked one keeps
//
// Many connections publish unbatched messages, each with a window of unanswered ones; others consume them meanwhile. A
// measurement ends when every subscription has received every message, and fails when the counts of producers,
// consumers and brokerd do not agree. CPU time and bytes written of each process come from the kernel.
//
// The load generator is this process. It speaks the protocol without a client library, to be cheap, but it shares the
// machine's CPUs with the daemons: rates and times are those of all of it together, only CPU times are of the daemons
// alone. Producers go as fast as their windows let them, so times are those of a system at its limit: most of
// it is waiting behind the windows of the others.
//
// The bare loop of the first form is a process that only parses and acknowledges the same frames over the same event
// loops. The ratio of the two says what the broker adds; absolute figures depend on the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	o := parse()
	if err := run(o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() options {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built daemons")
	flag.StringVar(&o.dir, "dir", "", "directory for data and logs; empty: a temporary one")
	flag.IntVar(&o.producers, "producers", 100, "connections, one producer each")
	flag.IntVar(&o.window, "window", 100, "unanswered messages per producer")
	flag.IntVar(&o.count, "count", 1_000_000, "messages in all, after a warm-up of a tenth of it")
	flag.IntVar(&o.size, "size", 128, "payload bytes")
	flag.IntVar(&o.keys, "keys", 10_000, "different keys of messages")
	flag.StringVar(&o.reading.kind, "subscription", "Shared", "Exclusive, Failover, Shared or Key_Shared")
	flag.IntVar(&o.reading.subscriptions, "subscriptions", 1, "subscriptions, each of which receives everything")
	flag.IntVar(&o.reading.consumers, "consumers", 0, "consumers of each subscription, a connection each; 0: nobody subscribes")
	flag.StringVar(&o.reading.acks, "acks", acksGrouped, "single, grouped (100 ids a command), cumulative (each 100th) or none")
	flag.IntVar(&o.unacked, "unacked", 0, "measure the memory that as many unacknowledged messages keep, and nothing else")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "time for one measurement")
	flag.Var(&o.brokerSets, "broker-set", "name=value for brokerd")
	flag.Var(&o.bookieSets, "bookie-set", "name=value for bookied")
	flag.StringVar(&o.bareServer, "bare-server", "", "serve the bare loop on this address (used by bench itself)")
	flag.StringVar(&o.profile, "profile", "", "write profiles of the daemons during the measurement, of CPU time and of allocations, to this directory")
	flag.Parse()
	return o
}

func run(o options, args []string) error {
	if o.bareServer != "" {
		return serveBare(o.bareServer)
	}
	if err := o.validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "geminga-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o.dir = dir
	if o.profile != "" {
		o.brokerSets = append(o.brokerSets, "pprofEnabled=true")
		o.bookieSets = append(o.bookieSets, "pprofEnabled=true")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("%d producers × window %d, %d bytes unbatched; %d CPUs, shared by three bookied, brokerd and the load generator; %s\n\n",
		o.producers, o.window, o.size, runtime.NumCPU(), runtime.Version())
	switch mode := append(args, "")[0]; {
	case mode == "sweep":
		return sweep(ctx, o)
	case mode == "cost":
		return cost(ctx, o)
	case mode != "":
		return fmt.Errorf("%q is neither sweep nor cost", mode)
	case o.unacked > 0:
		return unacked(ctx, o)
	}
	return compare(ctx, o)
}

// compare measures a cluster beside the bare loop.
func compare(ctx context.Context, o options) error {
	bare, err := measureBare(ctx, o)
	if err != nil {
		return fmt.Errorf("bare loop: %w", err)
	}
	real, err := measureCluster(ctx, o)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	report(o, bare, real)
	return nil
}

// measureCluster loads a new cluster.
func measureCluster(ctx context.Context, o options) (r result, err error) {
	err = withCluster(ctx, o, func(addr string, d daemons) error {
		r, err = load(ctx, o, addr, d)
		return err
	})
	return r, err
}
