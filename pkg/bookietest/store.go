package bookietest

import (
	"context"
	"strings"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// Get reads one key.
func (cl *Client) Get(key string, done func(metadata.Item, error)) {
	c := cl.cluster
	c.submit(ledger.MetadataGroup, &request{
		client: cl, kind: Get,
		fail: func(err error) { done(metadata.Item{}, err) },
		apply: func() func() {
			it, _ := c.meta.Get(key)
			return func() { done(it, nil) }
		},
	})
}

// List reads all keys below prefix.
func (cl *Client) List(prefix string, done func([]metadata.Item, error)) {
	c := cl.cluster
	c.submit(ledger.MetadataGroup, &request{
		client: cl, kind: List,
		fail: func(err error) { done(nil, err) },
		apply: func() func() {
			items := c.list(prefix)
			return func() { done(items, nil) }
		},
	})
}

func (c *Cluster) list(prefix string) (items []metadata.Item) {
	page, more := c.meta.List(prefix, "", 0)
	for items = page; more; items = append(items, page...) {
		page, more = c.meta.List(prefix, items[len(items)-1].Key, 0)
	}
	return items
}

// Commit applies a transaction.
func (cl *Client) Commit(txn metadata.Txn, done func(metadata.Outcome, error)) {
	c := cl.cluster
	encoded := txn.Encode()
	c.submit(ledger.MetadataGroup, &request{
		client: cl, kind: Commit,
		fail: func(err error) { done(metadata.Outcome{}, err) },
		apply: func() func() {
			decoded, err := metadata.DecodeTxn(encoded)
			if err != nil {
				return func() { done(metadata.Outcome{Err: err, Failed: -1}, nil) }
			}
			out, events := c.meta.Apply(decoded)
			c.notify(events)
			return func() { done(out, nil) }
		},
	})
}

// watcher is one Watch.
type watcher struct {
	client *Client
	prefix string
	fn     func(items []metadata.Item, synced bool)
	ended  bool
}

// Watch calls fn with the items below prefix, then with every change (version 0 = deleted), in order, until ctx ends.
// It returns at once; synced is true from the call on that completes the items present at the start, so for all.
func (cl *Client) Watch(ctx context.Context, prefix string, fn func(items []metadata.Item, synced bool)) {
	c := cl.cluster
	w := &watcher{client: cl, prefix: prefix, fn: fn}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		w.ended = true
	})
	c.submit(ledger.MetadataGroup, &request{
		client: cl, kind: Watch,
		fail: func(error) {},
		apply: func() func() {
			items := c.list(prefix)
			c.watch = append(c.watch, w)
			return func() { w.tell(items) }
		},
	})
}

func (w *watcher) tell(items []metadata.Item) {
	c := w.client.cluster
	c.mu.Lock()
	ended := w.ended || w.client.shut || w.client.killed
	c.mu.Unlock()
	if !ended {
		w.fn(items, true)
	}
}

// notify queues a transaction's events for the watchers; the mutex is held. They come before its answer.
func (c *Cluster) notify(events []metadata.Item) {
	live := c.watch[:0]
	for _, w := range c.watch {
		if w.ended || w.client.shut || w.client.killed {
			continue
		}
		live = append(live, w)
		var seen []metadata.Item
		for _, ev := range events {
			if strings.HasPrefix(ev.Key, w.prefix) {
				seen = append(seen, ev)
			}
		}
		if len(seen) > 0 {
			c.groups[0].answers = append(c.groups[0].answers, answer{call: func() { w.tell(seen) }})
		}
	}
	c.watch = live
}
