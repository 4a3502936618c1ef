package bookie

import (
	"context"
	"sync"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// census is what the metadata leader knows of the bookies' lives: for how long each has been silent, while this process
// looked. It begins anew with each change of leaders, so nobody is taken for dead on another's word, or because this
// process was stopped. It belongs to one goroutine.
type census struct {
	looked  time.Time
	answers map[string]*bookiepb.StatusResponse
	silent  map[string]time.Duration
}

// take enters one round: the bookies that were asked, with nil for those that did not answer. A round counts for no longer
// than most.
func (c *census) take(now time.Time, round map[string]*bookiepb.StatusResponse, most time.Duration) {
	var elapsed time.Duration
	if !c.looked.IsZero() {
		elapsed = min(now.Sub(c.looked), most)
	}
	silent := map[string]time.Duration{}
	for id, status := range round {
		if status == nil {
			silent[id] = c.silent[id] + elapsed
		}
	}
	c.looked, c.answers, c.silent = now, round, silent
}

// quiet lists the bookies that have been silent for so long.
func (c *census) quiet(least time.Duration) map[string]bool {
	out := map[string]bool{}
	for id, d := range c.silent {
		if d >= least {
			out[id] = true
		}
	}
	return out
}

// probe asks all bookies for their status, at the same time.
func (b *Bookie) probe(ctx context.Context, ids []string) map[string]*bookiepb.StatusResponse {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		round = map[string]*bookiepb.StatusResponse{}
	)
	for _, id := range ids {
		wg.Go(func() {
			status, err := b.statusOf(ctx, id)
			if err != nil {
				b.log.Debug("a bookie does not tell its status", "peer", id, "error", err)
			}
			mu.Lock()
			defer mu.Unlock()
			round[id] = status
		})
	}
	wg.Wait()
	return round
}

// statusOf asks one bookie, this one included. An answer under the id of another bookie counts as none.
func (b *Bookie) statusOf(ctx context.Context, id string) (*bookiepb.StatusResponse, error) {
	if id == b.self.bookieID {
		return b.Status(), nil
	}
	ctx, cancel := context.WithTimeout(b.self.outgoing(ctx), b.opts.Raft.RPCTimeout)
	defer cancel()
	addr, ok := b.book.address(id)
	if !ok {
		return nil, errUnavailable
	}
	conn, err := b.conns.get(addr)
	if err != nil {
		return nil, err
	}
	status, err := bookiepb.NewBookieClient(conn).Status(ctx, &bookiepb.StatusRequest{})
	if err != nil {
		return nil, err
	}
	if status.GetBookieId() != id || status.GetClusterId() != b.self.clusterID {
		return nil, errStranger
	}
	return status, nil
}

// groupStatus finds a group in a bookie's status, nil when it holds no replica.
func groupStatus(s *bookiepb.StatusResponse, id ledger.GroupID) *bookiepb.GroupStatus {
	if id == ledger.MetadataGroup {
		return s.GetMetadata()
	}
	for _, g := range s.GetGroups() {
		if ledger.GroupID(g.GetGroup()) == id {
			return g
		}
	}
	return nil
}
