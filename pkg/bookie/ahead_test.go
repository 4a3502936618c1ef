package bookie

import (
	"math/rand"
	"testing"

	"github.com/hashicorp/raft"
)

// aheadLog is a log in memory.
type aheadLog struct {
	sizes []int                   // of entries 1, 2, …
	bytes []byte                  // as long as the largest
	read  func(index uint64) bool // false: it cannot be read
}

func (l aheadLog) size(index uint64) (int, bool) {
	if index < 1 || index > uint64(len(l.sizes)) {
		return 0, false
	}
	return l.sizes[index-1], true
}

func (l aheadLog) GetLog(index uint64, log *raft.Log) error {
	n, ok := l.size(index)
	if !ok || l.read != nil && !l.read(index) {
		return raft.ErrLogNotFound
	}
	*log = raft.Log{Index: index, Term: 3, Data: l.bytes[:n]}
	return nil
}

// request is a call as raft makes it: up to full entries behind prev.
func (l aheadLog) request(prev uint64, full int) *raft.AppendEntriesRequest {
	args := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: prev}
	for i := prev + 1; i <= uint64(len(l.sizes)) && len(args.Entries) < full; i++ {
		e := &raft.Log{}
		if l.GetLog(i, e) != nil {
			break
		}
		args.Entries = append(args.Entries, e)
	}
	return args
}

func testAhead(l aheadLog, full int) *ahead {
	return &ahead{log: l, full: full, upTo: map[raft.ServerID]uint64{}, leads: func(term uint64) bool { return term == 3 }}
}

// TestAheadSendsAllOfTheLog: a follower that takes everything gets each entry once, in order, in calls that are never
// beyond the bound but for what raft put there.
func TestAheadSendsAllOfTheLog(t *testing.T) {
	for seed := range int64(100) {
		rng := rand.New(rand.NewSource(seed))
		l := aheadLog{bytes: make([]byte, 2<<20)}
		for range rng.Intn(3000) {
			l.sizes = append(l.sizes, rng.Intn(1<<(1+rng.Intn(21))))
		}
		full := 1 + rng.Intn(8)
		a := testAhead(l, full)
		prev, calls := uint64(0), 0
		for prev < uint64(len(l.sizes)) {
			args := l.request(prev, full)
			own := len(args.Entries)
			a.extend("b", args)
			bytes := 0
			for i, e := range args.Entries {
				if e.Index != prev+uint64(i)+1 {
					t.Fatalf("seed %d: entry %d where %d belongs", seed, e.Index, prev+uint64(i)+1)
				}
				if bytes += len(e.Data); i >= own && bytes > aheadBytes {
					t.Fatalf("seed %d: %d bytes were filled up", seed, bytes)
				}
			}
			end := args.Entries[len(args.Entries)-1].Index
			if n, ok := l.size(end + 1); ok && calls > 0 && bytes+n <= aheadBytes && len(args.Entries) < aheadEntries {
				t.Fatalf("seed %d: a call of %d bytes has room for the %d of entry %d", seed, bytes, n, end+1)
			}
			a.ended("b", args, true)
			prev = end
			calls++
		}
	}
}

// TestAheadOnlyBehindSuccess: whose log is not known to be the same gets no more than raft gives him, and each follower
// stands for himself.
func TestAheadOnlyBehindSuccess(t *testing.T) {
	l := aheadLog{sizes: make([]int, 100)}
	a := testAhead(l, 4)
	try := func(to raft.ServerID, prev uint64, success bool, want int) {
		t.Helper()
		args := l.request(prev, 4)
		a.extend(to, args)
		a.ended(to, args, success)
		if len(args.Entries) != want {
			t.Errorf("%d entries behind %d, want %d", len(args.Entries), prev, want)
		}
	}
	try("b", 10, false, 4) // nothing is known
	try("b", 8, false, 4)
	try("b", 5, true, 4)
	try("c", 9, true, 4)  // another one
	try("b", 50, true, 4) // not where the last call ended
	try("b", 54, true, 46)
	try("c", 13, false, 87)
	try("c", 13, true, 4) // that failed
	heartbeat := &raft.AppendEntriesRequest{Term: 3}
	a.extend("c", heartbeat)
	a.ended("c", heartbeat, false)
	if len(heartbeat.Entries) != 0 {
		t.Error("a heartbeat brought entries")
	}
	try("c", 17, true, 83)
	try("c", 97, true, 3) // the end of the log
}

// TestAheadDropsWhatALeaderMayHaveLost: what was read while the lead was lost may be of another log.
func TestAheadDropsWhatALeaderMayHaveLost(t *testing.T) {
	l := aheadLog{sizes: make([]int, 100)}
	leads := true
	l.read = func(index uint64) bool {
		leads = leads && index != 42
		return true
	}
	a := testAhead(l, 4)
	a.leads = func(uint64) bool { return leads }
	a.upTo["b"] = 0
	args := &raft.AppendEntriesRequest{Term: 3, Entries: []*raft.Log{{Index: 1}, {Index: 2}, {Index: 3}, {Index: 4}}}
	a.extend("b", args)
	if len(args.Entries) != 4 {
		t.Errorf("%d entries are sent by who leads no more", len(args.Entries))
	}
	leads, l.read = true, func(index uint64) bool { return index < 30 }
	a.log = l
	a.extend("b", args)
	if n := len(args.Entries); n != 29 {
		t.Errorf("%d entries, want those before the one that cannot be read", n)
	}
}
