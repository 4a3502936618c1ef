package bookie

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

// slowSnapshotFS is a disk on which it takes a while to make a snapshot durable.
type slowSnapshotFS struct{ vfs.FS }

func (s slowSnapshotFS) Create(name string) (vfs.File, error) {
	f, err := s.FS.Create(name)
	if err == nil && strings.HasSuffix(name, unfinished) {
		f = slowWriteFile{f}
	}
	return f, err
}

type slowWriteFile struct{ vfs.File }

func (f slowWriteFile) WriteAt(p []byte, off int64) (int, error) {
	if off > 0 {
		time.Sleep(4 * time.Second)
	}
	return f.File.WriteAt(p, off)
}

// A replica that was away gets a snapshot, and takes as long to install it as the group, which is being written to all the
// time, takes for some more of them. It needs no second one: its leader's log is not compacted beyond the first meanwhile.
func TestSlowInstallUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, rand.New(rand.NewPCG(1, 1)), 3)
		defer s.stopAll()
		s.eventually("the preferred replica leads", func() bool {
			g := s.nodes[s.leader(1)].groups.get(1)
			return g.record.Load().Replicas[0] == g.transport.self
		})
		lead := s.nodes[s.leader(1)].groups.get(1)
		next := ledger.EntryID(0)
		propose := func(cmd []byte) {
			done := make(chan error, 1)
			err := lead.submit(t.Context(), &submission{data: cmd, count: 1, done: func(_ []ledger.Result, err error) { done <- err }})
			if err == nil {
				err = <-done
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write := func() {
			propose(testAppend(7, 1, next, strings.Repeat("x", 8<<10)))
			next++
			time.Sleep(50 * time.Millisecond)
		}
		create := ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}
		propose(create.AppendTo(nil))
		away := lead.record.Load().Replicas[1]
		s.end(away)
		for lead.store.group.FirstIndex() < 10 {
			write()
		}
		change := s.change
		s.change = func(o *Options) {
			change(o)
			o.FS = slowSnapshotFS{o.FS}
		}
		s.begin(away)
		behind := func() bool {
			follower := s.nodes[away].groups.get(1)
			return follower == nil || follower.raft.AppliedIndex()+20 < lead.raft.AppliedIndex()
		}
		for start := time.Now(); behind(); write() {
			if time.Since(start) > time.Minute {
				t.Fatalf("it is behind after %v; its leader has applied %d", time.Since(start), lead.raft.AppliedIndex())
			}
		}
		s.eventually("nothing is kept for it any more", func() bool {
			write()
			return lead.store.lagging.least(1<<62) == 1<<62
		})
	})
}

// What a replica lacks is kept while it makes progress, and no longer.
func TestLaggingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lagging{}
		want := func(what string, index uint64) {
			t.Helper()
			if got := l.least(100); got != index {
				t.Errorf("%s: up to %d may go, not %d", what, got, index)
			}
		}
		l.appended("b", 5, true)
		want("who was sent no snapshot", 100)
		l.sending("b", 50, time.Hour)
		l.sending("c", 60, time.Hour)
		time.Sleep(30 * time.Minute)
		want("while one is sent", 49)
		l.sent("b", 50, false)
		want("b is gone", 59)
		l.sent("c", 60, true)
		time.Sleep(laggingPatience / 2)
		l.appended("c", 80, true)
		time.Sleep(laggingPatience / 2)
		want("c goes on", 79)
		time.Sleep(laggingPatience)
		want("c does not", 100)
		l.sending("b", 50, time.Hour)
		l.sent("b", 50, true)
		l.appended("b", 99, false)
		want("b has all", 100)
	})
}
