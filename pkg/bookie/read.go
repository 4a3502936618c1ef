package bookie

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// readChunk is how many bytes of entries one message of a read carries, unless a single entry is larger.
const readChunk = 1 << 20

// reading is one read of entries under way.
type reading struct {
	group     *group
	id        ledger.ID
	next      ledger.EntryID // first entry not sent yet
	confirmed ledger.EntryID // last entry that may be sent
	entries   int            // how many more
	bytes     int            // how many more payload bytes
	served    bool           // at least one entry was sent
	near      span           // what was read last
}

// Read implements bookiepb.BookieServer. Any replica answers, for what it has applied. What it says about an entry
// that it cannot serve is graded:
//
//	NO_LEDGER, NO_ENTRY  proved by the log: by a leader that a quorum has just confirmed, or by the entry that closed
//	                     the ledger, after which nothing can come
//	BEHIND               this replica cannot tell yet
//	UNREADABLE           the log says that the entry exists; its bytes here are damaged
func (s *bookieService) Read(req *bookiepb.ReadRequest, stream grpc.ServerStreamingServer[bookiepb.ReadResponse]) error {
	id := ledger.GroupID(req.GetGroup())
	g := s.b.groups.get(id)
	if g == nil {
		return stream.SendMsg(&bookiepb.ReadBody{Result: noGroup(id)})
	}
	r := &reading{
		group: g, id: ledger.ID(req.GetLedger()), next: ledger.EntryID(req.GetFirst()),
		confirmed: ledger.EntryID(req.GetConfirmed()), entries: int(req.GetMaxEntries()), bytes: int(req.GetMaxBytes()),
	}
	if r.next < 0 || r.entries < 1 || r.next > r.confirmed {
		err := fmt.Errorf("%w: read of %d entries from %d, confirmed %d", ledger.ErrBadCommand, r.entries, r.next, r.confirmed)
		return stream.SendMsg(&bookiepb.ReadBody{Result: failure(err, "")})
	}
	sent := 0
	err := r.run(stream.Context(), func(b *bookiepb.ReadBody) error {
		sent += len(b.Entries)
		return stream.SendMsg(b)
	})
	s.b.metrics.read(sent)
	var broken sendError
	if errors.As(err, &broken) {
		return broken.error
	}
	return stream.SendMsg(&bookiepb.ReadBody{Result: r.result(err)})
}

// sendError is a broken stream.
type sendError struct{ error }

// run sends chunks until a limit, the confirmed entry, or an error. An error after the first entry is dropped: the
// reader has something, and meets it again when it asks on.
func (r *reading) run(ctx context.Context, send func(*bookiepb.ReadBody) error) error {
	for r.next <= r.confirmed && r.more() {
		body, limit, err := r.find(ctx)
		for err == nil && r.next <= limit && r.more() {
			var chunk []byte
			var n int
			chunk, n, body, err = r.cut(body, limit)
			if n == 0 {
				break // damage, or the next entry is over the limit
			}
			if serr := send(&bookiepb.ReadBody{First: int64(r.next), Count: uint32(n), Entries: chunk}); serr != nil {
				return sendError{serr}
			}
			r.next += ledger.EntryID(n)
			r.served = true
		}
		switch {
		case !r.served:
			return err
		case err != nil || r.next <= limit:
			return nil //nolint:nilerr // see above
		}
	}
	return nil
}

// more says whether the limits of the request leave room. The first entry is always served.
func (r *reading) more() bool { return !r.served || r.entries > 0 && r.bytes > 0 }

// find returns the framed entries of a run from the next entry on, and the last of them that may be sent.
func (r *reading) find(ctx context.Context) (body []byte, limit ledger.EntryID, err error) {
	at, err := r.group.fsm.find(r.id, r.next)
	if err != nil {
		r.group.indexDamaged(err)
		return nil, 0, fmt.Errorf("%w: %w", ledger.ErrUnreadable, err)
	}
	if !at.found {
		return nil, 0, r.absent(ctx, at)
	}
	run := at.run
	if r.group.fill.doubt.withholds(r.id) {
		return nil, 0, fmt.Errorf("%w: the entries of ledger %d here are not yet known to be the right ones", ledger.ErrUnreadable, r.id)
	}
	if body, err = r.body(run); err != nil {
		if errors.Is(err, journal.ErrCorrupt) {
			r.group.repair(run.index)
		}
		return nil, 0, fmt.Errorf("%w: %w", ledger.ErrUnreadable, err)
	}
	for i := run.first; i < r.next; i++ {
		if _, body, err = ledger.NextEntry(body); err != nil {
			return nil, 0, err
		}
	}
	return body, min(r.confirmed, run.end()), nil
}

// span is a part of a record of the log.
type span struct {
	index  uint64
	offset uint32
	data   []byte
}

func (s *span) body(at run) ([]byte, bool) {
	if at.index != s.index || at.offset < s.offset || uint64(at.offset-s.offset)+uint64(at.length) > uint64(len(s.data)) {
		return nil, false
	}
	from := at.offset - s.offset
	return s.data[from : from+at.length], true
}

// body returns the framed entries of a run. The journal reads and checks all of a record for any piece of it, and a record
// may have tens of a ledger's runs: those that come next are read together with this one.
func (r *reading) body(at run) ([]byte, error) {
	if b, ok := r.near.body(at); ok {
		return b, nil
	}
	wide := at
	if r.near.index != at.index || len(r.near.data) > 0 {
		wide.length = r.reach(at)
	}
	b, err := r.group.store.body(wide)
	if err != nil && wide != at { // perhaps only pieces are left of the record
		r.near = span{index: at.index}
		return r.group.store.body(at)
	}
	if err != nil {
		return nil, err
	}
	r.near = span{at.index, at.offset, b}
	return b[:at.length], nil
}

// reach is how many bytes of the record, from a run on, hold what the request wants of it, up to about a message.
func (r *reading) reach(at run) uint32 {
	end := at.offset + at.length
	want := uint32(min(r.bytes, readChunk))
	for last, entries := at.end(), int(at.count); last < r.confirmed && entries < r.entries && end-at.offset < want; {
		next, err := r.group.fsm.find(r.id, last+1)
		if err != nil || !next.found || next.run.index != at.index || next.run.offset < end {
			break
		}
		end = next.run.offset + next.run.length
		last = next.run.end()
		entries += int(next.run.count)
	}
	return end - at.offset
}

// cut takes what one message may carry off a body. Every checksum has been compared when it returns. n is 0 when the
// next entry is damaged, or when it would exceed a limit.
func (r *reading) cut(body []byte, limit ledger.EntryID) (chunk []byte, n int, rest []byte, err error) {
	rest = body
	for r.next+ledger.EntryID(n) <= limit && r.entries > 0 {
		payload, tail, err := ledger.NextEntry(rest)
		if err != nil {
			return body[:len(body)-len(rest)], n, nil, err
		}
		if first := !r.served && n == 0; !first && len(payload) > r.bytes {
			r.bytes = 0
			break
		}
		if n > 0 && len(body)-len(tail) > readChunk {
			break
		}
		r.bytes -= len(payload)
		r.entries--
		n++
		rest = tail
	}
	return body[:len(body)-len(rest)], n, rest, nil
}

// absent says why there is no place for the next entry.
func (r *reading) absent(ctx context.Context, at located) error {
	if at.exists && at.Closed && r.next > at.Last {
		return fmt.Errorf("%w: ledger %d is closed at %d", ledger.ErrNoEntry, r.id, at.Last)
	}
	// Everything answered to anybody before this request began is applied on a leader that is confirmed after it
	// began: then the state, looked at again, is the truth.
	if r.group.verify(ctx) != nil {
		return fmt.Errorf("%w: applied up to %d", ledger.ErrBehind, r.group.fsm.applied.Load())
	}
	at, err := r.group.fsm.find(r.id, r.next)
	switch {
	case err != nil:
		r.group.indexDamaged(err)
		return fmt.Errorf("%w: %w", ledger.ErrUnreadable, err)
	case !at.exists:
		return fmt.Errorf("%w: %d", ledger.ErrNoLedger, r.id)
	case at.found:
		return ledger.ErrBehind // it came meanwhile
	case r.next <= at.Last:
		return fmt.Errorf("%w: entry %d is not in the index", ledger.ErrUnreadable, r.next)
	}
	return fmt.Errorf("%w: ledger %d ends at %d", ledger.ErrNoEntry, r.id, at.Last)
}

func (r *reading) result(err error) *bookiepb.Result {
	out := &bookiepb.Result{Last: int64(ledger.NoEntry)}
	if err != nil {
		out = failure(err, r.group.hint())
	}
	out.Ledger = uint64(r.id)
	if st, ok := r.group.fsm.state(r.id); ok {
		out.Last, out.Epoch = int64(st.Last), uint64(st.Epoch)
	}
	return out
}
