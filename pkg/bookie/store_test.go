package bookie

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/vfs"
)

func openJournal(t *testing.T, fs vfs.FS) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Options{Dir: "/j", FS: fs, SegmentSize: 1 << 20, SyncData: true, WriteDeadline: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func testLogs(from, to, term uint64) []*raft.Log {
	var out []*raft.Log
	for i := from; i <= to; i++ {
		out = append(out, &raft.Log{
			Index: i, Term: term, Type: raft.LogCommand, Data: fmt.Append(nil, "data", i), Extensions: []byte("ext"),
			AppendedAt: time.Unix(1000, int64(i)),
		})
	}
	return out
}

// testStore has its snapshots on a disk of their own. Nothing of its log is known to be committed.
func testStore(t *testing.T, g *journal.Group, recentBytes int) journalStore {
	t.Helper()
	snaps, err := openSnapshotStore(vfs.NewMem(), "/snapshots", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return newJournalStore(g, recentBytes, snaps, func() uint64 { return 0 })
}

// takeSnapshot adds one of an empty state.
func takeSnapshot(t *testing.T, s journalStore, index, term uint64) {
	t.Helper()
	sink, err := s.snapshots.Create(1, index, term, configurationOf([]string{"a"}), 1, nil)
	if err == nil {
		err = newFSM(newHealth(nil)).stateLocked().Persist(sink)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What raft expects of a log store and a stable store, one line each.
func TestJournalStoreKeepsRaftsContract(t *testing.T) {
	s := testStore(t, openJournal(t, vfs.NewMem()).Group(3), 12)
	bounds := func(first, last uint64) {
		t.Helper()
		f, err1 := s.FirstIndex()
		l, err2 := s.LastIndex()
		if f != first || l != last || err1 != nil || err2 != nil {
			t.Fatalf("log is [%d, %d] (%v, %v), want [%d, %d]", f, l, err1, err2, first, last)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var got raft.Log
	bounds(0, 0)
	if err := s.GetLog(1, &got); err != raft.ErrLogNotFound {
		t.Fatalf("missing entry: %v", err)
	}
	must(s.StoreLogs(testLogs(1, 10, 1)))
	bounds(1, 10)
	must(s.GetLog(7, &got))
	want := testLogs(7, 7, 1)[0]
	if got.Index != 7 || got.Term != 1 || got.Type != want.Type || string(got.Data) != "data7" ||
		string(got.Extensions) != "ext" || !got.AppendedAt.Equal(want.AppendedAt) {
		t.Fatalf("entry 7 is %+v", got)
	}
	for _, i := range []uint64{0, 11} {
		if err := s.GetLog(i, &got); err != raft.ErrLogNotFound {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	must(s.DeleteRange(8, 10)) // a conflict
	bounds(1, 7)
	must(s.StoreLog(testLogs(8, 8, 2)[0]))
	must(s.GetLog(8, &got))
	if got.Term != 2 {
		t.Fatalf("entry 8 is of term %d", got.Term)
	}
	takeSnapshot(t, s, 4, 1)
	must(s.DeleteRange(1, 4)) // compaction
	bounds(1, 8)              // the log is needed should that snapshot be damaged
	takeSnapshot(t, s, 5, 1)
	must(s.DeleteRange(1, 5))
	bounds(5, 8)
	must(s.GetLog(5, &got))
	takeSnapshot(t, s, 5, 1) // a copy
	must(s.DeleteRange(1, 5))
	bounds(6, 8)
	if err := s.GetLog(5, &got); err != raft.ErrLogNotFound {
		t.Fatalf("compacted entry: %v", err)
	}
	must(s.DeleteRange(20, 30))
	bounds(6, 8)
	if err := s.DeleteRange(7, 7); err == nil {
		t.Fatal("a hole in the middle")
	}
	must(s.StoreLogs(testLogs(50, 52, 3))) // behind a snapshot that raft installed
	bounds(50, 52)
	must(s.DeleteRange(50, 52)) // a conflict in all of it
	bounds(0, 0)
	must(s.StoreLogs(testLogs(50, 52, 4)))
	takeSnapshot(t, s, 52, 4)
	takeSnapshot(t, s, 52, 4)
	must(s.DeleteRange(50, 52)) // compaction of all of it
	bounds(0, 0)
	must(s.StoreLogs(testLogs(60, 65, 4)))
	takeSnapshot(t, s, 80, 5) // installed, far beyond
	must(s.DeleteRange(60, 65))
	bounds(0, 0)
	must(s.group.Keep([]journal.Kept{{Index: 70, Term: 5, Pieces: []journal.Piece{{Length: 4}}, Data: []byte("data")}}))

	if v, err := s.Get([]byte("k")); err != nil || len(v) != 0 {
		t.Errorf("missing key: %q %v", v, err)
	}
	if n, err := s.GetUint64([]byte("n")); err != nil || n != 0 {
		t.Errorf("missing number: %d %v", n, err)
	}
	must(s.Set([]byte("k"), []byte("v")))
	must(s.SetUint64([]byte("n"), 1<<40))
	if v, err := s.Get([]byte("k")); err != nil || string(v) != "v" {
		t.Errorf("key: %q %v", v, err)
	}
	if n, err := s.GetUint64([]byte("n")); err != nil || n != 1<<40 {
		t.Errorf("number: %d %v", n, err)
	}
}

// The memory of recent entries gives what the journal would give, through appends, cuts and any limit.
func TestRecentAgainstJournal(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	s := testStore(t, openJournal(t, vfs.NewMem()).Group(1), 40)
	for term := uint64(1); term < 200; term++ {
		first, _ := s.FirstIndex()
		last, _ := s.LastIndex()
		newest, _ := s.snapshots.newest()
		switch {
		case last > newest.Index+5 && rng.IntN(4) == 0:
			if err := s.DeleteRange(last-uint64(rng.IntN(4)), last); err != nil {
				t.Fatal(err)
			}
		case last > 20 && rng.IntN(4) == 0:
			takeSnapshot(t, s, first+5, term)
			if err := s.DeleteRange(first, first+5); err != nil {
				t.Fatal(err)
			}
		default:
			if err := s.StoreLogs(testLogs(last+1, last+1+uint64(rng.IntN(8)), term)); err != nil {
				t.Fatal(err)
			}
		}
		if s.recent.bytes > 40 {
			t.Fatalf("%d bytes are kept", s.recent.bytes)
		}
		last, _ = s.LastIndex()
		for i := range last + 3 {
			var got, want raft.Log
			err := s.GetLog(i, &got)
			if wantErr := (journalStore{group: s.group, recent: &recent{}}).GetLog(i, &want); err != wantErr {
				t.Fatalf("entry %d: %v, want %v", i, err, wantErr)
			}
			if err == nil && (got.Term != want.Term || got.Index != want.Index || string(got.Data) != string(want.Data)) {
				t.Fatalf("entry %d: %+v, want %+v", i, got, want)
			}
		}
	}
}

// The first configuration is written once. A crash at any moment in between is made good; a lost log is not.
func TestBootstrapOnce(t *testing.T) {
	for n := int64(1); ; n++ {
		mem := vfs.NewMem()
		j, err := journal.Open(journal.Options{Dir: "/j", FS: mem, SegmentSize: 64 << 10, SyncData: true})
		if err != nil {
			t.Fatal(err)
		}
		mem.PowerOffAfter(n)
		first := bootstrap(testStore(t, j.Group(1), 12), []string{"a", "b"})
		_ = j.Close() // its power is off
		j = openJournal(t, mem.Crash(uint64(n)))
		s := testStore(t, j.Group(1), 12)
		if err := bootstrap(s, []string{"a", "b"}); err != nil {
			t.Fatalf("after a crash at operation %d: %v", n, err)
		}
		var log raft.Log
		term, _ := s.GetUint64([]byte(termKey))
		if err := s.GetLog(1, &log); err != nil || term != 1 || len(raft.DecodeConfiguration(log.Data).Servers) != 2 {
			t.Fatalf("crash at operation %d: entry %+v, term %d, %v", n, log, term, err)
		}
		if first == nil {
			break // no crash any more
		}
	}
	s := testStore(t, openJournal(t, vfs.NewMem()).Group(1), 12)
	if err := bootstrap(s, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRange(1, 1); err != nil { // no snapshot covers it
		t.Fatal(err)
	}
	if err := bootstrap(s, []string{"a"}); !errors.Is(err, ErrDamaged) {
		t.Errorf("bootstrapped again over a lost log: %v", err)
	}
}

// failingStore fails as the test says.
type failingStore struct {
	store
	err error
}

func (s *failingStore) StoreLogs([]*raft.Log) error      { return s.err }
func (s *failingStore) Set([]byte, []byte) error         { return s.err }
func (s *failingStore) SetUint64([]byte, uint64) error   { return s.err }
func (s *failingStore) GetLog(uint64, *raft.Log) error   { return s.err }
func (s *failingStore) DeleteRange(uint64, uint64) error { return s.err }

// A replica whose store failed says nothing any more: raft goes on with a lie, and the transport keeps it inside.
func TestFailedReplicaIsSilent(t *testing.T) {
	broken := errors.New("broken")
	var reported error
	h := newHealth(func(err error) { reported = err })
	s := &guardedStore{store: &failingStore{err: broken}, health: h, stop: make(chan struct{})}
	if err := s.SetUint64([]byte(termKey), 5); err != nil {
		t.Errorf("raft would panic: %v", err)
	}
	if !errors.Is(reported, broken) || !errors.Is(reported, ErrStore) || h.ok() {
		t.Errorf("reported %v", reported)
	}
	var log raft.Log
	if err := s.GetLog(9, &log); err != nil || log.Index != 9 || log.Type != raft.LogNoop {
		t.Errorf("raft would panic: %v %+v", err, log)
	}
	if err := s.StoreLogs(nil); err == nil {
		t.Error("a failed store takes writes")
	}
	if err := s.DeleteRange(1, 2); err == nil {
		t.Error("a failed store deletes")
	}
	links := newLinks(identity{clusterID: "c", bookieID: "a"}, nil, newConns(nil), nil)
	defer links.close()
	tr := newTransport(1, links, h, RaftOptions{RPCTimeout: time.Second})
	if err := tr.RequestVote("b", "b", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{}); !errors.Is(err, errStopped) {
		t.Errorf("a failed replica asked for a vote: %v", err)
	}
	if _, err := tr.serve(t.Context(), &raft.RequestVoteRequest{}, nil, time.Second); !errors.Is(err, errStopped) {
		t.Errorf("a failed replica answered: %v", err)
	}
}

// An answer that raft gives while the replica fails does not leave it.
func TestAnswerAfterFailureIsDropped(t *testing.T) {
	h := newHealth(nil)
	links := newLinks(identity{clusterID: "c", bookieID: "a"}, nil, newConns(nil), nil)
	defer links.close()
	tr := newTransport(1, links, h, RaftOptions{RPCTimeout: time.Second})
	go func() {
		rpc := <-tr.Consumer()
		h.fail(errors.New("the vote was not persisted"))
		rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
	}()
	if resp, err := tr.serve(t.Context(), &raft.RequestVoteRequest{}, nil, time.Second); err == nil {
		t.Errorf("a vote left: %+v", resp)
	}
}

// A full disk passes: an append is refused, a term is kept when there is room again.
func TestFullDiskPasses(t *testing.T) {
	h := newHealth(nil)
	inner := &spaceStore{full: 3}
	s := &guardedStore{store: inner, health: h, stop: make(chan struct{})}
	if err := s.StoreLogs(nil); !errors.Is(err, journal.ErrNoSpace) || !h.ok() {
		t.Errorf("append on a full disk: %v", err)
	}
	if err := s.SetUint64([]byte(termKey), 1); err != nil || !h.ok() || inner.kept != 1 {
		t.Errorf("term on a disk that was full for a while: %v, kept %d", err, inner.kept)
	}
}

type spaceStore struct {
	store
	full, kept int
}

func (s *spaceStore) StoreLogs([]*raft.Log) error { return s.try() }

func (s *spaceStore) SetUint64([]byte, uint64) error {
	err := s.try()
	if err == nil {
		s.kept++
	}
	return err
}

func (s *spaceStore) try() error {
	if s.full > 0 {
		s.full--
		return journal.ErrNoSpace
	}
	return nil
}

func TestDeadlineStore(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := deadlineStore{&hangingStore{release: release}, 10 * time.Millisecond}
	if err := s.StoreLogs(nil); err == nil {
		t.Error("no deadline")
	}
}

type hangingStore struct {
	store
	release chan struct{}
}

func (s *hangingStore) StoreLogs([]*raft.Log) error { <-s.release; return nil }

// What the log had may have passed for what a snapshot names: who looks for missing entries is told when it is emptied.
func TestClearedLogIsTold(t *testing.T) {
	j := openTestJournal(t, vfs.NewMem())
	defer func() { _ = j.Close() }() // the test is over
	told := 0
	s := testStore(t, j.Group(1), 1)
	s.cleared = func() {
		told++
		if last := j.Group(1).LastIndex(); last != 0 && last < 3 {
			t.Errorf("told while the log still ends at %d", last)
		}
	}
	for _, index := range []uint64{1, 2, 5} { // behind an installed snapshot of 4
		if err := s.StoreLog(&raft.Log{Index: index, Term: 1, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
