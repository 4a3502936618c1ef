package bookie

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.opentelemetry.io/otel/sdk/metric"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// spoil changes the state of a replica behind its back, as a flipped bit would.
func (c *cluster) spoil(id string, cmd ledger.Command) {
	c.t.Helper()
	f := c.nodes[id].groups.get(1).fsm
	f.mu.Lock()
	defer f.mu.Unlock()
	res, change := f.machine.Apply(&cmd)
	if res.Err != nil {
		c.t.Fatal(res.Err)
	}
	f.index.update(cmd.Ledger, change, run{index: 3, offset: 1, length: uint32(len(cmd.Body))})
}

// compareAll has each bookie compare once.
func (c *cluster) compareAll() (errs map[string]error) {
	errs = map[string]error{}
	for id, b := range c.nodes {
		if g := b.groups.get(1); g != nil {
			errs[id] = g.compare(c.t.Context())
		}
	}
	return errs
}

// A replica whose state is silently another than that of the two others, be it the leader, notices, begins again with the
// right one, and serves what it should. Until then it had proofs that entries do not exist.
func TestDifferentStateIsRepaired(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(map[bool]string{false: "follower", true: "leader"}[leads], func(t *testing.T) {
			var readers []metric.Reader
			c := newCluster(t, 3, func(o *Options) {
				o.TrailingLogBytes, o.RecentBytes = -1, 1
				patientElections(o)
				readers = append(readers, metric.NewManualReader())
				o.MeterProvider = metric.NewMeterProvider(metric.WithReader(readers[len(readers)-1]))
			})
			c.create(7)
			c.create(8)
			c.write(8, 0, 3)
			want := c.write(7, 0, 20)
			for id := range c.nodes {
				c.serves(id, 7, want)
			}
			for id, err := range c.compareAll() {
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			victim := c.leader(1)
			if !leads {
				victim, _ = c.follower()
			}
			before := c.nodes[victim].groups.get(1)
			c.spoil(victim, ledger.Command{Op: ledger.OpClose, Ledger: 7, Last: 9})
			if !leads { // else one of the others might be given it
				more := c.write(8, 3, 4)
				c.eventually("it has them", func() bool {
					got, _ := c.read(victim, &bookiepb.ReadRequest{Group: 1, Ledger: 8, First: 3, Confirmed: 6})
					return len(got) == len(more)
				})
				c.compact(victim) // what is wrong is in its snapshots, too
			}
			if _, res := c.read(victim, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 15, Confirmed: 19}); res.Code != bookiepb.Code_NO_ENTRY {
				t.Fatalf("the state is not spoilt: %v", res)
			}
			c.compareAll()
			c.eventually("it has begun again", func() bool {
				g := c.nodes[victim].groups.get(1)
				return g != nil && g != before && g.fill.whole.Load()
			})
			if err := before.health.err(); !errors.Is(err, errDiffers) {
				t.Errorf("stopped by %v", err)
			}
			c.serves(victim, 7, want)
			c.eventually("all agree", func() bool {
				for _, err := range c.compareAll() {
					if err != nil {
						return false
					}
				}
				return c.nodes[victim].groups.get(1) != nil
			})
			c.serves(victim, 7, append(want, c.write(7, 20, 3)...))
			differences := int64(0)
			for _, r := range readers {
				differences += counted(t, r, "geminga.bookie.compare.differences")
			}
			if differences == 0 {
				t.Error("nothing was counted")
			}
		})
	}
}

// Replicas are seen at the same index while entries come all the time, whoever asks: no difference, and no lack of them.
func TestCompareWhileWriting(t *testing.T) {
	reader := metric.NewManualReader()
	c := newCluster(t, 3, func(o *Options) {
		if o.MetadataDir[len(o.MetadataDir)-1] == 'b' {
			o.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
		}
	})
	c.create(7)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for id, b := range c.nodes {
		g := b.groups.get(1)
		wg.Go(func() {
			for range 3 {
				if err := g.compare(t.Context()); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		stop()
	}()
	for next := ledger.EntryID(0); ctx.Err() == nil; next++ {
		c.write(7, next, 1)
	}
	if n := counted(t, reader, "geminga.bookie.compare.rounds"); n != 3 {
		t.Errorf("compared %d times", n)
	}
	if n := counted(t, reader, "geminga.bookie.compare.differences"); n != 0 {
		t.Errorf("%d differences", n)
	}
}

// Where no two of three replicas agree nobody can tell who is right: all go on, and say so.
func TestNoMajorityJudgesNobody(t *testing.T) {
	var log lockedBuffer
	c := newCluster(t, 3, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	c.create(7)
	want := c.write(7, 0, 20)
	for id := range c.nodes {
		c.serves(id, 7, want)
	}
	last := ledger.EntryID(10)
	for id := range c.nodes {
		c.spoil(id, ledger.Command{Op: ledger.OpClose, Ledger: 7, Last: last})
		last++
	}
	c.compareAll()
	for id, b := range c.nodes {
		if g := b.groups.get(1); g == nil || !g.health.ok() {
			t.Errorf("%s has stopped", id)
		}
	}
	if !strings.Contains(log.String(), "no majority of the replicas agrees") {
		t.Error(log.String())
	}
}

// Entries that are whole by their own checksums, and not those that the group has agreed on, are found by the scrub of the
// replica that has them, and replaced.
func TestOtherEntriesAreReplaced(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) {
		o.TrailingLogBytes, o.RecentBytes, o.ScrubBytesPerSecond = -1, 1, 1<<40
	})
	c.create(7)
	want := c.write(7, 0, 20)
	victim, _ := c.follower()
	c.serves(victim, 7, want)
	c.compact(victim)
	g := c.nodes[victim].groups.get(1)
	at, err := g.fsm.find(7, 5)
	if err != nil || !at.found {
		t.Fatal(at, err)
	}
	r := at.run
	other := []byte(want[5])
	slices.Reverse(other)
	body := ledger.AppendEntry(nil, other)
	if len(body) != int(r.length) {
		t.Fatal(len(body), r.length)
	}
	err = g.store.group.Keep([]journal.Kept{{Index: r.index, Term: 1, Pieces: []journal.Piece{r.piece()}, Data: body}})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := c.read(victim, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 5, Confirmed: 5}); got[0] != string(other) {
		t.Fatal("the entry is not spoilt")
	}
	if wrong := g.verifySums(t.Context(), 1<<40); wrong != 1 {
		t.Fatalf("%d ledgers are wrong", wrong)
	}
	c.eventually("it is right again", func() bool { return !g.fill.doubt.withholds(7) })
	c.serves(victim, 7, want)
	if wrong := g.verifySums(t.Context(), 1<<40); wrong != 0 {
		t.Errorf("%d ledgers are wrong", wrong)
	}
}

// The state as of an index is that between its command and the next, whoever asks before or waits for it.
func TestStateAtAnIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFSM(newHealth(nil))
		apply := func(index uint64, c ledger.Command) {
			f.ApplyBatch([]*raft.Log{{Index: index, Type: raft.LogCommand, Data: c.AppendTo(nil)}})
		}
		apply(1, ledger.Command{Op: ledger.OpCreate, Ledger: 1, Epoch: 1})
		got := make([]int, 4)
		done := make(chan uint64, 3)
		for _, index := range []uint64{1, 2, 3} {
			go func() {
				s, err := f.at(t.Context(), index)
				if err == nil {
					got[index] = s.machine.Len()
				}
				done <- index
			}()
			synctest.Wait()
		}
		f.ApplyBatch([]*raft.Log{ // 3 has no command
			{Index: 2, Type: raft.LogCommand, Data: (&ledger.Command{Op: ledger.OpCreate, Ledger: 2, Epoch: 1}).AppendTo(nil)},
			{Index: 4, Type: raft.LogCommand, Data: (&ledger.Command{Op: ledger.OpCreate, Ledger: 3, Epoch: 1}).AppendTo(nil)},
		})
		for range 3 {
			<-done
		}
		if got[1] != 1 || got[2] != 2 || got[3] != 2 {
			t.Errorf("%v ledgers by index", got)
		}
		if _, err := f.at(t.Context(), 3); !errors.Is(err, errPassed) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.at(ctx, 9); !errors.Is(err, context.DeadlineExceeded) || len(f.moments) != 0 {
			t.Error(err, f.moments)
		}
	})
}
