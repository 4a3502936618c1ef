package bookietest

import (
	"fmt"
	"sync/atomic"

	"geminga/pkg/invariant"
	"geminga/pkg/ledger"
)

// Read returns entries of ref.
func (cl *Client) Read(ref ledger.Ref, first, confirmed ledger.EntryID, limits ledger.Limits, done func([]ledger.Entry, error)) {
	c := cl.cluster
	c.submit(ref.Group, &request{
		client: cl, kind: Read, ref: ref,
		fail: func(err error) { done(nil, err) },
		apply: func() func() {
			entries, err := c.read(ref, first, confirmed, limits)
			return func() { done(entries, err) }
		},
	})
}

func (c *Cluster) read(ref ledger.Ref, first, confirmed ledger.EntryID, limits ledger.Limits) ([]ledger.Entry, error) {
	g := c.groups[ref.Group]
	st, ok := g.machine.State(ref.ID)
	switch {
	case !ok:
		return nil, ledger.ErrNoLedger
	case first < 0 || first > confirmed || limits.Entries < 1:
		return nil, fmt.Errorf("%w: read of %s from %d, confirmed %d, at most %d", ledger.ErrBadCommand, ref, first, confirmed, limits.Entries)
	case first > st.Last:
		return nil, ledger.ErrNoEntry
	case g.damaged[ledger.Position{Ledger: ref.ID, Entry: first}]:
		return nil, ledger.ErrUnreadable
	}
	var entries []ledger.Entry
	size := 0
	for id := first; id <= min(confirmed, st.Last) && len(entries) < limits.Entries; id++ {
		data := g.entries[ref.ID][id]
		pos := ledger.Position{Ledger: ref.ID, Entry: id}
		if len(entries) > 0 && (size+len(data) > limits.Bytes || g.damaged[pos]) {
			break
		}
		size += len(data)
		entries = append(entries, ledger.Entry{Position: pos, Payload: c.lend(data)})
	}
	return entries, nil
}

// lend makes a counted copy of data.
func (c *Cluster) lend(data []byte) ledger.Payload {
	l := &loan{cluster: c, data: append([]byte(nil), data...)}
	l.refs.Store(1)
	c.outstanding.Add(1)
	return ledger.Payload{Data: l.data, Owner: l}
}

// loan is the owner of a payload that was read.
type loan struct {
	cluster *Cluster
	data    []byte
	refs    atomic.Int32
}

func (l *loan) Retain() {
	if l.refs.Add(1) <= 1 {
		invariant.Broken("bookietest: payload retained after its last release")
	}
}

func (l *loan) Release() {
	switch n := l.refs.Add(-1); {
	case n < 0:
		invariant.Broken("bookietest: payload released too often")
	case n == 0:
		for i := range l.data {
			l.data[i] = 0xDB
		}
		l.cluster.outstanding.Add(-1)
	}
}
