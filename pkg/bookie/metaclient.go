package bookie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// metaClient is how a bookie itself uses the metadata: through the same service as everybody else, on whichever member
// leads, itself included.
type metaClient struct {
	self  identity
	book  *addressBook
	conns *conns

	mu      sync.Mutex
	members []string // ids, as last seen
	hint    string   // address that was named as the leader's, or answered as the leader
	turn    int      // next one to ask without a hint
}

// newMetaClient starts from the members that the cluster began with.
func newMetaClient(self identity, c *clusterJSON, book *addressBook, conns *conns) *metaClient {
	out := &metaClient{self: self, book: book, conns: conns}
	for _, m := range c.Metadata {
		out.members = append(out.members, m.ID)
	}
	return out
}

// follow takes over who the members are.
func (c *metaClient) follow(members []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = slices.Clone(members)
}

// ids returns the members as last seen.
func (c *metaClient) ids() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

// strangerTurn: who has no hint asks any other bookie every so many turns. Those that were members when this one last
// looked may all be gone; every bookie follows the list, and names the leader.
const strangerTurn = 4

// next returns the address of somebody who may lead, or knows who does.
func (c *metaClient) next() string {
	others := c.book.ids()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hint != "" {
		return c.hint
	}
	turn, ids := c.turn, c.members
	c.turn++
	if turn%strangerTurn == strangerTurn-1 {
		turn, ids = turn/strangerTurn, others
	}
	addr, _ := c.book.address(ids[turn%len(ids)])
	return addr
}

// lead is where the leader is believed to be, or at least another member.
func (c *metaClient) lead() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hint != "" {
		return c.hint
	}
	id := c.members[c.turn%len(c.members)]
	if id == c.self.bookieID {
		return "" // whoever asked us is not to do so again and again
	}
	addr, _ := c.book.address(id)
	return addr
}

// target returns a client of the presumed leader.
func (c *metaClient) target() (bookiepb.MetadataClient, error) {
	conn, err := c.conns.get(c.next())
	if err != nil {
		return nil, err
	}
	return bookiepb.NewMetadataClient(conn), nil
}

// learn takes an answer's word on who leads. settled: the leader has answered, and asking again changes nothing.
func (c *metaClient) learn(r *bookiepb.Result, err error) (settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		switch r.GetCode() {
		case bookiepb.Code_OVERLOADED:
			return false // nothing was done; it is the leader, though
		case bookiepb.Code_NOT_LEADER, bookiepb.Code_UNKNOWN:
		default:
			return true
		}
	}
	leader := r.GetLeader()
	if err != nil || leader == c.hint {
		leader = "" // the hint is no good: ask around
	}
	c.hint = leader
	return false
}

const (
	metaRetry   = 100 * time.Millisecond
	metaTimeout = 5 * time.Second // of one attempt
)

// commit tries until the outcome is known. An attempt whose outcome is unknown is repeated, so the transaction must be
// one that can be: its conditions fail when it was done before, and ErrBadVersion tells nothing about by whom.
func (c *metaClient) commit(ctx context.Context, txn metadata.Txn) error {
	b := txn.Encode()
	for {
		resp, err := c.tryCommit(ctx, b)
		if c.learn(resp.GetResult(), err) {
			switch code := resp.GetResult().GetCode(); code {
			case bookiepb.Code_OK:
				return nil
			case bookiepb.Code_BAD_VERSION:
				return metadata.ErrBadVersion
			default:
				return fmt.Errorf("metadata: %s: %s", code, resp.GetResult().GetMessage())
			}
		}
		if err := pause(ctx, metaRetry); err != nil {
			return err
		}
	}
}

func (c *metaClient) tryCommit(ctx context.Context, txn []byte) (*bookiepb.CommitResponse, error) {
	client, err := c.target()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.self.outgoing(ctx), metaTimeout)
	defer cancel()
	return client.Commit(ctx, &bookiepb.CommitRequest{Txn: txn})
}

// get reads one item.
func (c *metaClient) get(ctx context.Context, key string) (metadata.Item, error) {
	for {
		resp, err := c.tryGet(ctx, key)
		if c.learn(resp.GetResult(), err) {
			if code := resp.GetResult().GetCode(); code != bookiepb.Code_OK {
				return metadata.Item{}, fmt.Errorf("metadata: %s: %s", code, resp.GetResult().GetMessage())
			}
			return itemFromPB(resp.GetItem()), nil
		}
		if err := pause(ctx, metaRetry); err != nil {
			return metadata.Item{}, err
		}
	}
}

func (c *metaClient) tryGet(ctx context.Context, key string) (*bookiepb.GetResponse, error) {
	client, err := c.target()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.self.outgoing(ctx), metaTimeout)
	defer cancel()
	return client.Get(ctx, &bookiepb.GetRequest{Key: key})
}

// watch keeps state up to date with the items below prefix and calls changed after every change once it is complete,
// until ctx is done. The map is watch's own: changed reads it and does not keep it.
func (c *metaClient) watch(ctx context.Context, prefix string, changed func(map[string]metadata.Item)) {
	for ctx.Err() == nil {
		_ = c.watchOnce(ctx, prefix, changed) // whatever it was: start again
		_ = pause(ctx, metaRetry)
	}
}

func (c *metaClient) watchOnce(ctx context.Context, prefix string, changed func(map[string]metadata.Item)) error {
	ctx, cancel := context.WithCancel(c.self.outgoing(ctx))
	defer cancel()
	client, err := c.target()
	if err != nil {
		return err
	}
	stream, err := client.Watch(ctx, &bookiepb.WatchRequest{Prefix: prefix})
	if err != nil {
		c.learn(nil, err)
		return err
	}
	// A member that does not begin to answer is as good as gone.
	timer := time.AfterFunc(metaTimeout, cancel)
	defer timer.Stop()
	state, synced := map[string]metadata.Item{}, false
	for {
		resp, err := stream.Recv()
		timer.Stop()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			c.learn(nil, err)
			return err
		}
		if resp.GetResult() != nil {
			c.learn(resp.GetResult(), nil)
			return ledger.ErrNotLeader
		}
		for _, ev := range resp.GetEvents() {
			if it := itemFromPB(ev.GetItem()); it.Version == 0 {
				delete(state, it.Key)
			} else {
				state[it.Key] = it
			}
		}
		synced = synced || resp.GetSynced()
		if synced {
			changed(state)
		}
	}
}

func itemFromPB(it *bookiepb.Item) metadata.Item {
	return metadata.Item{Key: it.GetKey(), Value: it.GetValue(), Version: it.GetVersion()}
}

// pause waits unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
