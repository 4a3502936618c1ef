package bookieclient

import (
	"context"
	"fmt"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// Watch calls fn with the items below prefix and then with every change, one call after another, on a goroutine of the
// client, until ctx or the client ends. Version 0 is a deletion. synced is true from the call on with which all items
// that were present have been given; the first such call may have no items.
//
// When the connection is lost the watch starts again by itself: items may then be given twice, and changes that
// happened meanwhile are given at their end, deletions included; states in between are skipped.
func (c *Client) Watch(ctx context.Context, prefix string, fn func(items []metadata.Item, synced bool)) {
	c.life.start(func() {
		life, cancel := context.WithCancel(c.ctx)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		w := &watch{prefix: prefix, fn: fn, known: map[string]struct{}{}}
		for attempt := 0; c.pause(life, attempt); attempt++ {
			address := c.topology.pick(ledger.MetadataGroup, attempt)
			began := time.Now()
			err := c.follow(life, address, w)
			if life.Err() != nil {
				return
			}
			c.log.Debug("watch interrupted", "prefix", prefix, "bookie", address, "error", err)
			if time.Since(began) > c.opts.RetryMax {
				attempt = -1
			}
		}
	})
}

// watch is what is known on this side, so that deletions during an interruption can be told.
type watch struct {
	prefix string
	fn     func([]metadata.Item, bool)
	known  map[string]struct{}
	seen   map[string]struct{} // of the initial items; nil once synced
	synced bool                // ever
}

// follow watches through one bookie until the stream ends.
func (c *Client) follow(ctx context.Context, address string, w *watch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := c.conns.ready(ctx, address, callLane)
	if err != nil {
		c.topology.notLeader(ledger.MetadataGroup, address)
		return err
	}
	// The first answer has a deadline; then silence means that nothing changes.
	timer := time.AfterFunc(c.opts.TryTimeout, cancel)
	defer timer.Stop()
	rpc, err := bookiepb.NewMetadataClient(conn).Watch(ctx, &bookiepb.WatchRequest{Prefix: w.prefix})
	if err != nil {
		return err
	}
	w.seen = map[string]struct{}{}
	for {
		resp, err := rpc.Recv()
		if err != nil {
			c.topology.notLeader(ledger.MetadataGroup, address)
			return fmt.Errorf("%s: %w", address, err)
		}
		timer.Stop()
		if r := resp.GetResult(); r.GetCode() != bookiepb.Code_OK {
			if outcomeOf(r.GetCode()).verdict == notHere {
				c.topology.notLeader(ledger.MetadataGroup, address)
				c.topology.setLeader(ledger.MetadataGroup, r.GetLeader())
			}
			return describe(r.Plain())
		}
		w.take(resp)
	}
}

// take hands one message on.
func (w *watch) take(resp *bookiepb.WatchResponse) {
	items := make([]metadata.Item, 0, len(resp.Events))
	for _, ev := range resp.Events {
		it := item(ev.GetItem())
		if it.Version == 0 {
			delete(w.known, it.Key)
			delete(w.seen, it.Key)
		} else {
			w.known[it.Key] = struct{}{}
			if w.seen != nil {
				w.seen[it.Key] = struct{}{}
			}
		}
		items = append(items, it)
	}
	if resp.Synced && w.seen != nil {
		for key := range w.known {
			if _, present := w.seen[key]; !present {
				delete(w.known, key)
				items = append(items, metadata.Item{Key: key})
			}
		}
		w.seen, w.synced = nil, true
		w.fn(items, true)
		return
	}
	if len(items) > 0 {
		w.fn(items, w.synced)
	}
}
