package bookie

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// The disk of a group's leader hangs in fsync. Another replica leads, and the process of the old one says that it must
// end. Without the deadline of the journal nobody would ever be elected: heartbeats would go on.
func TestHungDiskOfTheLeader(t *testing.T) {
	// The deadline is also that of everybody else, on a machine that may be busy.
	c := newCluster(t, 3, func(o *Options) { o.Journal.WriteTimeout = 3 * time.Second })
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	old := c.leader(1)
	hang := c.nodes[old].fs.HangIf(vfs.Kinds(vfs.OpSync))
	defer hang.Release()
	res := make(chan *bookiepb.Result, 1)
	go func() { res <- c.executeAt(old, 1, command(testAppend(7, 1, 0, "x"))) }()
	select {
	case err := <-c.nodes[old].Failed():
		if !errors.Is(err, ErrStore) || !errors.Is(err, journal.ErrPoisoned) {
			t.Errorf("failed with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the bookie does not notice that its disk hangs")
	}
	if r := <-res; r.Code != bookiepb.Code_UNKNOWN {
		t.Errorf("the append on the hung disk: %v", r)
	}
	next := c.leader(1, old)
	res2 := c.executeAt(next, 1, command(testAppend(7, 1, 0, "x")))
	c.want(res2, bookiepb.Code_OK, 0)
	hang.Release()
}

// Faults that a cluster gets over share one. Each has a ledger of its own.
func TestFaultsThatPass(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.Journal.WriteTimeout = 20 * time.Second })
	c.run(t, []subtest{
		{"frozen follower", testFrozenFollower}, {"lagging follower gets large messages", testLaggingFollower},
	})
}

func TestRestarts(t *testing.T) {
	c := newCluster(t, 3, nil)
	c.run(t, []subtest{
		{"leader stops, retry gives no duplicates", testLeaderStops}, {"power cut of all", testPowerCutOfAll},
	})
}

// A follower's disk stands still for a while, shorter than the deadline: the group goes on without it, and it catches
// up by itself.
func testFrozenFollower(t *testing.T, c *cluster) {
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 101, Epoch: 1}), bookiepb.Code_OK, -1)
	lead := c.leader(1)
	follower := map[string]string{"a": "b", "b": "c", "c": "a"}[lead]
	hang := c.nodes[follower].fs.HangIf(vfs.Kinds(vfs.OpSync))
	defer hang.Release()
	for i := range 30 {
		res := c.execute(1, command(testAppend(101, 1, ledger.EntryID(i), "x")))
		if res.Code != bookiepb.Code_OK {
			t.Fatalf("append %d: %v", i, res)
		}
	}
	c.nodes[follower].fs.Heal()
	hang.Release()
	c.eventually("the follower catches up", func() bool {
		got, res := c.read(follower, &bookiepb.ReadRequest{Group: 1, Ledger: 101, First: 0, Confirmed: 29})
		return res.Code == bookiepb.Code_OK && len(got) == 30
	})
}

// A follower is away while large entries queue up for it. What it gets when it is back fits into messages.
func testLaggingFollower(t *testing.T, c *cluster) {
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 102, Epoch: 1}), bookiepb.Code_OK, -1)
	lead := c.leader(1)
	follower := map[string]string{"a": "b", "b": "c", "c": "a"}[lead]
	c.stop(follower)
	const n = 10 // 8 of them are above the default limit of gRPC
	large := strings.Repeat("0123456789abcdef", 520<<10/16)
	for i := range n {
		c.want(c.execute(1, command(testAppend(102, 1, ledger.EntryID(i), large))), bookiepb.Code_OK, int64(i))
	}
	c.start(follower, listen(t, c.nodes[follower].addr))
	c.eventually("the follower catches up", func() bool {
		got, res := c.read(follower, &bookiepb.ReadRequest{Group: 1, Ledger: 102, First: n - 2, Confirmed: n - 1})
		return res.Code == bookiepb.Code_OK && len(got) == 2 && got[1] == large
	})
}

// Damage on one replica: reads of the entry say so and never that it does not exist, and another replica has it. When
// the damaged bookie starts again, the replica stops or serves, but the bookie runs.
func TestUnreadableIsNotAbsent(t *testing.T) {
	c := newCluster(t, 3, func(o *Options) { o.Journal.SegmentSize = 64 << 10 })
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	const n = 40
	marker := "the quick brown fox"
	for i := range n {
		p := strings.Repeat(fmt.Sprintf("%s %d ", marker, i), 200)
		c.want(c.execute(1, command(testAppend(7, 1, ledger.EntryID(i), p))), bookiepb.Code_OK, int64(i))
	}
	lead := c.leader(1)
	victim := map[string]string{"a": "b", "b": "c", "c": "a"}[lead]
	c.eventually("the victim has applied all", func() bool {
		st, ok := c.nodes[victim].groups.get(1).fsm.state(7)
		return ok && st.Last == n-1
	})
	c.stop(victim)
	damage(t, c.nodes[victim].disk, fmt.Sprintf("%s 3 ", marker))
	c.start(victim, listen(t, c.nodes[victim].addr))
	// Either the journal finds it when it opens the group, or raft when it replays it. Until the others have helped, the
	// replica says nothing about what there is; it repairs itself.
	c.eventually("the damage is repaired", func() bool {
		got, res := c.read(victim, &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 0, Confirmed: n - 1})
		if res.Code == bookiepb.Code_NO_ENTRY || res.Code == bookiepb.Code_NO_LEDGER {
			t.Fatalf("a damaged replica says %v", res)
		}
		for i := range got {
			if got[i] != strings.Repeat(fmt.Sprintf("%s %d ", marker, i), 200) {
				t.Fatalf("entry %d is wrong", i)
			}
		}
		return len(got) == n
	})
	if g := c.nodes[victim].groups.get(1); g.store.group.FirstIndex() == 1 {
		t.Error("the damaged log is still there")
	}
	select {
	case err := <-c.nodes[victim].Failed():
		t.Fatalf("one damaged replica took the bookie down: %v", err)
	default:
	}
	got, res := c.read(c.leader(1), &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 0, Confirmed: n - 1})
	if len(got) != n || res.Code != bookiepb.Code_OK {
		t.Fatalf("the others have %d entries, %v", len(got), res)
	}
}

// Damage that appears under a running replica.
func TestUnreadableWhileRunning(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.Journal.SegmentSize = 64 << 10 })
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	g := c.nodes["a"].groups.get(1)
	c.want(c.execute(1, command(testAppend(7, 1, 0, "good", "spoilt", "good"))), bookiepb.Code_OK, 2)
	// As if the record came back from the disk with other bytes: the index points at what does not check.
	g.fsm.mu.Lock()
	g.fsm.index.tail[7][0].offset -= 3
	g.fsm.mu.Unlock()
	_, res := c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 1, Confirmed: 2})
	c.want(res, bookiepb.Code_UNREADABLE, 2)
	_, res = c.read("a", &bookiepb.ReadRequest{Group: 1, Ledger: 7, First: 3, Confirmed: 3})
	c.want(res, bookiepb.Code_NO_ENTRY, 2)
}

// damage flips a bit in the bytes that follow a marker, on the files of the journal.
func damage(t *testing.T, fs vfs.FS, marker string) {
	t.Helper()
	dir := "/data/journal"
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for _, name := range names {
		f, err := fs.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		b := make([]byte, size)
		_, _ = f.ReadAt(b, 0) // a short read leaves zeros
		if i := strings.Index(string(b), marker); i >= 0 {
			if _, err := f.WriteAt([]byte{b[i] ^ 0x40}, int64(i)); err != nil {
				t.Fatal(err)
			}
			_ = f.Sync()
			done++
		}
		_ = f.Close()
	}
	if done == 0 {
		t.Fatal("marker not found in the journal")
	}
}

// A bookie that lost its disk and was initialized again under its old id is refused by its peers, whether it asks or
// is asked, and learns it when it registers.
func TestWipedBookieIsRefused(t *testing.T) {
	c := newCluster(t, 3, nil)
	victim := c.nodes["c"]
	c.stop("c")
	victim.disk = vfs.NewMem()
	victim.fs = vfs.NewInject(victim.disk)
	_, err := Init(InitOptions{
		DataDir: "/data", MetadataDir: filepath.Join(c.dir, "c2"), FS: victim.fs, BookieID: "c", ClusterID: "test", Metadata: c.members,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := c.options(victim, listen(t, victim.addr))
	o.MetadataDir = filepath.Join(c.dir, "c2")
	if victim.Bookie, err = Open(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-victim.Failed():
		if !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "new id") {
			t.Errorf("failed with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("a wiped bookie runs under its old id")
	}
	if victim.meta().raft.LastIndex() > 1 {
		t.Errorf("the metadata leader sent entries to a wiped member")
	}
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
}

// Raft calls are taken from the bookies of this cluster only. Raft itself would take a term and entries from anybody.
func TestStrangersAreRefused(t *testing.T) {
	c := newCluster(t, 1, nil)
	a := c.nodes["a"]
	term := a.groups.get(1).raft.CurrentTerm()
	for name, id := range map[string]identity{
		"nobody":          {},
		"another cluster": {clusterID: "other", bookieID: "a", instance: a.self.instance},
		"unknown id":      {clusterID: "test", bookieID: "stranger", instance: "i"},
		"wrong instance":  {clusterID: "test", bookieID: "a", instance: "i"},
	} {
		raftClient := bookiepb.NewRaftClient(c.conn("a"))
		conn, err := net.Dial("tcp", a.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		lane := bookiepb.NewLane(conn)
		if hello, err := lane.Call(id.hello()); err == nil && hello.GetError() == "" {
			t.Errorf("%s: %v %v", name, hello, err)
		}
		err = errors.Join(lane.PutRequest(&bookiepb.RaftRequest{Group: 1, ClusterId: "test", Body: &bookiepb.RaftRequest_AppendEntries{
			AppendEntries: &bookiepb.AppendEntries{
				Header: &bookiepb.RaftHeader{ProtocolVersion: 3, Id: []byte(id.bookieID), Addr: []byte(id.bookieID)}, Term: term + 100,
			},
		}}), lane.Flush()) // the other end may be closed by now
		if resp, rerr := lane.ReadResponse(); rerr == nil {
			t.Errorf("%s: %v, after %v", name, resp, err)
		}
		snapshot, err := raftClient.InstallSnapshot(id.outgoing(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		_ = snapshot.Send(&bookiepb.SnapshotChunk{Group: 1, ClusterId: "test", Head: &bookiepb.InstallSnapshotHead{Term: term + 100}})
		if resp, err := snapshot.CloseAndRecv(); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: snapshot: %v %v", name, resp, err)
		}
	}
	if now := a.groups.get(1).raft.CurrentTerm(); now != term {
		t.Errorf("term %d, before %d", now, term)
	}
}

// The disk is nearly full: entries are refused before they are proposed, closes and deletes go on; room brings it back.
func TestReadOnlyWhenNearlyFull(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.MinFreeSpace = 8 << 20; o.Journal.SegmentSize = 1 << 20 })
	b := c.nodes["a"]
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	b.disk.SetCapacity(7 << 20)
	b.checkSpace()
	c.want(c.execute(1, command(testAppend(7, 1, 0, "x"))), bookiepb.Code_READ_ONLY, -1)
	c.want(c.execute(1, ledger.Command{Op: ledger.OpClose, Ledger: 7, Epoch: 1, Last: -1}), bookiepb.Code_OK, -1)
	b.disk.SetCapacity(100 << 20)
	b.checkSpace()
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 8, Epoch: 1}), bookiepb.Code_OK, -1)
}

// fullJournalDisk is a file system whose journal directory is a disk of its own.
type fullJournalDisk struct {
	vfs.FS
	dir  string
	full atomic.Bool
}

func (d *fullJournalDisk) FreeSpace(dir string) (uint64, error) {
	if dir == d.dir && d.full.Load() {
		return 0, nil
	}
	return 1 << 40, nil
}

// A journal on a disk of its own counts as much as the data directory's.
func TestReadOnlyWhenTheJournalsDiskIsNearlyFull(t *testing.T) {
	disk := &fullJournalDisk{dir: "/data/journal"}
	c := newCluster(t, 1, func(o *Options) { disk.FS, o.FS, o.MinFreeSpace = o.FS, disk, 8<<20 })
	b := c.nodes["a"]
	c.want(c.execute(1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1}), bookiepb.Code_OK, -1)
	disk.full.Store(true)
	b.checkSpace()
	c.want(c.execute(1, command(testAppend(7, 1, 0, "x"))), bookiepb.Code_READ_ONLY, -1)
	disk.full.Store(false)
	b.checkSpace()
	c.want(c.execute(1, command(testAppend(7, 1, 0, "x"))), bookiepb.Code_OK, 0)
}

// The watchdog counts the time in which it looked: not idle time, and not a time in which the process was stopped.
func TestStallCountsWatchedTime(t *testing.T) {
	var s stall
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		after    time.Duration
		busy     bool
		progress uint64
		want     time.Duration
	}{
		{0, true, 5, 0},
		{time.Second, true, 5, time.Second},
		{time.Second, true, 5, 2 * time.Second},
		{time.Hour, true, 5, 2*time.Second + maxLook},
		{time.Second, true, 6, 0},
		{time.Second, true, 6, time.Second},
		{time.Second, false, 6, 0},
		{time.Hour, true, 6, maxLook},
	} {
		now = now.Add(step.after)
		if got := s.look(now, step.busy, step.progress); got != step.want {
			t.Errorf("look %d: %v, want %v", i, got, step.want)
		}
	}
}

func TestGroupStalledReportsFailure(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.StallTimeout = 100 * time.Millisecond })
	g := c.nodes["a"].groups.get(1)
	g.fsm.mu.Lock() // the machine stands still
	defer g.fsm.mu.Unlock()
	go c.executeAt("a", 1, ledger.Command{Op: ledger.OpCreate, Ledger: 7, Epoch: 1})
	select {
	case err := <-c.nodes["a"].Failed():
		if !errors.Is(err, ErrStalled) {
			t.Errorf("failed with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the watchdog does not see it")
	}
}
