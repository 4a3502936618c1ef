package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"geminga/integration/harness"
	"geminga/integration/torture"
	"geminga/pkg/bookieclient"
)

// sample is what the first bookie has used since it was started.
type sample struct {
	after     time.Duration
	cpu       time.Duration
	read      int64 // bytes, from the disk or the page cache
	rss, peak int64
	allocated float64 // bytes of the heap
	heap      float64 // bytes in use
}

type result struct {
	running, ready, led, settled sample
}

const header = "| MiB | entries | commands | ready, s | CPU, s | read, MiB | allocated, MiB | RSS, MiB | all led, s | " +
	"settled: CPU, s | read, MiB | allocated, MiB | peak RSS, MiB | heap, MiB | before the kill: RSS, MiB | heap, MiB | snapshots, KiB | index, KiB | summaries, KiB |\n" +
	"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"

func (r *result) print(mib int64, o *options, dir string) {
	entries := mib << 20 / int64(o.entry)
	const m = 1 << 20
	bookie := filepath.Join(dir, "bookie-1")
	fmt.Printf("| %d | %d | %d | %.2f | %.2f | %d | %.0f | %d | %.2f | %.2f | %d | %.0f | %d | %.0f | %d | %.0f | %d | %d | %d |\n",
		mib, entries, entries/int64(o.batch), r.ready.after.Seconds(), r.ready.cpu.Seconds(), r.ready.read/m, r.ready.allocated/m,
		r.ready.rss/m, r.led.after.Seconds(), r.settled.cpu.Seconds(), r.settled.read/m, r.settled.allocated/m, r.settled.peak/m,
		r.settled.heap/m, r.running.rss/m, r.running.heap/m, sizes(bookie, ".snap")>>10, sizes(bookie, ".idx")>>10, sizes(bookie, ".sum")>>10)
}

// sizes adds up the files with a suffix.
func sizes(dir, suffix string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { // what vanishes meanwhile does not count
		if info, serr := os.Stat(path); err == nil && serr == nil && strings.HasSuffix(path, suffix) {
			n += info.Size()
		}
		return nil
	})
	return n
}

// restart kills all bookies at once and starts them again.
func restart(ctx context.Context, c *harness.Cluster, client *bookieclient.Client, o *options) (r result, err error) {
	first, began := c.Bookies[0], time.Now()
	if r.running, err = look(ctx, first, began); err != nil {
		return r, err
	}
	c.Kill()
	began = time.Now()
	for _, p := range c.Bookies {
		if err := p.Start(); err != nil {
			return r, err
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return r, err
	}
	if r.ready, err = look(ctx, first, began); err != nil {
		return r, err
	}
	if err := allLed(ctx, client, o.groups*o.bookies); err != nil {
		return r, err
	}
	if r.led, err = look(ctx, first, began); err != nil {
		return r, err
	}
	select {
	case <-time.After(o.settle):
	case <-ctx.Done():
		return r, ctx.Err()
	}
	r.settled, err = look(ctx, first, began)
	return r, err
}

// allLed waits until so many groups have a leader that serves.
func allLed(ctx context.Context, client *bookieclient.Client, groups int) error {
	for {
		led := map[uint32]bool{}
		for _, status := range client.Status(ctx) {
			for _, g := range status.GetGroups() {
				if g.GetReady() {
					led[g.GetGroup()] = true
				}
			}
		}
		if len(led) >= groups {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d groups have a leader: %w", len(led), groups, ctx.Err())
		}
	}
}

// look reads what the kernel and the process itself say.
func look(ctx context.Context, p *harness.Proc, began time.Time) (sample, error) {
	s := sample{after: time.Since(began)}
	u, err := harness.UsageOf(p.PID())
	if err != nil {
		return s, err
	}
	s.cpu = u.CPU
	if s.read, err = procValue(p.PID(), "io", "rchar:"); err != nil {
		return s, err
	}
	if s.rss, err = procValue(p.PID(), "status", "VmRSS:"); err != nil {
		return s, err
	}
	if s.peak, err = procValue(p.PID(), "status", "VmHWM:"); err != nil {
		return s, err
	}
	m, err := torture.Watch{HTTP: p.HTTP}.Metrics(ctx)
	s.allocated, s.heap = m["go_memstats_alloc_bytes_total"], m["go_memstats_heap_inuse_bytes"]
	return s, err
}

// procValue reads a line of a file of /proc, in bytes.
func procValue(pid int, file, key string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, key)
		if !ok {
			continue
		}
		kilo := strings.HasSuffix(strings.TrimSpace(rest), "kB")
		n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if kilo {
			n <<= 10
		}
		return n, err
	}
	return 0, fmt.Errorf("/proc/%d/%s has no %s", pid, file, key)
}
