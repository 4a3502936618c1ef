package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"geminga/pkg/ledger"
)

const (
	manyGroups  = 96
	manyLedgers = 30_000
	manyEntries = 1_200_000
	loneEntries = 100_000
)

// footprint is the memory of this process.
type footprint struct {
	heap       int64 // live
	stacks     int64
	goroutines int
}

func (f footprint) all() float64 { return float64(f.heap + f.stacks) }

// settled returns the least of some looks, because what went on a moment ago has garbage and goroutines that end.
func settled() footprint {
	least := footprint{heap: 1 << 62}
	for range 5 {
		time.Sleep(100 * time.Millisecond)
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if now := (footprint{int64(m.HeapAlloc), int64(m.StackInuse), runtime.NumGoroutine()}); now.heap < least.heap {
			least = now
		}
	}
	return least
}

// measureMemory compares bookies with few and with many groups, and one group before and after ledgers and entries came.
func measureMemory(ctx context.Context, o options, _ *disk) error {
	fmt.Print("\n| live memory of a replica | bytes |\n|---|---|\n")
	var few, many footprint
	var fewReplicas, manyReplicas int
	err := withBookies(ctx, filepath.Join(o.dir, "few"), replicas, func(b *bookies) error {
		few, fewReplicas = settled(), len(b.groups)*replicas
		return ledgersAndEntries(ctx, o, b)
	})
	if err != nil {
		return err
	}
	err = withBookies(ctx, filepath.Join(o.dir, "many"), manyGroups, func(b *bookies) error {
		many, manyReplicas = settled(), len(b.groups)*replicas
		return nil
	})
	if err != nil {
		return err
	}
	n := float64(manyReplicas - fewReplicas)
	fmt.Printf("| idle group, heap and stacks (%d and %d replicas), %.1f goroutines | %.0f |\n", fewReplicas, manyReplicas,
		float64(many.goroutines-few.goroutines)/n, (many.all()-few.all())/n)
	return nil
}

// withBookies starts bookies in a directory for f, and removes it.
func withBookies(ctx context.Context, dir string, groups int, f func(*bookies) error) (err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := startBookies(ctx, dir, groups, false)
	if err != nil {
		return err
	}
	return errors.Join(f(b), b.close())
}

func ledgersAndEntries(ctx context.Context, o options, b *bookies) error {
	r := &rig{engine: b}
	warm := shape{size: 1 << 10, perCommand: 16, window: 64} // fills what keeps the newest entries
	if _, err := r.fill(ctx, 0, warm, 64<<10); err != nil {
		return err
	}
	start := settled()
	if err := r.createLedgers(ctx, manyLedgers); err != nil {
		return err
	}
	now := settled()
	fmt.Printf("| ledger without entries (%d of them) | %.0f |\n", manyLedgers, float64(now.heap-start.heap)/manyLedgers/replicas)
	for _, s := range []struct {
		shape   shape
		entries int
	}{
		{o.shape(128), manyEntries},
		{shape{size: 128, perCommand: 10, window: 1000}, manyEntries / 4},
		{shape{size: 128, perCommand: 1, window: 1000}, loneEntries},
	} {
		if _, err := r.fill(ctx, 0, warm, 16<<10); err != nil {
			return err
		}
		start = settled()
		if _, err := r.fill(ctx, 0, s.shape, s.entries); err != nil {
			return err
		}
		if _, err := r.fill(ctx, 0, warm, 16<<10); err != nil { // the newest entries are as large as they were
			return err
		}
		now = settled()
		fmt.Printf("| index of an entry of 128 bytes, %d in a command (%d entries) | %.2f |\n", s.shape.perCommand, s.entries,
			float64(now.heap-start.heap)/float64(s.entries)/replicas)
	}
	return nil
}

// createLedgers makes empty ledgers.
func (r *rig) createLedgers(ctx context.Context, n int) error {
	done := make(chan error, 1)
	left := n
	c, err := r.attach(ctx, 0, func(k int, err error) {
		if left -= k; left == 0 || err != nil {
			select {
			case done <- err:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer c.close()
	for range n {
		create := ledger.Command{Op: ledger.OpCreate, Ledger: ledger.ID(r.ids.Add(1)), Epoch: 1}
		if err := c.send(create.AppendTo(nil)); err != nil {
			return err
		}
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.New(strconv.Itoa(left) + " ledgers were not created in time")
	}
}
