package bookieclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// Read returns entries from first on: at least one, at most max, none beyond confirmed. Any replica may serve them; on
// trouble the next one is asked for what is still missing. It gives up after CallTimeout: with what it has, else with
// ledger.ErrUnreadable when a replica said that it cannot read the entry, else ledger.ErrUnknown.
func (c *Client) Read(ref ledger.Ref, first, confirmed ledger.EntryID, max ledger.Limits, done func([]ledger.Entry, error)) {
	c.async(func() {
		entries, err := c.read(ref, first, confirmed, max)
		c.metrics.read()
		done(entries, c.orShutdown(err))
	})
}

// reading is the state of one Read over its tries.
type reading struct {
	ref       ledger.Ref
	next      ledger.EntryID
	confirmed ledger.EntryID
	max       ledger.Limits
	entries   []ledger.Entry

	absent     map[string]error // who said that there is no such entry or ledger
	unreadable bool
}

func (c *Client) read(ref ledger.Ref, first, confirmed ledger.EntryID, max ledger.Limits) ([]ledger.Entry, error) {
	if first < 0 || first > confirmed {
		return nil, fmt.Errorf("%w: read of %v from %d, confirmed up to %d", ledger.ErrBadCommand, ref, first, confirmed)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
	defer cancel()
	r := &reading{ref: ref, next: first, confirmed: confirmed, max: max, absent: map[string]error{}}
	r.max.Entries = clamp(r.max.Entries)
	r.max.Bytes = clamp(r.max.Bytes)
	var last error
	for attempt := 0; c.pause(ctx, attempt); attempt++ {
		replicas := c.topology.replicas(ref.Group)
		address := replicas[(uint64(ref.ID)+uint64(attempt))%uint64(len(replicas))]
		err := c.readFrom(ctx, address, r)
		if len(r.entries) > 0 {
			return r.entries, nil // a part is an answer; what stopped it will come up again
		}
		if final := r.judge(address, err, len(replicas)); final != nil {
			return nil, final
		}
		last = err
	}
	if r.unreadable {
		return nil, fmt.Errorf("%w: entry %d of %v: %w", ledger.ErrUnreadable, first, ref, last)
	}
	return nil, fmt.Errorf("%w: read of entry %d of %v: %w", ledger.ErrUnknown, first, ref, last)
}

func clamp(n int) int { return min(max(n, 1), math.MaxInt32) }

// judge returns an error when asking on is of no use. That something does not exist contradicts the caller, who knows
// that the entry was confirmed; so one more replica has to say so before it is believed.
func (r *reading) judge(address string, err error, replicas int) error {
	switch {
	case errors.Is(err, ledger.ErrNoEntry), errors.Is(err, ledger.ErrNoLedger):
		r.absent[address] = err
		if len(r.absent) >= min(2, replicas) {
			return err
		}
	case errors.Is(err, ledger.ErrBadCommand):
		return err
	case errors.Is(err, ledger.ErrUnreadable):
		r.unreadable = true
	}
	return nil
}

// readFrom asks one replica and appends what it gives.
func (c *Client) readFrom(ctx context.Context, address string, r *reading) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.TryTimeout)
	defer cancel()
	conn, err := c.conns.ready(ctx, address, callLane)
	if err != nil {
		return err
	}
	rpc, err := bookiepb.NewBookieClient(conn).Read(ctx, &bookiepb.ReadRequest{
		Group: uint32(r.ref.Group), Ledger: uint64(r.ref.ID), First: int64(r.next), Confirmed: int64(r.confirmed),
		MaxEntries: uint32(r.max.Entries), MaxBytes: uint32(r.max.Bytes),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	for {
		resp, err := rpc.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: %s ended a read without a result", errProtocol, address)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		if err := r.take(resp); err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		if resp.Result == nil {
			continue
		}
		if err := describe(resp.Result.Plain()); err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		if len(r.entries) == 0 {
			return fmt.Errorf("%w: %s read nothing and gave no reason", errProtocol, address)
		}
		return nil
	}
}

// take checks and keeps the entries of one message. They alias its buffer, which belongs to them alone.
func (r *reading) take(resp *bookiepb.ReadResponse) error {
	if resp.Count == 0 && len(resp.Entries) == 0 {
		return nil
	}
	if ledger.EntryID(resp.First) != r.next {
		return fmt.Errorf("%w: entries from %d, expected %d", errProtocol, resp.First, r.next)
	}
	body := resp.Entries
	for range resp.Count {
		payload, rest, err := ledger.NextEntry(body)
		if err != nil {
			return err
		}
		if r.next > r.confirmed || len(r.entries) >= r.max.Entries {
			return fmt.Errorf("%w: more entries than asked for", errProtocol)
		}
		r.entries = append(r.entries, ledger.Entry{
			Position: ledger.Position{Ledger: r.ref.ID, Entry: r.next},
			Payload:  ledger.Payload{Data: payload},
		})
		r.next++
		body = rest
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d bytes after the last entry", errProtocol, len(body))
	}
	return nil
}
