package bookietest

import (
	"errors"
	"fmt"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// Client is one broker's view of the cluster. It is structurally managedledger.Bookies and managedledger.Store, and
// keeps their contracts.
type Client struct {
	cluster *Cluster

	// guarded by cluster.mu
	cut, shut, killed bool
	streams           map[ledger.Ref]*stream
}

// stream is what a client knows of the ledger that it appends to.
type stream struct {
	broken  error
	acked   ledger.EntryID
	pending []*appending
}

// appending is an append whose waiter has not been told yet.
type appending struct {
	stream  *stream
	waiter  ledger.Waiter
	entries []ledger.Payload
	gone    bool // released; nobody is to be told
}

// Client returns a new client: one per broker.
func (c *Cluster) Client() *Client {
	return &Client{cluster: c, streams: map[ledger.Ref]*stream{}}
}

// guard drops the call when the client has been killed by the time it is made.
func (cl *Client) guard(call func()) func() {
	return func() {
		cl.cluster.mu.Lock()
		killed := cl.killed
		cl.cluster.mu.Unlock()
		if !killed && call != nil {
			call()
		}
	}
}

// Create makes an empty ledger in a healthy group. Its id comes from the counter in the metadata.
func (cl *Client) Create(epoch ledger.Epoch, avoid ledger.GroupID, done func(ledger.Ref, error)) {
	c := cl.cluster
	fail := func(err error) { done(ledger.Ref{}, err) }
	var ref ledger.Ref
	var err error
	inGroup := &request{client: cl, kind: Create, fail: fail, apply: func() func() {
		res, _ := c.groups[ref.Group].machine.Apply(&ledger.Command{Op: ledger.OpCreate, Ledger: ref.ID, Epoch: epoch})
		return func() { done(ref, res.Err) }
	}}
	c.submit(0, &request{client: cl, kind: allocate, fail: fail, apply: func() func() {
		out, events := c.meta.Apply(metadata.Txn{}.Then(metadata.Add(metadata.LedgerCounterKey, 1)))
		c.notify(events)
		ok := false
		if ref.Group, ok = c.healthy(avoid); !ok {
			err = ledger.ErrNoBookies
		}
		return func() {
			if err = errors.Join(out.Err, err); err != nil {
				fail(err)
				return
			}
			ref.ID = ledger.ID(out.Versions[0])
			inGroup.ref = ref
			c.submit(ref.Group, inGroup)
		}
	}})
}

// Append queues entries behind earlier appends to ref.
func (cl *Client) Append(ref ledger.Ref, epoch ledger.Epoch, first ledger.EntryID, entries []ledger.Payload, w ledger.Waiter) {
	c := cl.cluster
	cmd := ledger.Command{Op: ledger.OpAppend, Ledger: ref.ID, Epoch: epoch, First: first, Count: len(entries)}
	a := &appending{waiter: w, entries: append([]ledger.Payload(nil), entries...)}
	for _, e := range entries {
		cmd.Body = ledger.AppendEntry(cmd.Body, e.Data)
		e.Retain()
	}
	c.retained.Add(int64(len(entries)))
	c.mu.Lock()
	defer c.mu.Unlock()
	st := cl.streams[ref]
	if st == nil {
		st = &stream{acked: ledger.NoEntry}
		cl.streams[ref] = st
	}
	a.stream = st
	st.pending = append(st.pending, a)
	last := first + ledger.EntryID(len(entries)) - 1
	c.submitLocked(ref.Group, &request{
		client: cl, kind: Append, ref: ref,
		apply: func() func() { return cl.append(a, ref, &cmd) },
		fail:  func(err error) { cl.settle(a, ref, last, err) },
	})
}

// append applies an append command, unless an earlier one failed.
func (cl *Client) append(a *appending, ref ledger.Ref, cmd *ledger.Command) func() {
	last := cmd.First + ledger.EntryID(cmd.Count) - 1
	err := a.stream.broken
	if err == nil {
		err = cl.cluster.groups[ref.Group].apply(cmd)
	}
	if err != nil {
		a.stream.broken = err
	}
	return func() { cl.settle(a, ref, last, err) }
}

// settle releases the payloads of an append and tells its waiter, and on an error drops the appends behind it.
func (cl *Client) settle(a *appending, ref ledger.Ref, last ledger.EntryID, err error) {
	c := cl.cluster
	c.mu.Lock()
	if a.gone {
		c.mu.Unlock()
		return
	}
	st := a.stream
	drop := []*appending{a}
	if err == nil {
		st.acked = max(st.acked, last)
		st.pending = st.pending[1:]
	} else {
		st.broken = err
		drop, st.pending = st.pending, nil
		last = st.acked
	}
	for _, d := range drop {
		d.gone = true
	}
	c.mu.Unlock()
	c.release(drop)
	a.waiter.Appended(ref, last, err)
}

func (c *Cluster) release(as []*appending) {
	for _, a := range as {
		c.retained.Add(-int64(len(a.entries)))
		for _, e := range a.entries {
			e.Release()
		}
		a.entries = nil
	}
}

// Abandon forgets the appends to ref that have not been answered. They may still be applied.
func (cl *Client) Abandon(ref ledger.Ref) {
	c := cl.cluster
	c.mu.Lock()
	var drop []*appending
	if st := cl.streams[ref]; st != nil {
		drop, st.pending = st.pending, nil
		for _, a := range drop {
			a.gone = true
		}
		delete(cl.streams, ref)
	}
	c.mu.Unlock()
	c.release(drop)
}

// Fence raises the epoch of ref.
func (cl *Client) Fence(ref ledger.Ref, epoch ledger.Epoch, done func(ledger.EntryID, error)) {
	cl.execute(Fence, ref, ledger.Command{Op: ledger.OpFence, Epoch: epoch}, func(res ledger.Result) { done(res.Last, res.Err) })
}

// Close closes ref at last. It waits for a group that is down.
func (cl *Client) Close(ref ledger.Ref, last ledger.EntryID, done func(error)) {
	cl.execute(CloseLedger, ref, ledger.Command{Op: ledger.OpClose, Last: last}, func(res ledger.Result) { done(res.Err) })
}

// Delete removes ref.
func (cl *Client) Delete(ref ledger.Ref, done func(error)) {
	cl.execute(Delete, ref, ledger.Command{Op: ledger.OpDelete}, func(res ledger.Result) { done(res.Err) })
}

func (cl *Client) execute(kind Kind, ref ledger.Ref, cmd ledger.Command, done func(ledger.Result)) {
	cmd.Ledger = ref.ID
	cl.cluster.submit(ref.Group, &request{
		client: cl, kind: kind, ref: ref,
		fail: func(err error) { done(ledger.Result{Ledger: ref.ID, Last: ledger.NoEntry, Err: err}) },
		apply: func() func() {
			res := cl.cluster.groups[ref.Group].execute(&cmd)
			return func() { done(res) }
		},
	})
}

// apply and execute carry out a command the way a bookie does, through its encoding.
func (g *group) apply(cmd *ledger.Command) error { return g.execute(cmd).Err }

func (g *group) execute(cmd *ledger.Command) ledger.Result {
	decoded, rest, err := ledger.NextCommand(cmd.AppendTo(nil))
	if err == nil {
		err = decoded.CheckBody()
	}
	if err == nil && len(rest) != 0 {
		err = fmt.Errorf("%w: %d bytes left", ledger.ErrBadCommand, len(rest))
	}
	if err != nil {
		return ledger.Result{Ledger: cmd.Ledger, Last: ledger.NoEntry, Err: err}
	}
	res, change := g.machine.Apply(&decoded)
	if change.Appended {
		for body := decoded.Body; len(body) > 0; {
			var payload []byte
			payload, body, _ = ledger.NextEntry(body)
			g.entries[cmd.Ledger] = append(g.entries[cmd.Ledger], payload)
		}
	}
	if change.Truncated {
		g.entries[cmd.Ledger] = g.entries[cmd.Ledger][:change.Last+1]
	}
	if change.Deleted {
		delete(g.entries, cmd.Ledger)
	}
	return res
}
