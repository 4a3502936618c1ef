package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// measureLatency appends one entry after the other, each alone, and after each of them writes and syncs as many bytes in
// the bare file: what is beside one another in a row met the disk at the same time.
func measureLatency(ctx context.Context, o options, d *disk) error {
	fmt.Print("\n| one append at a time | append, ms, p50 | p99 | bare fdatasync, ms, p50 | p99 | append ÷ 2 × fdatasync, p50 | p99 |\n" +
		"|---|---|---|---|---|---|---|\n")
	return withBookies(ctx, filepath.Join(o.dir, "latency"), 1, func(b *bookies) error {
		r := &rig{engine: b}
		for _, size := range o.sizes {
			if err := r.latency(ctx, d, shape{size: size, perCommand: 1, window: 1}, o.each); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rig) latency(ctx context.Context, d *disk, s shape, during time.Duration) error {
	f, err := r.newFeeder(ctx, 0, s)
	if err != nil {
		return err
	}
	defer f.client.close()
	if err := f.drain(ctx); err != nil { // its ledger is there
		return err
	}
	<-f.credit
	var appends, syncs []time.Duration
	batch := r.look()
	for start, n := time.Now(), 0; time.Since(start) < during; n++ {
		began := time.Now()
		if err := f.one(ctx, n); err != nil {
			return err
		}
		appends = append(appends, time.Since(began))
		began = time.Now()
		if err := d.put((s.size + 1023) / 512 * 512); err != nil {
			return err
		}
		syncs = append(syncs, time.Since(began))
	}
	ms := func(all []time.Duration, p float64) float64 { return percentile(all, p).Seconds() * 1e3 }
	a50, a99, s50, s99 := ms(appends, 0.5), ms(appends, 0.99), ms(syncs, 0.5), ms(syncs, 0.99)
	fmt.Printf("| %s, %d of them, %.1f writes each on three replicas | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", human(s.size), len(appends),
		float64(r.look().minus(batch).writes)/float64(len(appends)), a50, a99, s50, s99, a50/2/s50, a99/2/s99)
	return nil
}

// one sends the n-th command and waits for its answer. Nothing else is under way.
func (f *feeder) one(ctx context.Context, n int) error {
	if err := f.sendNth(ctx, n); err != nil {
		return err
	}
	if err := f.drain(ctx); err != nil {
		return err
	}
	<-f.credit
	return nil
}

func percentile(all []time.Duration, p float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(p*float64(len(all))))]
}
