package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

const (
	readVolume  = 256 << 20 // of a ledger that is read
	readRequest = 4 << 20   // payload bytes that one request asks for
	behind      = 4000      // proposals that a follower has missed
)

// measureReads reads ledgers from the leader and from a follower, with the page cache empty of the journals and again; then
// it has a follower catch up by the log.
func measureReads(ctx context.Context, o options, _ *disk) error {
	fmt.Print("\n| read of a ledger of 256 MiB | MB/s | CPU, s per GB |\n|---|---|---|\n")
	dir := filepath.Join(o.dir, "reads")
	return withBookies(ctx, dir, 1, func(b *bookies) error {
		r := &rig{engine: b}
		for _, size := range o.sizes {
			id, err := r.fill(ctx, 0, o.shape(size), readVolume/size)
			if err != nil {
				return err
			}
			if err := b.reads(ctx, dir, size, id); err != nil {
				return err
			}
		}
		return r.catchUp(ctx, b)
	})
}

// reads prints a row for each way to read a ledger.
func (b *bookies) reads(ctx context.Context, dir string, size int, id ledger.ID) error {
	for _, from := range []struct {
		name  string
		node  int
		first bool
	}{
		{"leader, from the disk", b.groups[0].leader, true},
		{"leader, from the page cache", b.groups[0].leader, false},
		{"follower, from the disk", (b.groups[0].leader + 1) % replicas, true},
	} {
		if from.first {
			if err := forgetPages(dir); err != nil {
				return err
			}
		}
		start, cpu := time.Now(), cpuTime()
		n, err := b.read(ctx, from.node, id)
		if err != nil {
			return err
		}
		fmt.Printf("| %s, %s | %.0f | %.2f |\n", human(size), from.name,
			float64(n)/1e6/time.Since(start).Seconds(), (cpuTime()-cpu).Seconds()/float64(n)*1e9)
	}
	return nil
}

// read reads all of a ledger from one node and returns its payload bytes.
func (b *bookies) read(ctx context.Context, node int, id ledger.ID) (int, error) {
	total := 0
	for next := int64(0); ; {
		s, err := bookiepb.NewBookieClient(b.conns[node]).Read(ctx, &bookiepb.ReadRequest{
			Group: b.groups[0].group, Ledger: uint64(id), First: next, Confirmed: 1 << 40, MaxEntries: 1 << 20, MaxBytes: readRequest,
		})
		if err != nil {
			return total, err
		}
		before := next
		for {
			m, err := s.Recv()
			if err != nil {
				return total, err
			}
			next += int64(m.GetCount())
			total += len(m.GetEntries()) - int(m.GetCount())*ledger.FramedLen(0)
			r := m.GetResult()
			if r == nil {
				continue
			}
			if r.GetCode() == bookiepb.Code_NO_ENTRY || r.GetCode() == bookiepb.Code_BEHIND { // beyond the last
				return total, nil
			}
			if r.GetCode() != bookiepb.Code_OK || next == before {
				return total, fmt.Errorf("read from %d: %v", next, r)
			}
			break
		}
	}
}

// forgetPages drops journals from the page cache. What is not yet on the disk stays.
func forgetPages(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".seg" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// catchUp measures how fast a follower that was away gets proposals of one small entry each, while nothing else goes on.
func (r *rig) catchUp(ctx context.Context, b *bookies) error {
	away := (b.groups[0].leader + 1) % replicas
	if err := b.stop(away); err != nil {
		return err
	}
	s := shape{size: 1 << 10, perCommand: 1, window: 8}
	before := b.applied(b.groups[0].leader)
	if _, err := r.fill(ctx, 0, s, behind*2); err != nil {
		return err
	}
	missed := b.applied(b.groups[0].leader) - before
	start := time.Now()
	if err := b.restart(ctx, away); err != nil {
		return err
	}
	opened := time.Since(start)
	var first, last time.Time
	for target, from := b.applied(b.groups[0].leader), b.applied(away); ; time.Sleep(time.Millisecond) {
		now := b.applied(away)
		if first.IsZero() && now > from {
			first = time.Now()
		}
		if now >= target {
			last = time.Now()
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("a follower does not catch up: %w", ctx.Err())
		}
	}
	fmt.Printf("\nA follower that missed %d proposals of 1 KiB got them by the log at %.0f a second, %.2f s after its restart, which took %.2f s.\n",
		missed, float64(missed)/max(last.Sub(first).Seconds(), 1e-3), first.Sub(start).Seconds(), opened.Seconds())
	return nil
}
