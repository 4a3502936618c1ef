package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// contender is an engine that takes part.
type contender struct {
	name  string
	start func(ctx context.Context, dir string, groups int) (engine, error)
}

func (o options) contenders() []contender {
	onStores := func(make func(string) (stores, error)) func(context.Context, string, int) (engine, error) {
		return func(ctx context.Context, dir string, n int) (engine, error) {
			s, err := make(dir)
			if err != nil {
				return nil, err
			}
			return startGroups(ctx, n, s)
		}
	}
	all := []contender{
		{"bookies", func(ctx context.Context, dir string, n int) (engine, error) {
			return startBookies(ctx, dir, n, o.recycled)
		}},
		{"journal", onStores(journalStores)},
		{"raft-wal", onStores(walStores)},
		{"raft-boltdb", onStores(boltStores)},
	}
	return slices.DeleteFunc(all, func(c contender) bool { return c.name != "bookies" && !strings.Contains(o.engines, c.name) })
}

// measureAppends prints a row for each size and number of groups.
func measureAppends(ctx context.Context, o options, d *disk) error {
	fmt.Print("\n| entry | groups | bookies, MB/s | batch, KiB | disk ÷ 3, MB/s | of the disk | fresh files ÷ 3, MB/s | of these | raft-wal, MB/s | raft-boltdb, MB/s | ÷ raft-wal | ÷ raft-boltdb " +
		"| the journal alone, MB/s | CPU of bookies, s per million entries | of raft-wal |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, n := range o.groups {
		if err := appendsTo(ctx, o, d, n); err != nil {
			return fmt.Errorf("%d groups: %w", n, err)
		}
	}
	return nil
}

// appendsTo measures all engines beside one another, size by size, so that they meet the disk in the same mood.
func appendsTo(ctx context.Context, o options, d *disk, n int) (err error) {
	dir := filepath.Join(o.dir, strconv.Itoa(n))
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	engines := map[string]*rig{}
	for _, c := range o.contenders() {
		e, err := c.start(ctx, filepath.Join(dir, c.name), n)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		defer func() { err = errors.Join(err, e.close()) }()
		engines[c.name] = &rig{engine: e}
	}
	for _, size := range o.sizes {
		got := map[string]result{}
		for _, c := range o.contenders() {
			got[c.name], err = engines[c.name].load(ctx, n, o.shape(size), o.each)
			if again, ok := engines[c.name].engine.(*bookies); ok && err != nil { // a lead went elsewhere on a machine that is too busy
				if err = again.await(ctx, n); err == nil {
					got[c.name], err = engines[c.name].load(ctx, n, o.shape(size), o.each)
				}
			}
			if err != nil && c.name == "bookies" {
				return fmt.Errorf("%s: %w", human(size), err)
			}
			if err != nil { // a peer that does not bear it has no figure
				fmt.Fprintf(os.Stderr, "%s, %s, %d groups: %v\n", c.name, human(size), n, err)
				got[c.name] = result{}
			}
		}
		limit, fresh, err := d.limits(got["bookies"].batch(), o.each/3)
		if err != nil {
			return err
		}
		row(size, n, got, limit/replicas, fresh/replicas)
	}
	return nil
}

func row(size, groups int, got map[string]result, limit, fresh float64) {
	b, wal, bolt, j := got["bookies"], got["raft-wal"], got["raft-boltdb"], got["journal"]
	fmt.Printf("| %s | %d |", human(size), groups)
	for _, v := range []float64{
		b.rate() / 1e6, float64(b.batch()) / 1024, limit / 1e6, b.rate() / limit, fresh / 1e6, b.rate() / fresh, wal.rate() / 1e6, bolt.rate() / 1e6,
		b.rate() / wal.rate(), b.rate() / bolt.rate(), j.rate() / 1e6, b.cpuPerMillion(), wal.cpuPerMillion(),
	} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v == 0 { // who did not take part, or gave up
			fmt.Print(" |")
			continue
		}
		fmt.Printf(" %.*f |", decimals(v), v)
	}
	fmt.Println()
}

// decimals shows three digits.
func decimals(v float64) int {
	switch {
	case v < 10:
		return 2
	case v < 100:
		return 1
	}
	return 0
}
