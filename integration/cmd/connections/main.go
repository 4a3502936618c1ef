// Command connections measures what connections cost a real brokerd: the resident memory of idle ones, and how long the
// broker takes to have everybody back after all of many clients have lost theirs at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"geminga/integration/harness"
	"geminga/integration/torture"
	"geminga/rpc/pulsarpb"
)

type options struct {
	bin     string
	idle    int
	storm   int
	topics  int
	sources int
	dialers int
	limit   time.Duration
	sets    harness.Sets
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built daemons")
	flag.IntVar(&o.idle, "idle", 10_000, "idle connections")
	flag.IntVar(&o.storm, "storm", 5000, "connections with a producer and a consumer that are lost at once")
	flag.IntVar(&o.topics, "topics", 50, "topics of the storm")
	flag.IntVar(&o.sources, "sources", 10, "client addresses, 127.0.0.1 and following; each has some 28,000 ports")
	flag.IntVar(&o.dialers, "dialers", 100, "connections that are opened at a time")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "time for all of it")
	flag.Var(&o.sets, "broker-set", "name=value for brokerd")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "connections:", err)
		os.Exit(1)
	}
}

// rig is a running broker.
type rig struct {
	options
	addr  string
	watch torture.Watch
}

func run(o options) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	defer cancel()
	if err := enoughFiles(max(o.idle, o.storm)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "geminga-connections-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, url, err := harness.NewStandalone(harness.Options{Bin: o.bin, Dir: dir, BrokerSets: append(o.sets, "pprofEnabled=true")})
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Kill()
	if err := p.WaitReady(ctx); err != nil {
		return err
	}
	r := &rig{options: o, addr: url[len("pulsar://"):], watch: torture.Watch{PID: p.PID(), HTTP: p.HTTP}}
	fmt.Printf("%d CPUs, %s\n", runtime.NumCPU(), runtime.Version())
	return errors.Join(r.measureIdle(ctx), r.measureStorm(ctx))
}

// enoughFiles checks that this process, and so brokerd, may have n connections.
func enoughFiles(n int) error {
	others := 300 + n/45 // brokerd keeps 200 and a fiftieth
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	if uint64(n+others) > l.Max {
		return fmt.Errorf("%d connections need more than the %d files that a process may open here (ulimit -Hn)", n, l.Max)
	}
	return nil
}

func (r *rig) measureIdle(ctx context.Context) error {
	warm, err := r.open(100, nil) // the loops' buffers and the runtime's caches are there before
	if err != nil {
		return err
	}
	closeAll(warm)
	before, err := r.settled(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	conns, err := r.open(r.idle, nil)
	defer closeAll(conns)
	if err != nil {
		return err
	}
	took := time.Since(start)
	after, err := r.settled(ctx)
	if err != nil {
		return err
	}
	each := func(n int64) float64 { return float64(n) / float64(r.idle) / 1024 }
	fmt.Printf("%d idle connections in %.1f s: RSS %.2f KiB each, live heap %.2f KiB each, %d goroutines more\n",
		r.idle, took.Seconds(), each(after.RSS-before.RSS), each(after.Heap-before.Heap), after.Goroutines-before.Goroutines)
	return nil
}

// settled returns the state with the least memory of five looks, since the runtime gives garbage back by and by.
func (r *rig) settled(ctx context.Context) (torture.State, error) {
	best, err := r.watch.Now(ctx)
	for range 4 {
		if err != nil {
			return best, err
		}
		select {
		case <-ctx.Done():
			return best, ctx.Err()
		case <-time.After(time.Second):
		}
		var s torture.State
		if s, err = r.watch.Now(ctx); s.RSS < best.RSS {
			best = s
		}
	}
	return best, err
}

func (r *rig) measureStorm(ctx context.Context) error {
	attach := func(i int, c *torture.Client) error {
		topic := fmt.Sprintf("persistent://public/default/storm-%d", i%r.topics)
		for _, ask := range []struct {
			frame []byte
			want  pulsarpb.BaseCommand_Type
		}{
			{torture.Lookup(topic), pulsarpb.BaseCommand_LOOKUP_RESPONSE},
			{torture.Producer(topic, 1), pulsarpb.BaseCommand_PRODUCER_SUCCESS},
			{torture.Subscribe(topic, "storm", 2), pulsarpb.BaseCommand_SUCCESS},
			{torture.Flow(2, 1000), 0},
			{torture.Send(1, 0, []byte("back")), pulsarpb.BaseCommand_SEND_RECEIPT},
		} {
			if ask.want == 0 {
				if _, err := c.Write(ask.frame); err != nil {
					return err
				}
			} else if _, err := c.Ask(ask.frame, ask.want); err != nil {
				return err
			}
		}
		return nil
	}
	conns, err := r.open(r.storm, attach)
	if err != nil {
		closeAll(conns)
		return err
	}
	for _, c := range conns {
		c.Reset()
	}
	start := time.Now()
	conns, err = r.open(r.storm, attach)
	defer closeAll(conns)
	if err != nil {
		return fmt.Errorf("after the storm: %w", err)
	}
	took := time.Since(start)
	clients := 0
	for i := range r.topics {
		w := r.watch
		w.Topic = fmt.Sprintf("persistent://public/default/storm-%d", i)
		s, err := w.Now(ctx)
		if err != nil {
			return err
		}
		clients += s.Clients
	}
	fmt.Printf("%d connections lost at once, each with a producer and a consumer: all back and published in %.1f s, %d producers and consumers\n",
		r.storm, took.Seconds(), clients)
	if clients != 2*r.storm {
		return fmt.Errorf("%d producers and consumers, want %d", clients, 2*r.storm)
	}
	return nil
}

// open opens n connections; what was opened is returned with an error, too.
func (r *rig) open(n int, attach func(int, *torture.Client) error) ([]*torture.Client, error) {
	conns, errs := make([]*torture.Client, n), make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range r.dialers {
		wg.Go(func() {
			for i := range next {
				conns[i], errs[i] = torture.Join(r.addr, fmt.Sprintf("127.0.0.%d", 1+i%r.sources))
				if errs[i] == nil && attach != nil {
					errs[i] = attach(i, conns[i])
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return conns, errors.Join(errs...)
}

func closeAll(conns []*torture.Client) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close()
		}
	}
}
