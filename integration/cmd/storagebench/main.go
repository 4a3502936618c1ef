// Command storagebench measures the storage of bookies beside what bounds it and what others reach, in one run: three
// bookies in this process, on one disk, over loopback; the same Raft groups on other log stores; and the bare disk.
//
//	load ─▶ gRPC ─▶ three bookies: proposer, raft, journal          the product as it runs
//	load ─▶ proposals ─▶ three raft nodes over memory ─┬▶ journal   what the log store alone makes of the same groups
//	                                                   ├▶ raft-wal
//	                                                   └▶ raft-boltdb
//	                      pwrite and fdatasync of a batch, again and again, in one file: the disk
//
// All get the same commands. One carries what a broker gathers in a turn: entries of up to 16 KiB together, one at
// least. Each group has a window of unanswered bytes. Rates are of payload, once, not of its three copies.
//
// Three logs are written to by one process here, where each bookie has a process of its own. A goroutine in a blocking
// system call keeps others off one of the runtime's processors for a while, so there are three more of those than cores,
// for whoever is measured.
//
// It prints Markdown. CPU is that of the whole process, the load included.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	dir      string
	sizes    []int
	groups   []int
	each     time.Duration
	command  int
	window   int
	parts    string
	engines  string
	profile  string
	recycled bool // journals begin with files that were written before
	limit    time.Duration
}

func main() {
	o := options{sizes: []int{128, 1 << 10, 8 << 10, 64 << 10}, groups: []int{1, 8, 32}}
	flag.StringVar(&o.dir, "dir", "", "directory on the disk that is measured; empty: a temporary one")
	flag.Func("sizes", "bytes of an entry, a list (default 128,1024,8192,65536)", numbers(&o.sizes))
	flag.Func("groups", "ledger groups that are written to, a list (default 1,8,32)", numbers(&o.groups))
	flag.DurationVar(&o.each, "each", 2500*time.Millisecond, "time for one figure, after a fifth of it to warm up")
	flag.IntVar(&o.command, "command", 16<<10, "bytes of entries in one command")
	flag.IntVar(&o.window, "window", 2<<20, "unanswered bytes of a group")
	flag.StringVar(&o.parts, "parts", "append,latency,read,memory", "what to measure")
	flag.StringVar(&o.engines, "engines", "bookies,journal,raft-wal,raft-boltdb", "who appends; the bookies always")
	flag.BoolVar(&o.recycled, "recycled", false, "the bookies' journals begin with four files each that were written before, as where ledgers are deleted while others grow: enough for the first figure of each number of groups")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of everything to this file")
	flag.DurationVar(&o.limit, "limit", 8*time.Minute, "time for all of it")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "storagebench:", err)
		os.Exit(1)
	}
}

func numbers(into *[]int) func(string) error {
	return func(s string) error {
		*into = nil
		for _, part := range strings.Split(s, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no positive number", part)
			}
			*into = append(*into, n)
		}
		return nil
	}
}

func run(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	if o.dir, err = os.MkdirTemp(o.dir, "geminga-storage-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	d, err := openDisk(o.dir)
	if err != nil {
		return err
	}
	defer d.close()
	runtime.GOMAXPROCS(runtime.NumCPU() + replicas)
	start := time.Now()
	fmt.Printf("%d CPUs, %s; commands of %d KiB, %d KiB unanswered in each group, %s for a figure\n",
		runtime.NumCPU(), runtime.Version(), o.command>>10, o.window>>10, o.each)
	for _, p := range []struct {
		name string
		run  func(context.Context, options, *disk) error
	}{{"append", measureAppends}, {"latency", measureLatency}, {"read", measureReads}, {"memory", measureMemory}} {
		if !strings.Contains(o.parts, p.name) {
			continue
		}
		if err := p.run(ctx, o, d); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	fmt.Printf("\nAll of it took %.0f s.\n", time.Since(start).Seconds())
	return nil
}

// human writes a size as people do.
func human(n int) string {
	if n >= 1<<10 && n%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
