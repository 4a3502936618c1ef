// Command bench measures the publish path of a real cluster beside its limit.
//
// It starts three bookied and one brokerd as processes, publishes unbatched messages from many connections, each with
// a window of unanswered ones, and reads the CPU time and the bytes written of each process from the kernel. In the
// same run it does the same against a bare loop: a process that only parses and acknowledges the same frames over the
// same event loops. The ratio of the two says what the broker adds; absolute figures depend on the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"geminga/integration/harness"
)

type options struct {
	bin, dir          string
	producers, window int
	count, size       int
	consumers         int
	brokerSets        harness.Sets
	bookieSets        harness.Sets
	bareServer        string
	profile           string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built daemons")
	flag.StringVar(&o.dir, "dir", "", "directory for data and logs; empty: a temporary one")
	flag.IntVar(&o.producers, "producers", 100, "connections, one producer each")
	flag.IntVar(&o.window, "window", 100, "unanswered messages per producer")
	flag.IntVar(&o.count, "count", 1_000_000, "messages in all, after a warm-up of a tenth of it")
	flag.IntVar(&o.size, "size", 128, "payload bytes")
	flag.IntVar(&o.consumers, "consumers", 0, "consumers of one Shared subscription that receive meanwhile")
	flag.Var(&o.brokerSets, "broker-set", "name=value for brokerd")
	flag.Var(&o.bookieSets, "bookie-set", "name=value for bookied")
	flag.StringVar(&o.bareServer, "bare-server", "", "serve the bare loop on this address (used by bench itself)")
	flag.StringVar(&o.profile, "profile", "", "write CPU profiles of the daemons during the measurement to this directory")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.bareServer != "" {
		return serveBare(o.bareServer)
	}
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "geminga-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dir = dir
	}
	fmt.Printf("%d producers × window %d, %d messages of %d bytes, unbatched; %d CPUs, %s\n",
		o.producers, o.window, o.count, o.size, runtime.NumCPU(), runtime.Version())
	bare, err := measureBare(o)
	if err != nil {
		return fmt.Errorf("bare loop: %w", err)
	}
	real, err := measureCluster(o)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	report(o, bare, real)
	return nil
}

// result is what one measurement gave.
type result struct {
	elapsed   time.Duration
	received  int64
	broker    harness.Usage
	bookies   harness.Usage
	loadCPU   time.Duration
	mallocs   float64
	allocated float64
}

func measureBare(o options) (result, error) {
	exe, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	addr, err := harness.FreeAddr()
	if err != nil {
		return result{}, err
	}
	p := &harness.Proc{Name: "bare", Args: []string{exe, "-bare-server", addr}, Log: filepath.Join(o.dir, "bare.log")}
	if err := p.Start(); err != nil {
		return result{}, err
	}
	defer p.Kill()
	if err := listening(addr); err != nil {
		return result{}, err
	}
	o.consumers, o.profile = 0, ""
	return load(o, addr, func() (harness.Usage, harness.Usage, error) {
		u, err := harness.UsageOf(p.PID())
		return u, harness.Usage{}, err
	})
}

// listening waits until somebody accepts connections, for ten seconds at most.
func listening(addr string) error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		var c net.Conn
		if c, err = net.Dial("tcp", addr); err == nil {
			return c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func measureCluster(o options) (result, error) {
	if o.profile != "" {
		o.brokerSets = append(o.brokerSets, "pprofEnabled=true")
		o.bookieSets = append(o.bookieSets, "pprofEnabled=true")
	}
	c, err := harness.NewCluster(harness.Options{
		Bin: o.bin, Dir: o.dir, Bookies: 3, Brokers: 1, BrokerSets: o.brokerSets, BookieSets: o.bookieSets,
	})
	if err != nil {
		return result{}, err
	}
	defer c.Kill()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		return result{}, err
	}
	broker := c.Brokers[0]
	usage := func() (harness.Usage, harness.Usage, error) {
		b, err := harness.UsageOf(broker.PID())
		if err != nil {
			return b, b, err
		}
		var sum harness.Usage
		for _, p := range c.Bookies {
			u, err := harness.UsageOf(p.PID())
			if err != nil {
				return b, sum, err
			}
			sum = sum.Plus(u)
		}
		return b, sum, nil
	}
	r, err := load(o, c.URLs[0][len("pulsar://"):], usage, append([]*harness.Proc{broker}, c.Bookies...)...)
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, c.Logs(20))
	}
	return r, nil
}

func report(o options, bare, real result) {
	million := float64(o.count) / 1e6
	row := func(name, unit string, b, r float64) {
		ratio := "-"
		if b > 0 {
			ratio = fmt.Sprintf("%.1f", r/b)
		}
		fmt.Printf("| %-34s | %10.2f | %10.2f | %6s | %s\n", name, b, r, ratio, unit)
	}
	fmt.Printf("| %-34s | %10s | %10s | %6s |\n", "", "bare loop", "Geminga", "ratio")
	row("throughput", "thousand messages/s", float64(o.count)/bare.elapsed.Seconds()/1e3, float64(o.count)/real.elapsed.Seconds()/1e3)
	row("CPU of brokerd", "s per million messages", bare.broker.CPU.Seconds()/million, real.broker.CPU.Seconds()/million)
	row("CPU of the three bookied", "s per million messages", 0, real.bookies.CPU.Seconds()/million)
	row("CPU of the load generator", "s per million messages", bare.loadCPU.Seconds()/million, real.loadCPU.Seconds()/million)
	payload := float64(o.count) * float64(o.size)
	row("written to disk, all replicas", "bytes per byte of payload", 0, float64(real.bookies.Written)/payload)
	row("heap allocations of brokerd", "per message", 0, real.mallocs/float64(o.count))
	row("heap bytes of brokerd", "per message", 0, real.allocated/float64(o.count))
	if o.consumers > 0 {
		row("delivered while publishing", "share of published", 0, float64(real.received)/float64(o.count))
	}
}
