package bookie

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

var (
	simRuns = flag.Int("bookie.sims", 3, "runs of TestSimulation")
	simSeed = flag.Uint64("bookie.simseed", 1, "seed of its first run")
)

// TestSimulation runs whole clusters of three or five bookies in virtual time, over a network and disks in memory, with
// everything in them small: segments, snapshots, intervals. Writers write ledgers, fence, close and delete them, readers
// read, and meanwhile bookies lose their power (one or all of them, with what they had not synced kept, lost or torn),
// stop, are cut off in one direction or in both, have disks that fail or hang, and one of them has damaged files.
// Bookies that end because of it are started again. At the end all is mended, and every replica of every ledger has to
// hold what was acknowledged, the same as the others, and nothing that nobody wrote.
//
// The metadata's log is in bbolt, which does its own I/O: it is on the real disk, and its power is never lost.
func TestSimulation(t *testing.T) {
	acked := 0
	for i := range *simRuns {
		seed := *simSeed + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { acked += simulate(t, seed) })
		})
	}
	if acked == 0 {
		t.Error("nothing was acknowledged")
	}
}

// sim is one run. Its bookies are touched by the test's own goroutine only; writers and readers go through the network.
type sim struct {
	*cluster
	net     *simNet
	rng     *rand.Rand
	ids     []string
	ports   map[string]*simListener
	damaged string // the only bookie whose files are ever damaged
	conn    *conns // of writers and readers
	said    simLog // by the bookies

	mu      sync.Mutex
	ledgers []*simLedger
	nextID  ledger.ID
	acked   int
}

// simulate is one run; it returns how many entries were acknowledged.
func simulate(t *testing.T, seed uint64) int {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newSim(t, rng, 3+2*rng.IntN(2))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { // after a failure too: nothing may stay in the bubble
		cancel()
		wg.Wait()
		s.stopAll()
	}()
	for range 3 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 2))
		wg.Go(func() { s.write(ctx, own) })
	}
	own := rand.New(rand.NewPCG(rng.Uint64(), 3))
	wg.Go(func() { s.readAlways(ctx, own) })
	for range 4 + rng.IntN(6) {
		s.pause(2 * time.Second)
		fault := simFaults[rng.IntN(len(simFaults))]
		t.Logf("%v: %s", time.Since(simEpoch).Round(time.Millisecond), fault.name)
		fault.run(s)
		s.revive()
	}
	s.pause(2 * time.Second)
	cancel()
	wg.Wait()
	s.revive()
	for _, id := range s.ids {
		s.soon(id+" is ready", func() string { return "" }, func() bool {
			s.revive()
			return s.nodes[id].registered.Load() && s.nodes[id].groups.allLed(false)
		})
	}
	s.check()
	t.Logf("%d ledgers, %d entries acknowledged, %v", len(s.ledgers), s.acked, time.Since(simEpoch).Round(time.Second))
	return s.acked
}

// simEpoch is when every bubble begins.
var simEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newSim(t *testing.T, rng *rand.Rand, n int) *sim {
	s := &sim{net: newSimNet(), rng: rng, ports: map[string]*simListener{}}
	s.cluster = &cluster{t: t, dir: t.TempDir(), nodes: map[string]*testBookie{}}
	snapshot, replace := int64(16<<10<<rng.IntN(3)), time.Duration(-1)
	if n > 3 && rng.IntN(2) == 0 {
		replace = 6 * time.Second
	}
	s.change = func(o *Options) {
		o.Dial = nil // set for each
		o.Journal.SegmentSize, o.SnapshotLogBytes, o.TrailingLogBytes = 64<<10, snapshot, -1
		o.ProbeInterval, o.ReclaimInterval, o.LeadAfter, o.ReplaceAfter = 500*time.Millisecond, time.Second, 2*time.Second, replace
		o.ScrubBytesPerSecond = 64 << 10
	}
	s.conn = newConns(s.net.dialer("client"))
	for i := range n {
		id := string(rune('a' + i))
		mem := vfs.NewMem()
		s.ids = append(s.ids, id)
		s.nodes[id] = &testBookie{id: id, addr: simAddr(id).String(), disk: mem, fs: vfs.NewInject(mem), data: "/data"}
		if i < 3 {
			s.members = append(s.members, Member{id, simAddr(id).String()})
		}
	}
	for _, id := range s.ids {
		s.init(s.nodes[id])
		s.begin(id)
	}
	for _, id := range s.ids {
		s.ready(id)
	}
	return s
}

// begin starts a bookie over what is on its disk.
func (s *sim) begin(id string) {
	s.t.Helper()
	b := s.nodes[id]
	s.ports[id] = s.net.listen(id)
	o := s.options(b, s.ports[id])
	o.AdvertisedAddress, o.Dial = b.addr, s.net.dialer(id)
	o.Logger = s.said.logger()
	var err error
	if b.Bookie, err = Open(context.Background(), o); err != nil {
		s.t.Fatalf("%s does not start: %v", id, err)
	}
}

// powerOff takes the power from some bookies, all at the same moment.
func (s *sim) powerOff(ids ...string) {
	for _, id := range ids {
		s.nodes[id].disk.PowerOffAfter(0)
		s.ports[id].kill()
	}
	for _, id := range ids {
		s.end(id)
		b := s.nodes[id]
		b.disk = b.disk.Crash(s.rng.Uint64())
		b.fs = vfs.NewInject(b.disk)
	}
}

// end closes a bookie that may have failed.
func (s *sim) end(id string) {
	b := s.nodes[id]
	if b.Bookie == nil {
		return
	}
	_ = b.Close(context.Background()) // what it says is what was done to it
	b.Bookie = nil
	s.ports[id].kill()
	b.fs.Heal()
}

// revive does what an operator's supervisor does: a process that has ended is started again.
func (s *sim) revive() {
	for _, id := range s.ids {
		if b := s.nodes[id]; b.Bookie == nil {
			s.begin(id)
		} else {
			select {
			case err := <-b.Failed():
				s.t.Logf("%v: %s ended: %v", time.Since(simEpoch).Round(time.Millisecond), id, err)
				s.powerOff(id)
				s.begin(id)
			default:
			}
		}
	}
}

func (s *sim) pause(most time.Duration) {
	time.Sleep(time.Duration(s.rng.Int64N(int64(most))))
}

func (s *sim) some() string { return s.ids[s.rng.IntN(len(s.ids))] }

// soon waits for something that must come true when nothing is broken any more.
func (s *sim) soon(what string, state func() string, cond func() bool) {
	s.t.Helper()
	for range 6000 {
		if cond() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatalf("did not come true in five minutes without faults: %s\n%s\n%s", what, state(), s.said.last())
}

// simFaults end with the network whole and the disks well, but perhaps with bookies that have ended.
var simFaults = []struct {
	name string
	run  func(*sim)
}{
	{"power of one", func(s *sim) {
		s.powerOff(s.some())
		s.pause(10 * time.Second)
	}},
	{"power of all", func(s *sim) {
		s.powerOff(s.ids...)
	}},
	{"one stops", func(s *sim) {
		s.end(s.some())
		s.pause(10 * time.Second)
	}},
	{"one is cut off", func(s *sim) { s.cutOff(true, true) }},
	{"one hears nothing", func(s *sim) { s.cutOff(false, true) }},
	{"one is not heard", func(s *sim) { s.cutOff(true, false) }},
	{"a write or sync fails", func(s *sim) {
		b := s.nodes[s.some()]
		b.fs.FailIf(vfs.Nth(1+s.rng.Int64N(20), vfs.Kinds(vfs.OpWrite, vfs.OpSync)), errors.New("input/output error"))
		s.pause(5 * time.Second)
		b.fs.Heal()
	}},
	{"a disk hangs", func(s *sim) {
		b := s.nodes[s.some()]
		// Not of snapshots: they are written under a lock, and who waits for a lock stops virtual time.
		hang := b.fs.HangIf(func(op vfs.Op) bool {
			return strings.HasSuffix(op.Name, ".seg") && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpSync)
		})
		s.pause(5 * time.Second)
		b.fs.Heal()
		hang.Release()
	}},
	{"files of one are damaged", func(s *sim) {
		if s.damaged == "" {
			s.damaged = s.some()
		}
		s.end(s.damaged)
		for range 1 + s.rng.IntN(4) {
			s.flip(s.nodes[s.damaged].disk)
		}
	}},
}

// cutOff separates a bookie from all the others, and from writers and readers.
func (s *sim) cutOff(out, in bool) {
	one := s.some()
	set := func(cut bool) {
		for _, id := range append([]string{"client"}, s.ids...) {
			if id != one {
				s.net.setCut(one, id, cut && out)
				s.net.setCut(id, one, cut && in)
			}
		}
	}
	set(true)
	s.pause(10 * time.Second)
	set(false)
}

// files lists what a bookie has on its disk, by kind.
func (s *sim) files(disk *vfs.Mem) map[string][]string {
	kinds := map[string][]string{}
	dirs := []string{"/data/journal"}
	for i := range s.ids {
		dirs = append(dirs, snapshotDir("/data", ledger.GroupID(i+1)))
	}
	for _, dir := range dirs {
		names, err := disk.List(dir)
		if err != nil {
			continue // it holds no replica of this group
		}
		for _, name := range names {
			switch kind := filepath.Ext(name); kind {
			case ".seg", ".sum", fileSuffix, layerSuffix:
				kinds[kind] = append(kinds[kind], filepath.Join(dir, name))
			}
		}
	}
	return kinds
}

// flip turns a bit of some file.
func (s *sim) flip(disk *vfs.Mem) {
	kinds := s.files(disk)
	names := kinds[slices.Sorted(maps.Keys(kinds))[s.rng.IntN(len(kinds))]]
	s.harm(disk, names[s.rng.IntN(len(names))], false)
}

// harm turns a bit of a file, or cuts it off, anywhere.
func (s *sim) harm(disk *vfs.Mem, name string, cut bool) {
	f, err := disk.Open(name)
	if err != nil {
		s.t.Fatal(err)
	}
	size, err := f.Size()
	if err == nil && size > 0 {
		at, b := s.rng.Int64N(size), []byte{0}
		if cut {
			err = f.Truncate(at)
		} else {
			_, err = f.ReadAt(b, at)
			b[0] ^= 1 << s.rng.IntN(8)
			if err == nil {
				_, err = f.WriteAt(b, at)
			}
		}
		s.t.Logf("%v: %s at %d of %d, cut %t", time.Since(simEpoch).Round(time.Millisecond), name, at, size, cut)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		s.t.Fatal(err)
	}
}
