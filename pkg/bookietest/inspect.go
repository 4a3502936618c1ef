package bookietest

import (
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// The methods here look at, and change, the cluster directly: no fault stops them, and they return when done.

// State returns what the group's machine knows of ref.
func (c *Cluster) State(ref ledger.Ref) (ledger.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[ref.Group].machine.State(ref.ID)
}

// Entries returns copies of all entries of ref.
func (c *Cluster) Entries(ref ledger.Ref) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var entries [][]byte
	for _, e := range c.groups[ref.Group].entries[ref.ID] {
		entries = append(entries, append([]byte(nil), e...))
	}
	return entries
}

// Ledgers returns all ledgers, by group and id.
func (c *Cluster) Ledgers() []ledger.Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	var refs []ledger.Ref
	for _, g := range c.groups {
		for id := range g.machine.Ledgers() {
			refs = append(refs, ledger.Ref{ID: id, Group: g.id})
		}
	}
	return refs
}

// Apply carries out a command as another owner would: Fence to steal a ledger, for example.
func (c *Cluster) Apply(group ledger.GroupID, cmd ledger.Command) ledger.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[group].execute(&cmd)
}

// Item returns a metadata item; version 0 when absent.
func (c *Cluster) Item(key string) metadata.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	it, _ := c.meta.Get(key)
	return it
}

// Items returns all metadata items below prefix.
func (c *Cluster) Items(prefix string) []metadata.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.list(prefix)
}

// Transact applies a transaction as another owner would. Watchers learn of it.
func (c *Cluster) Transact(txn metadata.Txn) metadata.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, events := c.meta.Apply(txn)
	c.notify(events)
	c.wake.Broadcast()
	return out
}

// Count is the number of requests of this kind that reached the cluster so far.
func (c *Cluster) Count(kind Kind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[kind]
}

// Queued is the number of requests waiting in a group's queue.
func (c *Cluster) Queued(group ledger.GroupID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.groups[group].queue)
}

// Outstanding is the number of payloads that were read and are not released yet.
func (c *Cluster) Outstanding() int { return int(c.outstanding.Load()) }

// Retained is the number of payloads of appends that the clients still hold.
func (c *Cluster) Retained() int { return int(c.retained.Load()) }
