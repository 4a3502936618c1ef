// Command restart measures what the start of a bookie costs after it was killed, with more and more data in as many
// ledgers. It fills real bookied processes through the append path that brokers use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"geminga/integration/harness"
	"geminga/pkg/bookieclient"
)

type options struct {
	bin, dir string
	bookies  int
	groups   int
	ledgers  int
	entry    int
	batch    int
	sizes    string // MiB
	settle   time.Duration
	limit    time.Duration
	sets     harness.Sets
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built daemons")
	flag.StringVar(&o.dir, "dir", "", "directory for the data, which is deleted afterwards; default: a temporary one")
	flag.IntVar(&o.bookies, "bookies", 1, "bookies; each holds all of the data, with three replicas at most")
	flag.IntVar(&o.groups, "groups", 4, "ledger groups for each bookie")
	flag.IntVar(&o.ledgers, "ledgers", 10_000, "ledgers")
	flag.IntVar(&o.entry, "entry", 64<<10, "bytes of an entry")
	flag.IntVar(&o.batch, "batch", 1, "entries of an append command")
	flag.StringVar(&o.sizes, "sizes", "1024,5120,10240", "MiB that are there at each kill, ascending")
	flag.DurationVar(&o.settle, "settle", 15*time.Second, "how long the bookie is watched after it is ready")
	flag.DurationVar(&o.limit, "limit", time.Hour, "time for all of it")
	flag.Var(&o.sets, "bookie-set", "name=value for bookied")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

func run(o *options) (err error) {
	sizes, err := parseSizes(o.sizes)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "restart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	defer cancel()
	c, err := harness.NewCluster(harness.Options{
		Bin: o.bin, Dir: dir, Bookies: o.bookies,
		BookieSets: append([]string{
			fmt.Sprintf("ledgerGroupsPerBookie=%d", o.groups), fmt.Sprintf("ledgerGroupReplicas=%d", min(o.bookies, 3)),
		}, o.sets...),
	})
	if err != nil {
		return err
	}
	defer c.Kill()
	if err := c.Start(ctx); err != nil {
		return err
	}
	client, err := bookieclient.Open(bookieclient.Options{Bookies: c.Services()})
	if err != nil {
		return err
	}
	defer client.Shutdown()
	f := newFiller(client, o)
	if err := f.create(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, c.Logs(20))
	}
	fmt.Println(header)
	for _, mib := range sizes {
		if err := f.fill(ctx, mib<<20); err != nil {
			return fmt.Errorf("%w\n%s", err, c.Logs(20))
		}
		r, err := restart(ctx, c, client, o)
		if err == nil {
			err = f.check(ctx)
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, c.Logs(20))
		}
		r.print(mib, o, dir)
	}
	return nil
}

func parseSizes(list string) ([]int64, error) {
	var out []int64
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || len(out) > 0 && n < out[len(out)-1] {
			return nil, fmt.Errorf("-sizes %q: not an ascending list of MiB", list)
		}
		out = append(out, n)
	}
	return out, nil
}
