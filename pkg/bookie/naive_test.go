package bookie

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
	"geminga/rpc/bookiepb"
)

// trio is a group of three replicas over a network in memory, in virtual time, of which only a ever stands for election.
// The replicas are the library as it comes, with its own transport, stores and settings, or are put together as the groups
// of a bookie are. Both have the same machine and the same disk, so a hazard shows with the first and not with the others.
type trio struct {
	t     *testing.T
	net   *simNet
	start func(*trio, *replica)
	all   map[string]*replica
}

// replica is what one of them is made of. The disk outlives a restart.
type replica struct {
	id       string
	log      *refusingLog
	trailing uint64 // entries that stay in the log behind a snapshot
	snaps    slowSnapshots
	fsm      *tally
	raft     *raft.Raft
	health   *health // nil: the library has none
	stop     func()
}

// refusingLog refuses to store some entries, as a full disk does.
type refusingLog struct {
	*raft.InmemStore
	refuse  atomic.Int64 // so many calls
	refused atomic.Int64
}

func (s *refusingLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *refusingLog) StoreLogs(logs []*raft.Log) error {
	if s.refuse.Add(-1) >= 0 {
		s.refused.Add(1)
		return journal.ErrNoSpace
	}
	return s.InmemStore.StoreLogs(logs)
}

// slowSnapshots take a while to read: time stands still in a bubble as long as anything goes on without waiting.
type slowSnapshots struct{ *raft.InmemSnapshotStore }

func (s slowSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.InmemSnapshotStore.Open(id)
	return meta, slowReader{r}, err
}

type slowReader struct{ io.ReadCloser }

func (r slowReader) Read(b []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return r.ReadCloser.Read(b)
}

// tally counts what it applies. Its snapshot is the number.
type tally struct{ applied, restored atomic.Uint64 }

func (f *tally) Apply(*raft.Log) any { return f.applied.Add(1) }

func (f *tally) Snapshot() (raft.FSMSnapshot, error) { return tallied(f.applied.Load()), nil }

func (f *tally) Restore(r io.ReadCloser) error {
	var n uint64
	err := binary.Read(r, binary.BigEndian, &n)
	f.applied.Store(n)
	f.restored.Add(1)
	return errors.Join(err, r.Close())
}

type tallied uint64

func (n tallied) Persist(sink raft.SnapshotSink) error {
	return errors.Join(binary.Write(sink, binary.BigEndian, uint64(n)), sink.Close())
}

func (tallied) Release() {}

// newTrio makes the disks of replicas that have applied nothing yet. It starts none.
func newTrio(t *testing.T, start func(*trio, *replica), addresses func(id string) raft.ServerAddress) *trio {
	c := &trio{t: t, net: newSimNet(), start: start, all: map[string]*replica{}}
	var conf raft.Configuration
	for _, id := range []string{"a", "b", "c"} {
		conf.Servers = append(conf.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: addresses(id)})
	}
	for _, s := range conf.Servers {
		r := &replica{
			id: string(s.ID), log: &refusingLog{InmemStore: raft.NewInmemStore()}, trailing: raft.DefaultConfig().TrailingLogs,
			snaps: slowSnapshots{raft.NewInmemSnapshotStore()}, fsm: &tally{},
		}
		first := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)}
		if err := errors.Join(r.log.StoreLog(first), r.setTerm(1)); err != nil {
			t.Fatal(err)
		}
		c.all[r.id] = r
	}
	return c
}

func (r *replica) setTerm(term uint64) error { return r.log.SetUint64([]byte(termKey), term) }

// run starts replicas and waits until a leads.
func (c *trio) run(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.start(c, c.all[id])
	}
	c.within(time.Minute, "a leads", func() bool { return c.all["a"].raft.State() == raft.Leader })
}

func (c *trio) stopAll() {
	for _, r := range c.all {
		if r.stop != nil {
			r.stop()
			r.stop = nil
		}
	}
}

// comesTrue waits for something.
func (c *trio) comesTrue(most time.Duration, cond func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return true
		}
	}
	return false
}

func (c *trio) within(most time.Duration, what string, cond func() bool) {
	c.t.Helper()
	if !c.comesTrue(most, cond) {
		c.t.Fatalf("did not come true in %v: %s", most, what)
	}
}

// apply commits some proposals, all under way at once.
func (c *trio) apply(n int) {
	c.t.Helper()
	var all []raft.ApplyFuture
	for range n {
		all = append(all, c.all["a"].raft.Apply([]byte("x"), time.Minute))
	}
	for _, f := range all {
		if err := f.Error(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// follows says whether b has applied what the leader has.
func (c *trio) follows() bool { return c.all["b"].fsm.applied.Load() == c.all["a"].fsm.applied.Load() }

// asItComes starts a replica as the library's documentation does.
func asItComes(c *trio, r *replica) {
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger, conf.TrailingLogs = raft.ServerID(r.id), hclog.NewNullLogger(), r.trailing
	if r.id != "a" {
		conf.HeartbeatTimeout, conf.ElectionTimeout = neverStand, neverStand
	}
	port := c.net.listen(r.id)
	transport := &remembering{NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: simStream{port, c.net.dialer(r.id)}, MaxPool: 3, Timeout: 10 * time.Second, Logger: conf.Logger,
	})}
	var err error
	if r.raft, err = raft.NewRaft(conf, r.fsm, r.log, r.log, r.snaps, transport); err != nil {
		c.t.Fatal(err)
	}
	r.stop = func() {
		transport.release()
		err := r.raft.Shutdown().Error()
		transport.CloseStreams()
		if err := errors.Join(err, transport.Close()); err != nil {
			c.t.Error(err)
		}
		port.kill()
	}
}

func simAddress(id string) raft.ServerAddress { return raft.ServerAddress(simAddr(id).String()) }

func ownAddress(id string) raft.ServerAddress { return raft.ServerAddress(id) }

// simStream is what the library's transport wants of a network.
type simStream struct {
	*simListener
	dial Dial
}

func (s simStream) Dial(to raft.ServerAddress, wait time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return s.dial(ctx, string(to))
}

// remembering is the library's transport, and knows its pipelines: those that hang would hang for ever, and the test with
// them.
type remembering struct {
	*raft.NetworkTransport
	mu    sync.Mutex
	pipes []raft.AppendPipeline
}

func (t *remembering) AppendEntriesPipeline(id raft.ServerID, at raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, at)
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pipes = append(t.pipes, p)
	}
	return p, err
}

func (t *remembering) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pipes {
		_ = p.Close() // is never an error
	}
}

// asOurs starts a replica as a bookie does, and again when it has failed.
func asOurs(c *trio, r *replica) {
	log := slog.New(slog.DiscardHandler)
	if err := healLog(r.log, r.snaps, log); err != nil {
		c.t.Fatal(err)
	}
	var members []Member
	for id := range c.all {
		members = append(members, Member{id, simAddr(id).String()})
	}
	port, conns := c.net.listen(r.id), newConns(c.net.dialer(r.id))
	links := newLinks(identity{clusterID: "test", bookieID: r.id}, openAddressBook(vfs.NewMem(), "/data", members, log), conns, log)
	r.health = newHealth(nil)
	n := &node{health: r.health, book: links.book, log: log, wait: 10 * time.Second, stop: make(chan struct{})}
	o := RaftOptions{RPCTimeout: 10 * time.Second, SnapshotTimeout: time.Minute}
	o.ensureDefaults()
	timeout := o.PreferredTimeout
	if r.id != "a" {
		timeout = neverStand
	}
	err := n.start(links, o, nodeOptions{
		id: 1, timeout: timeout, fsm: r.fsm, trailing: r.trailing,
		store:     &guardedStore{store: r.log, health: r.health, stop: n.stop},
		snapshots: &lockedSnapshots{SnapshotStore: r.snaps, log: r.log, diverged: r.health.fail},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	r.raft = n.raft
	service := &raftService{links: links, find: func(ledger.GroupID) *transport { return n.transport }, opts: o}
	lanes := newLanes(service.exchange, log)
	server := grpc.NewServer(append(bookiepb.ServerOptions(), grpc.Creds(lanes))...)
	bookiepb.RegisterRaftServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(port) }()
	r.stop = func() {
		n.close(context.Background())
		links.close()
		conns.close()
		server.Stop()
		port.kill()
		lanes.stop()
		<-served
	}
}

// supervise starts replicas again that have failed.
func (c *trio) supervise() {
	for _, r := range c.all {
		if r.stop != nil && r.health != nil && !r.health.ok() {
			r.stop()
			c.start(c, r)
		}
	}
}

// tailed gives b a tail of entries that the others, which are in a later term, never had.
func (c *trio) tailed() *replica {
	b := c.all["b"]
	err := errors.Join(c.all["a"].setTerm(9), c.all["c"].setTerm(9), b.log.StoreLogs(testLogs(2, 60, 2)), b.setTerm(2))
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// Raft issue #697. A replica comes back with a tail of entries that were never committed, beyond the end of the snapshot that
// it is sent because the leader's log begins behind it. The library takes the snapshot, keeps its own entry at the snapshot's
// end, refuses what comes next, and is sent the snapshot again: for hours. Ours starts again without the tail.
func TestSnapshotLivelock(t *testing.T) {
	diverged := func(t *testing.T, start func(*trio, *replica), addresses func(string) raft.ServerAddress) *trio {
		c := newTrio(t, start, addresses)
		c.all["a"].trailing = 0
		b := c.tailed()
		c.run("a", "c")
		c.apply(20)
		if err := c.all["a"].raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		c.apply(20)
		time.Sleep(time.Minute) // calls from before the snapshot are over: one of them could cut the tail
		c.start(c, b)
		return c
	}
	t.Run("library", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := diverged(t, asItComes, simAddress)
			defer c.stopAll()
			b := c.all["b"]
			if c.comesTrue(time.Minute, c.follows) {
				t.Fatal("the library has no such hazard any more: what is done about it may go")
			}
			if b.fsm.restored.Load() < 20 || b.raft.LastContact().Before(time.Now().Add(-time.Minute)) {
				t.Errorf("it was sent the snapshot %d times, last contact %v ago", b.fsm.restored.Load(), time.Since(b.raft.LastContact()))
			}
			t.Logf("it was sent the snapshot %d times", b.fsm.restored.Load())
		})
	})
	t.Run("ours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := diverged(t, asOurs, ownAddress)
			defer c.stopAll()
			b := c.all["b"]
			c.within(time.Minute, "b follows", func() bool {
				c.supervise()
				return c.follows()
			})
			c.apply(20)
			c.within(time.Minute, "b goes on following", c.follows)
			if n := b.fsm.restored.Load(); n > 2 { // when it was sent, and when b started again
				t.Errorf("the snapshot was restored %d times", n)
			}
			metas, err := b.snaps.List()
			if err != nil || len(metas) != 1 || disagrees(b.log, metas[0]) {
				t.Errorf("the log still disagrees with the snapshot: %v", err)
			}
		})
	})
}

// Raft issue #612. A replica refuses some entries, because its disk is full for a moment. The library's pipeline may then wait
// for ever, both ends for each other: the replica gets no entries any more, though its leader's heartbeats go on and all the
// others follow. We use no pipeline.
func TestFrozenFollower(t *testing.T) {
	const rounds = 200
	// frozen refuses a few entries under load, again and again, until b does not come back.
	frozen := func(c *trio) (round int) {
		for round = range rounds {
			c.all["b"].log.refuse.Store(int64(1 + round%3))
			c.apply(50)
			c.all["b"].log.refuse.Store(0)
			c.apply(1)
			if !c.comesTrue(time.Minute, c.follows) {
				return round
			}
		}
		return rounds
	}
	t.Run("library", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newTrio(t, asItComes, simAddress)
			defer c.stopAll()
			c.run("a", "b", "c")
			round := frozen(c)
			if round == rounds {
				t.Fatal("the library has no such hazard any more: what is done about it may go")
			}
			t.Logf("frozen in round %d", round)
			b := c.all["b"]
			had := b.fsm.applied.Load()
			c.apply(50)
			time.Sleep(10 * time.Minute)
			if got := b.fsm.applied.Load(); got != had || time.Since(b.raft.LastContact()) > time.Minute {
				t.Errorf("applied %d, then %d; last contact %v ago", had, got, time.Since(b.raft.LastContact()))
			}
		})
	})
	t.Run("ours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newTrio(t, asOurs, ownAddress)
			defer c.stopAll()
			c.run("a", "b", "c")
			if round := frozen(c); round != rounds {
				b := c.all["b"]
				t.Errorf("frozen in round %d: failed %v, last contact %v ago", round, b.health.err(), time.Since(b.raft.LastContact()))
			}
			if n := c.all["b"].log.refused.Load(); n < rounds/2 {
				t.Errorf("only %d calls were refused", n)
			}
		})
	})
}

// A replica comes back with a tail that was never committed, and its disk is full just when the leader's entries take the
// tail's place. The library has cut its log then and still believes that it ends where the tail ended: it refuses whatever
// comes, for ever. Ours writes nothing else before the entries are there.
func TestFullDiskBehindACutTail(t *testing.T) {
	const full = 7 // calls that are refused
	cut := func(t *testing.T, start func(*trio, *replica), addresses func(string) raft.ServerAddress) *trio {
		c := newTrio(t, start, addresses)
		b := c.tailed()
		b.log.refuse.Store(full)
		c.run("a", "c")
		c.apply(20)
		c.start(c, b)
		return c
	}
	t.Run("library", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := cut(t, asItComes, simAddress)
			defer c.stopAll()
			if c.comesTrue(time.Minute, c.follows) {
				t.Fatal("the library has no such hazard any more: what is done about it may go")
			}
		})
	})
	t.Run("ours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := cut(t, asOurs, ownAddress)
			defer c.stopAll()
			c.within(time.Minute, "b follows", c.follows)
			if n := c.all["b"].log.refused.Load(); n != full {
				t.Errorf("%d calls were refused", n)
			}
		})
	})
}
