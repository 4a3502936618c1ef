package bookie

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	grpcmeta "google.golang.org/grpc/metadata"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// simLedger is what is known of a ledger.
type simLedger struct {
	id    ledger.ID
	group ledger.GroupID

	mu       sync.Mutex
	created  bool       // for certain
	batches  [][]string // ever sent, in order: repeated as they are
	acked    int        // batches
	last     ledger.EntryID
	fenced   bool // last is final
	ended    bool // nobody has anything to do with it any more
	deleting bool // asked for
	deleted  bool
}

// entries are those of the first n batches.
func (l *simLedger) entries(n int) []string {
	var out []string
	for _, b := range l.batches[:n] {
		out = append(out, b...)
	}
	return out
}

const (
	simEpochOfWriter = ledger.Epoch(1)
	simEpochOfNext   = ledger.Epoch(2)
)

// write makes one ledger after the other, each with an end of its own.
func (s *sim) write(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		l := s.newLedger(rng)
		if r := s.do(ctx, rng, l.group, ledger.Command{Op: ledger.OpCreate, Ledger: l.id, Epoch: simEpochOfWriter}); r == nil {
			return
		} else if r.Code != bookiepb.Code_OK {
			s.t.Errorf("create of ledger %d: %v", l.id, r)
		}
		l.mu.Lock()
		l.created = true
		l.mu.Unlock()
		for range rng.IntN(8) {
			if !s.append(ctx, rng, l) {
				return
			}
		}
		if rng.IntN(4) > 0 && !s.finish(ctx, rng, l) {
			return
		}
		if rng.IntN(3) == 0 && !s.remove(ctx, rng) {
			return
		}
	}
}

func (s *sim) newLedger(rng *rand.Rand) *simLedger {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	l := &simLedger{id: s.nextID, group: ledger.GroupID(1 + rng.IntN(len(s.ids))), last: ledger.NoEntry}
	s.ledgers = append(s.ledgers, l)
	return l
}

// do repeats a command until its outcome is known. Nil: there was no time.
func (s *sim) do(ctx context.Context, rng *rand.Rand, group ledger.GroupID, cmd ledger.Command) *bookiepb.Result {
	hint := ""
	for ctx.Err() == nil {
		if r := s.once(ctx, rng, hint, group, cmd); r != nil && !passing(r.Code) {
			return r
		} else if hint = ""; r != nil {
			hint = r.Leader
		}
		nap(ctx, rng)
	}
	return nil
}

func (s *sim) once(ctx context.Context, rng *rand.Rand, hint string, group ledger.GroupID, cmd ledger.Command) *bookiepb.Result {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	resp, err := s.client(rng, hint).Execute(ctx, &bookiepb.ExecuteRequest{Group: uint32(group), Command: cmd.AppendTo(nil)})
	if err != nil {
		return nil
	}
	return resp.GetResult()
}

// passing says that a command is to be repeated.
func passing(c bookiepb.Code) bool {
	switch c {
	case bookiepb.Code_UNKNOWN, bookiepb.Code_NOT_LEADER, bookiepb.Code_OVERLOADED, bookiepb.Code_NO_GROUP, bookiepb.Code_READ_ONLY:
		return true
	}
	return false
}

func nap(ctx context.Context, rng *rand.Rand) {
	select {
	case <-time.After(time.Duration(rng.IntN(200)+1) * time.Millisecond):
	case <-ctx.Done():
	}
}

func (s *sim) client(rng *rand.Rand, hint string) bookiepb.BookieClient {
	if hint == "" {
		hint = simAddr(s.ids[rng.IntN(len(s.ids))]).String()
	}
	conn, err := s.conn.get(hint)
	if err != nil {
		panic(err) // it is closed when nobody calls any more
	}
	return bookiepb.NewBookieClient(conn)
}

// append adds batches and returns when all are acknowledged. False: there was no time.
func (s *sim) append(ctx context.Context, rng *rand.Rand, l *simLedger) bool {
	l.mu.Lock()
	first := len(l.entries(len(l.batches)))
	for range 1 + rng.IntN(5) {
		var batch []string
		for range 1 + rng.IntN(4) {
			batch = append(batch, fmt.Sprintf("%d/%d/%s", l.id, first, strings.Repeat(strconv.Itoa(rng.IntN(10)), rng.IntN(2000))))
			first++
		}
		l.batches = append(l.batches, batch)
	}
	l.mu.Unlock()
	hint := ""
	for ctx.Err() == nil {
		done := false
		if done, hint = s.stream(ctx, rng, hint, l); done {
			return true
		}
		nap(ctx, rng)
	}
	return false
}

// stream sends what is not acknowledged on one stream, all of it at once, and takes the answers.
func (s *sim) stream(ctx context.Context, rng *rand.Rand, hint string, l *simLedger) (done bool, leader string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	ctx = grpcmeta.AppendToOutgoingContext(ctx, bookiepb.GroupHeader, strconv.Itoa(int(l.group)), bookiepb.ClusterHeader, "test")
	stream, err := s.client(rng, hint).Append(ctx)
	if err != nil {
		return false, ""
	}
	l.mu.Lock()
	waiting := len(l.batches) - l.acked
	first := len(l.entries(l.acked))
	for _, batch := range l.batches[l.acked:] {
		if err := stream.Send(&bookiepb.AppendRequest{Commands: testAppend(l.id, simEpochOfWriter, ledger.EntryID(first), batch...)}); err != nil {
			break // Recv says why
		}
		first += len(batch)
	}
	l.mu.Unlock()
	for {
		resp, err := stream.Recv()
		if err != nil {
			return false, ""
		}
		for _, r := range resp.GetResults() {
			if r.Code != bookiepb.Code_OK {
				if !passing(r.Code) && r.Code != bookiepb.Code_NOT_NEXT { // one before it was refused
					s.t.Errorf("append to ledger %d: %v", l.id, r)
				}
				return false, r.Leader
			}
			s.gotAck(l)
			if waiting--; waiting == 0 {
				return true, ""
			}
		}
	}
}

func (s *sim) gotAck(l *simLedger) {
	l.mu.Lock()
	n := len(l.batches[l.acked])
	l.acked++
	l.mu.Unlock()
	s.mu.Lock()
	s.acked += n
	s.mu.Unlock()
}

// finish does what the next owner of a topic does: it fences the ledger and closes it where it ends. The writer, who does
// not know of it, can add nothing then.
func (s *sim) finish(ctx context.Context, rng *rand.Rand, l *simLedger) bool {
	r := s.do(ctx, rng, l.group, ledger.Command{Op: ledger.OpFence, Ledger: l.id, Epoch: simEpochOfNext})
	if r == nil {
		return false
	}
	l.mu.Lock()
	acked, sent := len(l.entries(l.acked)), len(l.entries(len(l.batches)))
	l.last, l.fenced = ledger.EntryID(r.Last), true
	l.mu.Unlock()
	if r.Code != bookiepb.Code_OK || r.Last < int64(acked)-1 || r.Last >= int64(sent) {
		s.t.Errorf("fence of ledger %d: %v; %d entries are acknowledged, %d were sent", l.id, r, acked, sent)
	}
	late := command(testAppend(l.id, simEpochOfWriter, ledger.EntryID(r.Last)+1, "too late"))
	if r := s.do(ctx, rng, l.group, late); r == nil {
		return false
	} else if r.Code != bookiepb.Code_FENCED {
		s.t.Errorf("append to fenced ledger %d: %v", l.id, r)
	}
	end := s.do(ctx, rng, l.group, ledger.Command{Op: ledger.OpClose, Ledger: l.id, Epoch: simEpochOfNext, Last: ledger.EntryID(r.Last)})
	if end != nil && (end.Code != bookiepb.Code_OK || end.Last != r.Last) {
		s.t.Errorf("close of ledger %d at %d: %v", l.id, r.Last, end)
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	return end != nil
}

// remove deletes one of the ledgers that have ended.
func (s *sim) remove(ctx context.Context, rng *rand.Rand) bool {
	l := s.any(rng)
	l.mu.Lock()
	fit := l.ended && !l.deleting
	l.deleting = l.deleting || fit
	l.mu.Unlock()
	if !fit {
		return true
	}
	r := s.do(ctx, rng, l.group, ledger.Command{Op: ledger.OpDelete, Ledger: l.id, Epoch: simEpochOfNext})
	if r == nil {
		return false
	}
	if r.Code != bookiepb.Code_OK && r.Code != bookiepb.Code_NO_LEDGER {
		s.t.Errorf("delete of ledger %d: %v", l.id, r)
	}
	l.mu.Lock()
	l.deleted = true
	l.mu.Unlock()
	return true
}

func (s *sim) any(rng *rand.Rand) *simLedger {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledgers[rng.IntN(len(s.ledgers))]
}

// readAlways reads what is acknowledged, anywhere, at any time: it may not be had, but it may never be wrong or said to be
// absent.
func (s *sim) readAlways(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		nap(ctx, rng)
		s.mu.Lock()
		none := len(s.ledgers) == 0
		s.mu.Unlock()
		if none {
			continue
		}
		l := s.any(rng)
		l.mu.Lock()
		want := l.entries(l.acked)
		l.mu.Unlock()
		if len(want) == 0 {
			continue
		}
		first := rng.IntN(len(want))
		got, code := s.readFrom(ctx, s.client(rng, ""), l, first, len(want)-1)
		s.compare(l, want[first:], got)
		l.mu.Lock()
		gone := l.deleting
		l.mu.Unlock()
		if (code == bookiepb.Code_NO_ENTRY || code == bookiepb.Code_NO_LEDGER) && !gone {
			s.t.Errorf("ledger %d has %d acknowledged entries; from %d on: %v", l.id, len(want), first, code)
		}
	}
}

func (s *sim) compare(l *simLedger, want, got []string) {
	for i, e := range got {
		if i >= len(want) || e != want[i] {
			s.t.Errorf("ledger %d: entry %d of %d that were read is not what was written: %.40q", l.id, i, len(got), e)
			return
		}
	}
}

// readFrom reads entries until the confirmed one. UNKNOWN: the connection broke.
func (s *sim) readFrom(ctx context.Context, c bookiepb.BookieClient, l *simLedger, first, confirmed int) (out []string, code bookiepb.Code) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	stream, err := c.Read(ctx, &bookiepb.ReadRequest{
		Group: uint32(l.group), Ledger: uint64(l.id), First: int64(first), Confirmed: int64(confirmed), MaxEntries: 1 << 20, MaxBytes: 1 << 30,
	})
	if err != nil {
		return nil, bookiepb.Code_UNKNOWN
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			if err == io.EOF {
				s.t.Errorf("a read of ledger %d ended without a result", l.id)
			}
			return out, bookiepb.Code_UNKNOWN
		}
		body := m.Entries
		for range m.Count {
			var p []byte
			if p, body, err = ledger.NextEntry(body); err != nil {
				s.t.Errorf("entry of ledger %d: %v", l.id, err)
				return out, bookiepb.Code_UNKNOWN
			}
			out = append(out, string(p))
		}
		if m.Result != nil {
			return out, m.Result.Code
		}
	}
}

// check compares all replicas of all ledgers with one another and with what was written.
func (s *sim) check() {
	for _, l := range s.ledgers {
		if l.deleted {
			s.soon(fmt.Sprintf("ledger %d is gone everywhere", l.id), func() string { return s.replicas(l) }, func() bool {
				s.revive()
				return s.everywhere(l, func(_ string, _ ledger.State, exists bool) bool { return !exists })
			})
			continue
		}
		if l.deleting {
			continue // it may be gone
		}
		var states []ledger.State
		there := false
		s.soon(fmt.Sprintf("the replicas of ledger %d agree", l.id), func() string { return s.replicas(l) }, func() bool {
			s.revive()
			states = states[:0]
			return s.everywhere(l, func(_ string, st ledger.State, exists bool) bool {
				states, there = append(states, st), exists
				return st == states[0] && (exists || !l.created)
			})
		})
		if !there {
			continue
		}
		st := states[0]
		acked, sent := l.entries(l.acked), l.entries(len(l.batches))
		if int(st.Last)+1 < len(acked) || int(st.Last) >= len(sent) || l.fenced && st.Last != l.last {
			s.t.Errorf("ledger %d ends at %d; %d acknowledged, %d sent, fenced %t at %d", l.id, st.Last, len(acked), len(sent), l.fenced, l.last)
			continue
		}
		if st.Last == ledger.NoEntry {
			continue
		}
		said := ""
		s.soon(fmt.Sprintf("all of ledger %d can be read everywhere", l.id), func() string { return said + "\n" + s.replicas(l) }, func() bool {
			s.revive()
			return s.everywhere(l, func(id string, _ ledger.State, _ bool) bool {
				got, code := s.readFrom(s.t.Context(), s.client(nil, simAddr(id).String()), l, 0, int(st.Last))
				s.compare(l, sent[:st.Last+1], got)
				said = fmt.Sprintf("%s said %v after %d entries of %d", id, code, len(got), st.Last+1)
				return code == bookiepb.Code_OK && len(got) == int(st.Last)+1
			})
		})
	}
}

// replicas describes what there is of a ledger.
func (s *sim) replicas(l *simLedger) string {
	var b strings.Builder
	fmt.Fprintf(&b, "group %d, %d batches acknowledged of %d, last %d, fenced %t", l.group, l.acked, len(l.batches), l.last, l.fenced)
	for _, id := range s.ids {
		if g := s.nodes[id].groups.get(l.group); g != nil {
			st, ok := g.fsm.state(l.id)
			fmt.Fprintf(&b, "\n%s: %t %+v; applied %d, leader %q, record %+v", id, ok, st, g.fsm.applied.Load(), g.leader(), *g.record.Load())
			got, code := s.readFrom(s.t.Context(), s.client(nil, simAddr(id).String()), l, 0, int(st.Last))
			fmt.Fprintf(&b, "; reads say %v, %d entries, serves %t, log [%d, %d], raft applied %d of %d, missing %d", code, len(got), g.fill.serves(),
				g.store.group.FirstIndex(), g.store.group.LastIndex(), g.raft.AppliedIndex(), g.raft.LastIndex(), g.fill.missing.Load())
			fmt.Fprintf(&b, "; %s in term %d, silent %t, health %v", g.raft.State(), g.raft.CurrentTerm(), g.transport.silent.Load(), g.health.err())
			lacks, _, err := g.lacks()
			at, ferr := g.fsm.find(l.id, 0)
			_, berr := g.store.body(at.run)
			fmt.Fprintf(&b, "; lacks %d (%v), first run %+v (%v): %v", len(lacks), err, at.run, ferr, berr)
		}
	}
	return b.String()
}

// everywhere asks f of all replicas of a ledger. There must be as many as there should be.
func (s *sim) everywhere(l *simLedger, f func(id string, st ledger.State, exists bool) bool) bool {
	found := 0
	for _, id := range s.ids {
		g := s.nodes[id].groups.get(l.group)
		if g == nil {
			continue
		}
		found++
		if st, ok := g.fsm.state(l.id); !f(id, st, ok) {
			return false
		}
	}
	return found == 3
}
