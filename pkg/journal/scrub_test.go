package journal

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/vfs"
)

func scrubbed(t *testing.T, j *Journal) ([]CorruptError, int) {
	t.Helper()
	var damage []CorruptError
	entries := 0
	_, err := j.Scrub(t.Context(), ScrubOptions{
		Report: func(c *CorruptError) { damage = append(damage, *c) },
		Visit:  func(uint32, *Record, Place) error { entries++; return nil },
	})
	must(t, err)
	return damage, entries
}

// Bits that flip under a running journal are found at or before their place, and nothing in a whole one.
func TestScrubFindsFlips(t *testing.T) {
	t.Parallel()
	mem, _ := built(t, true)
	all := regions(t, mem)
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 4))
		hurt := mem.Crash(0)
		j := mustOpen(t, testOptions(hurt))
		if damage, entries := scrubbed(t, j); len(damage) != 0 || entries == 0 {
			t.Fatalf("seed %d: damage in a whole journal: %+v, %d entries", seed, damage, entries)
		}
		r := all[rng.IntN(len(all))]
		off := r.from + rng.Int64N(r.to-r.from)
		flip(t, hurt, r.path, off, 1<<rng.IntN(8))
		damage, _ := scrubbed(t, j)
		if len(damage) == 0 {
			t.Fatalf("seed %d: %s at %d: not found", seed, r.path, off)
		}
		d := damage[0]
		if filepath.Join(testDir, segmentName(d.Segment)) != r.path || d.Offset > off || r.group != 0 && d.Group != r.group {
			t.Errorf("seed %d: %s at %d of group %d: %+v", seed, r.path, off, r.group, d)
		}
		mustClose(t, j)
	}
}

// It goes beside writes and recycling.
func TestScrubBesideWrites(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	j := mustOpen(t, testOptions(mem))
	defer mustClose(t, j)
	done := make(chan error, 1)
	go func() { done <- newWorkload().run(j, 400) }()
	for running := true; running; {
		select {
		case err := <-done:
			must(t, err)
			running = false
		default:
		}
		if damage, _ := scrubbed(t, j); len(damage) != 0 {
			t.Fatalf("%+v", damage)
		}
	}
}

// The rate holds, a canceled scrub ends at once, and a segment that cannot be read does not hide the others.
func TestScrubRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inject := vfs.NewInject(vfs.NewMem())
		j := mustOpen(t, testOptions(inject))
		defer mustClose(t, j)
		g := j.Group(1)
		for i := uint64(1); len(j.Segments()) < 6; i++ {
			must(t, g.Append([]Record{record(1, i, 1000)}))
		}
		const rate = 10 << 10
		begun := time.Now()
		n, err := j.Scrub(t.Context(), ScrubOptions{BytesPerSecond: rate})
		must(t, err)
		took, least := time.Since(begun), time.Duration(float64(n)/rate*float64(time.Second))
		if n < 5*minSegmentSize || took > least || took < least/2 {
			t.Errorf("%d bytes in %v", n, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if _, err := j.Scrub(ctx, ScrubOptions{BytesPerSecond: rate}); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		broken := errors.New("unreadable sector")
		second := segmentName(j.Segments()[1])
		inject.FailIf(func(op vfs.Op) bool { return op.Kind == vfs.OpRead && op.Name == second }, broken)
		seen := map[uint64]bool{}
		_, err = j.Scrub(t.Context(), ScrubOptions{Visit: func(_ uint32, _ *Record, p Place) error { seen[p.Segment] = true; return nil }})
		if !errors.Is(err, broken) || len(seen) != 4 {
			t.Errorf("%v, segments %v", err, seen)
		}
	})
}
