package ledgers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// Found is what a check has looked at.
type Found struct {
	Ledgers, Deleted int
	Entries          int64 // at all replicas
}

// replica is a bookie that is asked by itself.
type replica struct {
	id     string
	client bookiepb.BookieClient
	groups map[ledger.GroupID]*bookiepb.GroupStatus
}

// CheckReplicas reads every ledger at each bookie that holds its group, after Finish. It waits until replicas have
// caught up, at most as long as ctx. Each group must have as many replicas as are wanted.
func (g *Log) CheckReplicas(ctx context.Context, addresses []string, wanted int) (Found, error) {
	var found Found
	replicas, closeAll, err := dial(addresses)
	defer closeAll()
	if err != nil {
		return found, err
	}
	if err := settled(ctx, replicas, wanted); err != nil {
		return found, err
	}
	all, expected := g.Ledgers(), int64(0)
	for _, l := range all {
		if l.deleted {
			found.Deleted++
		} else {
			found.Ledgers++
			expected += int64(l.last+1) * int64(wanted)
		}
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, r := range replicas {
		work.Go(func() {
			n := r.check(ctx, g, all)
			mu.Lock()
			defer mu.Unlock()
			found.Entries += n
		})
	}
	work.Wait()
	err = g.Err()
	if err == nil && found.Entries != expected {
		err = fmt.Errorf("%d copies of entries were read, there should be %d", found.Entries, expected)
	}
	return found, err
}

func dial(addresses []string) (out []*replica, closeAll func(), err error) {
	var conns []*grpc.ClientConn
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for _, a := range addresses {
		conn, err := grpc.NewClient("passthrough:///"+a, append(bookiepb.ClientOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return nil, closeAll, err
		}
		conns = append(conns, conn)
		out = append(out, &replica{id: a, client: bookiepb.NewBookieClient(conn)})
	}
	return out, closeAll, nil
}

// settled waits until the replicas of all groups are complete and equally far.
func settled(ctx context.Context, replicas []*replica, wanted int) error {
	for {
		err := status(ctx, replicas)
		if err == nil {
			if err = even(replicas, wanted); err == nil {
				return nil
			}
		}
		sleep(ctx, 200*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("replicas do not settle: %w", err)
		}
	}
}

func status(ctx context.Context, replicas []*replica) error {
	for _, r := range replicas {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		st, err := r.client.Status(call, &bookiepb.StatusRequest{})
		cancel()
		if err != nil {
			return fmt.Errorf("status of %s: %w", r.id, err)
		}
		r.id = st.GetBookieId()
		r.groups = map[ledger.GroupID]*bookiepb.GroupStatus{}
		for _, g := range st.GetGroups() {
			r.groups[ledger.GroupID(g.GetGroup())] = g
		}
	}
	return nil
}

// even says what is not settled.
func even(replicas []*replica, wanted int) error {
	byID := map[string]*replica{}
	for _, r := range replicas {
		byID[r.id] = r
	}
	led := map[ledger.GroupID]*bookiepb.GroupStatus{}
	for _, r := range replicas {
		for id, g := range r.groups {
			if g.GetReady() {
				led[id] = g
			}
		}
	}
	for _, r := range replicas {
		for id, g := range r.groups {
			lead := led[id]
			switch {
			case lead == nil:
				return fmt.Errorf("group %d has no leader", id)
			case len(lead.GetReplicas()) != wanted:
				return fmt.Errorf("group %d has replicas %v, %d are wanted", id, lead.GetReplicas(), wanted)
			case !slices.Contains(lead.GetReplicas(), r.id):
				return fmt.Errorf("%s has group %d, which has replicas %v", r.id, id, lead.GetReplicas())
			case g.GetFilling(), g.GetMissing() > 0:
				return fmt.Errorf("%s lacks %d records of group %d", r.id, g.GetMissing(), id)
			case g.GetApplied() < lead.GetApplied():
				return fmt.Errorf("%s has applied %d of %d of group %d", r.id, g.GetApplied(), lead.GetApplied(), id)
			}
			for _, other := range lead.GetReplicas() {
				if byID[other] == nil || byID[other].groups[id] == nil {
					return fmt.Errorf("%s has no group %d, which has replicas %v", other, id, lead.GetReplicas())
				}
			}
		}
	}
	return nil
}

// check reads what is and what must not be at one replica.
func (r *replica) check(ctx context.Context, g *Log, all []*Ledger) (entries int64) {
	for _, l := range all {
		if r.groups[l.Group] == nil {
			continue
		}
		if l.deleted {
			g.fault(r.checkAbsent(ctx, l, 0, ledger.ErrNoLedger, false))
			continue
		}
		for next := ledger.EntryID(0); next <= l.last; {
			n, err := r.checkSome(ctx, l, next)
			if err != nil {
				g.fault(fmt.Errorf("%s: %v, closed at %d, %d acknowledged, from entry %d: %w", r.id, l.Ref, l.last, l.acked, next, err))
				break
			}
			next += ledger.EntryID(n)
			entries += int64(n)
		}
		g.fault(r.checkAbsent(ctx, l, l.last+1, ledger.ErrNoEntry, true))
	}
	return entries
}

// checkAbsent: only the leader can prove that a ledger is not there, and the lead may move at any time, so a replica may also
// say that it cannot tell. The directories tell.
func (r *replica) checkAbsent(ctx context.Context, l *Ledger, first ledger.EntryID, want error, proves bool) error {
	n, err := r.read(ctx, l, first, math.MaxInt64, func(ledger.EntryID, []byte) error { return nil })
	switch {
	case n > 0:
		return fmt.Errorf("%s: %v has entry %d, deleted %v, closed at %d", r.id, l.Ref, first, l.deleted, l.last)
	case errors.Is(err, want), !proves && errors.Is(err, ledger.ErrBehind):
		return nil
	}
	return fmt.Errorf("%s: entry %d of %v, deleted %v, closed at %d: %w, expected: %w", r.id, first, l.Ref, l.deleted, l.last, err, want)
}

// checkSome reads at least one entry and compares.
func (r *replica) checkSome(ctx context.Context, l *Ledger, first ledger.EntryID) (int, error) {
	return r.read(ctx, l, first, l.last, func(e ledger.EntryID, payload []byte) error { return l.stamp(e).compare(payload) })
}

// read is one Read at one bookie. An error means that nothing was read, or that an entry is wrong.
func (r *replica) read(ctx context.Context, l *Ledger, first, confirmed ledger.EntryID, each func(ledger.EntryID, []byte) error) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	stream, err := r.client.Read(ctx, &bookiepb.ReadRequest{
		Group: uint32(l.Group), Ledger: uint64(l.ID), First: int64(first), Confirmed: int64(confirmed), MaxEntries: 10000, MaxBytes: 8 << 20,
	})
	if err != nil {
		return 0, err
	}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return n, errors.New("a read without a result")
		}
		if err != nil {
			return n, err
		}
		rest := resp.GetEntries()
		for range resp.GetCount() {
			var payload []byte
			if payload, rest, err = ledger.NextEntry(rest); err == nil {
				err = each(first+ledger.EntryID(n), payload)
			}
			if err != nil {
				return n, err
			}
			n++
		}
		if resp.GetResult() != nil && n == 0 {
			return 0, said(resp.GetResult())
		}
		if resp.GetResult() != nil {
			return n, nil
		}
	}
}

// said is the error of a result.
func said(r *bookiepb.Result) error {
	err := map[bookiepb.Code]error{
		bookiepb.Code_OK: errors.New("nothing, without a reason"), bookiepb.Code_NO_ENTRY: ledger.ErrNoEntry,
		bookiepb.Code_NO_LEDGER: ledger.ErrNoLedger, bookiepb.Code_BEHIND: ledger.ErrBehind, bookiepb.Code_UNREADABLE: ledger.ErrUnreadable,
	}[r.GetCode()]
	if err == nil {
		return fmt.Errorf("%v: %s", r.GetCode(), r.GetMessage())
	}
	return fmt.Errorf("%w: %s", err, r.GetMessage())
}
