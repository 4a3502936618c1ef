package bookieclient

import (
	"context"
	"errors"
	"fmt"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// Get reads a key; version 0 means absent.
func (c *Client) Get(key string, done func(metadata.Item, error)) {
	c.async(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
		defer cancel()
		it, err := c.get(ctx, key)
		done(it, c.orShutdown(err))
	})
}

// List reads all items whose keys start with prefix, in order of their keys.
func (c *Client) List(prefix string, done func([]metadata.Item, error)) {
	c.async(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
		defer cancel()
		items, err := c.list(ctx, prefix)
		done(items, c.orShutdown(err))
	})
}

// Commit applies a transaction. A refusal (metadata.ErrBadVersion, ErrBadTxn, ErrTooLarge) is in Outcome.Err with a nil
// error. An error means that the outcome is unknown, ledger.ErrUnknown, or that nothing was done.
func (c *Client) Commit(txn metadata.Txn, done func(metadata.Outcome, error)) {
	c.async(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
		defer cancel()
		out, err := c.commit(ctx, txn, guardsItself(&txn))
		done(out, c.orShutdown(err))
	})
}

// GetSync is Get for callers that may block. It ends with ctx, or after CallTimeout.
func (c *Client) GetSync(ctx context.Context, key string) (metadata.Item, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	it, err := c.get(ctx, key)
	return it, c.orShutdown(err)
}

// ListSync is List for callers that may block.
func (c *Client) ListSync(ctx context.Context, prefix string) ([]metadata.Item, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	items, err := c.list(ctx, prefix)
	return items, c.orShutdown(err)
}

// CommitSync is Commit for callers that may block.
func (c *Client) CommitSync(ctx context.Context, txn metadata.Txn) (metadata.Outcome, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	out, err := c.commit(ctx, txn, guardsItself(&txn))
	return out, c.orShutdown(err)
}

// within bounds a blocking call by its caller's context, the client's life and CallTimeout.
func (c *Client) within(caller context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.CallTimeout)
	stop := context.AfterFunc(caller, cancel)
	return ctx, func() { stop(); cancel() }
}

func (c *Client) get(ctx context.Context, key string) (metadata.Item, error) {
	var it metadata.Item
	err := c.askLeader(ctx, true, func(ctx context.Context, m bookiepb.MetadataClient) (*bookiepb.Result, error) {
		resp, err := m.Get(ctx, &bookiepb.GetRequest{Key: key})
		it = item(resp.GetItem())
		it.Key = key
		return resp.GetResult(), err
	})
	if err != nil {
		return metadata.Item{}, fmt.Errorf("get %s: %w", key, err)
	}
	return it, nil
}

func (c *Client) list(ctx context.Context, prefix string) ([]metadata.Item, error) {
	var items []metadata.Item
	for after, more := "", true; more; {
		var page *bookiepb.ListResponse
		err := c.askLeader(ctx, true, func(ctx context.Context, m bookiepb.MetadataClient) (_ *bookiepb.Result, err error) {
			page, err = m.List(ctx, &bookiepb.ListRequest{Prefix: prefix, After: after})
			return page.GetResult(), err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, it := range page.Items {
			items = append(items, item(it))
		}
		if more = page.More; more {
			if len(page.Items) == 0 || page.Items[len(page.Items)-1].Key <= after {
				return nil, fmt.Errorf("list %s: %w: a page that leads nowhere", prefix, errProtocol)
			}
			after = page.Items[len(page.Items)-1].Key
		}
	}
	return items, nil
}

// commit sends a transaction. repeatable says that it may be sent again though an earlier try may have been applied.
func (c *Client) commit(ctx context.Context, txn metadata.Txn, repeatable bool) (metadata.Outcome, error) {
	if err := txn.Validate(); err != nil {
		return metadata.Outcome{Err: err, Failed: -1}, nil //nolint:nilerr // it travels in the outcome: nothing was sent
	}
	req := &bookiepb.CommitRequest{Txn: txn.Encode()}
	var resp *bookiepb.CommitResponse
	tries := 0 // that may have been applied
	err := c.askLeader(ctx, repeatable, func(ctx context.Context, m bookiepb.MetadataClient) (_ *bookiepb.Result, err error) {
		resp, err = m.Commit(ctx, req)
		if err != nil || outcomeOf(resp.GetResult().GetCode()).verdict == maybe {
			tries++
		}
		return resp.GetResult(), err
	})
	switch {
	case err == nil:
		return metadata.Outcome{Failed: -1, Versions: resp.Versions, Revision: resp.Revision}, nil
	case errors.Is(err, metadata.ErrBadVersion) && tries == 0:
		return metadata.Outcome{Err: err, Failed: int(resp.Failed), Revision: resp.Revision}, nil
	case errors.Is(err, metadata.ErrBadVersion):
		// Either another's write, or our own earlier try, has moved the version: only the caller can tell, by reading.
		return metadata.Outcome{}, fmt.Errorf("%w: commit: %w", ledger.ErrUnknown, err)
	case errors.Is(err, ledger.ErrBadCommand):
		return metadata.Outcome{Err: fmt.Errorf("%w: %w", metadata.ErrBadTxn, err), Failed: -1}, nil
	}
	return metadata.Outcome{}, fmt.Errorf("commit: %w", err)
}

// guardsItself reports whether a transaction can be sent again after an outcome that is unknown: it writes a key on
// whose version it is conditional. If the first try was applied, that version is gone for ever (versions never repeat),
// so the second can only fail, and then the outcome is reported as unknown; if the second succeeds, the first was not
// applied and never will be. A condition on absence guards too, as long as nobody deletes the key in between; a delayed
// first try would then be applied late, as it may be without any second one.
func guardsItself(txn *metadata.Txn) bool {
	for _, cond := range txn.Conditions {
		for _, op := range txn.Ops {
			if op.Key == cond.Key && (op.Kind != metadata.OpDelete || cond.Version != 0) {
				return true
			}
		}
	}
	return false
}

type leaderCall func(ctx context.Context, m bookiepb.MetadataClient) (*bookiepb.Result, error)

// askLeader makes a call at the leader of the metadata group until it is settled or ctx ends. What is not repeatable
// is given up with ledger.ErrUnknown as soon as a try may have been carried out.
func (c *Client) askLeader(ctx context.Context, repeatable bool, call leaderCall) error {
	last, unknown := ledger.ErrNotLeader, false
	for attempt := 0; c.pause(ctx, attempt); attempt++ {
		address := c.topology.pick(ledger.MetadataGroup, attempt)
		r, err := c.askAt(ctx, address, call)
		if err != nil {
			c.topology.notLeader(ledger.MetadataGroup, address)
			last = err
			if !errors.Is(err, errNotSent) {
				unknown = true
			}
		} else {
			plain := r.Plain()
			switch outcomeOf(plain.Code).verdict {
			case settled:
				c.topology.setLeader(ledger.MetadataGroup, address)
				return describe(plain)
			case notHere:
				c.topology.notLeader(ledger.MetadataGroup, address)
				c.topology.setLeader(ledger.MetadataGroup, plain.Leader)
			case maybe:
				unknown = true
			}
			last = describe(plain)
		}
		if unknown && !repeatable {
			break
		}
	}
	if unknown {
		return fmt.Errorf("%w: %w", ledger.ErrUnknown, last)
	}
	return last
}

func (c *Client) askAt(ctx context.Context, address string, call leaderCall) (*bookiepb.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.TryTimeout)
	defer cancel()
	conn, err := c.conns.ready(ctx, address, callLane)
	if err != nil {
		return nil, err
	}
	r, err := call(ctx, bookiepb.NewMetadataClient(conn))
	if err != nil {
		return nil, transportError(address, err)
	}
	return r, nil
}

func item(it *bookiepb.Item) metadata.Item {
	return metadata.Item{Key: it.GetKey(), Value: it.GetValue(), Version: it.GetVersion()}
}
