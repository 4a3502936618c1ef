package topic

import (
	"fmt"
	"slices"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// Delete ends the topic as Close does, and removes it with its messages, subscriptions and deduplication state. Connected
// producers and consumers are ErrInUse, unless forced: then they are closed; clients that come back find no topic, or
// make a new one. After an error other than ErrInUse and ErrNotReady the topic has ended, and may be there or not. done on
// the topic's executor.
func (t *Topic) Delete(force bool, done func(error)) {
	if err := t.ready(); err != nil {
		done(err)
		return
	}
	if !force && t.InUse() {
		done(fmt.Errorf("%s: %w", t.text, ErrInUse))
		return
	}
	t.closing.remove = true
	t.Close(done)
}

// InUse reports that producers or consumers are connected.
func (t *Topic) InUse() bool { return len(t.producers) > 0 || t.hasConsumers() }

// Subscriptions returns the names of the durable subscriptions, sorted.
func (t *Topic) Subscriptions() []string {
	t.exec.AssertCurrent()
	var names []string
	for name, s := range t.slots {
		if s.durable && s.state == slotOpen {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ReadEntry reads one stored entry, acknowledged or not; ErrNoEntry when there is none at the position. done on the topic's
// executor; the payload is released after it.
func (t *Topic) ReadEntry(p ledger.Position, done func(payload []byte, err error)) {
	if err := t.ready(); err != nil {
		done(nil, err)
		return
	}
	if !t.log.Exists(p) {
		done(nil, fmt.Errorf("%s of %s: %w", p, t.text, ErrNoEntry))
		return
	}
	t.log.OpenCursor(managedledger.CursorOptions{
		Name: t.env.Names.Next(), Initial: p, Inclusive: true, Executor: t.exec,
	}, func(c *managedledger.Cursor, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		c.ReadAt([]ledger.Position{p}, func(entries []ledger.Entry, err error) {
			if err == nil && len(entries) == 0 {
				err = fmt.Errorf("%s of %s: %w", p, t.text, ErrNoEntry)
			}
			if err != nil {
				done(nil, err)
			} else {
				done(entries[0].Payload.Data, nil)
			}
			release(entries)
			c.Close(func(error) {})
		})
	})
}
