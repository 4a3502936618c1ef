package bookieclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// Create makes an empty ledger with a fresh id in a healthy group, not in avoid unless there is no better one (0:
// avoid none). Ids come one by one from the metadata, so that they grow over all brokers.
func (c *Client) Create(epoch ledger.Epoch, avoid ledger.GroupID, done func(ledger.Ref, error)) {
	c.async(func() {
		ref, err := c.create(epoch, avoid)
		if err == nil {
			c.metrics.created()
			if s := c.stream(ref.Group); s != nil {
				s.opened(ref.ID)
			}
		}
		done(ref, c.orShutdown(err))
	})
}

func (c *Client) create(epoch ledger.Epoch, avoid ledger.GroupID) (ledger.Ref, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
	defer cancel()
	var id ledger.ID
	last := ledger.ErrNoBookies
	for attempt := 0; c.pause(ctx, attempt); attempt++ {
		if id == 0 {
			fresh, err := c.nextID(ctx)
			if err != nil && ctx.Err() != nil && errors.Is(last, ledger.ErrReadOnly) {
				break
			}
			if err != nil {
				return ledger.Ref{}, err
			}
			id = fresh
		}
		groups := c.place(id, avoid)
		if len(groups) == 0 {
			c.pollOnce()
			continue
		}
		ref := ledger.Ref{ID: id, Group: groups[attempt%len(groups)]}
		err := c.createIn(ctx, ref, epoch)
		if err == nil {
			return ref, nil
		}
		if ctx.Err() == nil || !errors.Is(last, ledger.ErrReadOnly) { // the end cuts an attempt short: that is not why
			last = err
		}
		c.log.Warn("cannot create a ledger", "group", ref.Group, "error", err)
		if errors.Is(err, ledger.ErrUnknown) || errors.Is(err, ledger.ErrExists) {
			// It may exist there. An id lives in one group only: leave this one behind, and take it away when the group
			// is back.
			c.Delete(ref, func(error) {})
			id = 0
		}
	}
	return ledger.Ref{}, fmt.Errorf("%w: %w", ledger.ErrNoBookies, last)
}

// createIn gives one group a short time, because another may be well.
func (c *Client) createIn(ctx context.Context, ref ledger.Ref, epoch ledger.Epoch) error {
	ctx, cancel := context.WithTimeout(ctx, min(c.opts.TryTimeout, time.Second))
	defer cancel()
	_, err := c.execute(ctx, ref, &ledger.Command{Op: ledger.OpCreate, Ledger: ref.ID, Epoch: epoch})
	return err
}

// nextID takes a ledger id. Whether a try without answer took one does not matter: ids may be skipped.
func (c *Client) nextID(ctx context.Context) (ledger.ID, error) {
	txn := metadata.Txn{}.Then(metadata.Add(metadata.LedgerCounterKey, 1))
	out, err := c.commit(ctx, txn, true)
	if err == nil {
		err = out.Err
	}
	if err != nil {
		return 0, fmt.Errorf("next ledger id: %w", err)
	}
	if len(out.Versions) != 1 || out.Versions[0] <= 0 {
		return 0, fmt.Errorf("next ledger id: %w: counter is %v", errProtocol, out.Versions)
	}
	return ledger.ID(out.Versions[0]), nil
}

// Fence raises the epoch of a ledger and returns its last entry. It may be repeated.
func (c *Client) Fence(ref ledger.Ref, epoch ledger.Epoch, done func(ledger.EntryID, error)) {
	c.async(func() {
		last, err := c.executeBounded(ref, &ledger.Command{Op: ledger.OpFence, Ledger: ref.ID, Epoch: epoch})
		done(last, c.orShutdown(err))
	})
}

// Close closes a ledger at last; the client itself is ended by Shutdown. It is retried until it is answered or the
// client is shut down. It carries no epoch: the caller has decided on last by a compare-and-set of the topic's list of
// ledgers, so that there is one such decision.
func (c *Client) Close(ref ledger.Ref, last ledger.EntryID, done func(error)) {
	c.async(func() {
		cmd := &ledger.Command{Op: ledger.OpClose, Ledger: ref.ID, Last: last}
		_, err := c.execute(c.ctx, ref, cmd)
		c.ended(ref)
		done(c.orShutdown(err))
	})
}

// Delete removes a ledger. It may be repeated.
func (c *Client) Delete(ref ledger.Ref, done func(error)) {
	c.async(func() {
		_, err := c.executeBounded(ref, &ledger.Command{Op: ledger.OpDelete, Ledger: ref.ID})
		done(c.orShutdown(err))
	})
}

func (c *Client) executeBounded(ref ledger.Ref, cmd *ledger.Command) (ledger.EntryID, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
	defer cancel()
	return c.execute(ctx, ref, cmd)
}

// execute has the group's leader carry out a command until it is settled or ctx ends. All commands that come here may
// be repeated: the machine takes the second one as a retry.
func (c *Client) execute(ctx context.Context, ref ledger.Ref, cmd *ledger.Command) (ledger.EntryID, error) {
	req := &bookiepb.ExecuteRequest{Group: uint32(ref.Group), Command: cmd.AppendTo(nil)}
	last, unknown := ledger.ErrNotLeader, false
	for attempt := 0; c.pause(ctx, attempt); attempt++ {
		address := c.topology.pick(ref.Group, attempt)
		r, err := c.executeAt(ctx, address, req)
		if err != nil {
			c.topology.notLeader(ref.Group, address)
			unknown = unknown || !errors.Is(err, errNotSent)
			last = err
			continue
		}
		switch v := outcomeOf(r.Code).verdict; {
		case v == settled:
			c.topology.setLeader(ref.Group, address)
			return ledger.EntryID(r.Last), describe(r)
		case r.Code == bookiepb.Code_READ_ONLY && cmd.Op == ledger.OpCreate && !unknown:
			return ledger.NoEntry, fmt.Errorf("%s of %v: %w", cmd.Op, ref, describe(r)) // another group may have room
		case v == notHere:
			c.topology.notLeader(ref.Group, address)
			c.topology.setLeader(ref.Group, r.Leader)
		case v == maybe:
			unknown = true
		}
		last = describe(r)
	}
	if unknown {
		return ledger.NoEntry, fmt.Errorf("%w: %s of %v: %w", ledger.ErrUnknown, cmd.Op, ref, last)
	}
	return ledger.NoEntry, fmt.Errorf("%s of %v: %w", cmd.Op, ref, last)
}

func (c *Client) executeAt(ctx context.Context, address string, req *bookiepb.ExecuteRequest) (bookiepb.PlainResult, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.TryTimeout)
	defer cancel()
	conn, err := c.conns.ready(ctx, address, callLane)
	if err != nil {
		return bookiepb.PlainResult{}, err
	}
	resp, err := bookiepb.NewBookieClient(conn).Execute(ctx, req)
	if err != nil {
		return bookiepb.PlainResult{}, transportError(address, err)
	}
	return resp.GetResult().Plain(), nil
}

// ended takes a ledger off the load of its group.
func (c *Client) ended(ref ledger.Ref) {
	if s := c.streams.get(ref.Group); s != nil {
		s.closed(ref.ID)
	}
}

// orShutdown names the reason of whatever failed because the client was closed.
func (c *Client) orShutdown(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ledger.ErrShutdown, err)
	}
	return err
}
