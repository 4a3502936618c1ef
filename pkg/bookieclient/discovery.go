package bookieclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// watchTopology follows /bookies/ and /groups/ until the client is closed.
func (c *Client) watchTopology() {
	for _, prefix := range []string{metadata.BookiesPrefix, metadata.GroupsPrefix} {
		c.Watch(c.ctx, prefix, func(items []metadata.Item, _ bool) {
			for _, it := range items {
				if err := c.topology.applyItem(it); err != nil {
					c.log.Warn("metadata record ignored", "key", it.Key, "error", err)
				}
			}
		})
	}
}

func isBookie(key string) bool { return strings.HasPrefix(key, metadata.BookiesPrefix) }

func (t *topology) applyBookie(it metadata.Item) error {
	id, ok := metadata.Unescape(strings.TrimPrefix(it.Key, metadata.BookiesPrefix))
	if !ok {
		return fmt.Errorf("bad key %q", it.Key)
	}
	if it.Version == 0 {
		t.setBookie(id, "")
		return nil
	}
	var info metadata.BookieInfo
	if err := json.Unmarshal(it.Value, &info); err != nil {
		return err
	}
	t.setBookie(id, info.Address)
	return nil
}

func (t *topology) applyGroup(it metadata.Item) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(it.Key, metadata.GroupsPrefix), 10, 32)
	if err != nil {
		return fmt.Errorf("bad key %q: %w", it.Key, err)
	}
	if it.Version == 0 {
		t.setGroup(ledger.GroupID(n), nil)
		return nil
	}
	var info metadata.GroupInfo
	if err := json.Unmarshal(it.Value, &info); err != nil {
		return err
	}
	t.setGroup(ledger.GroupID(n), info.Members())
	return nil
}

// pollStatus asks every bookie for its groups, again and again. Until a group with a ready leader has been seen it
// asks more often.
func (c *Client) pollStatus() {
	for {
		c.pollOnce()
		wait := c.opts.StatusInterval
		if !c.topology.anyReady() {
			wait /= 5
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// anyReady reports whether some group can take ledgers, as far as known.
func (t *topology) anyReady() bool {
	v := t.current()
	for _, id := range v.ids {
		if !v.groups[id].ready.IsZero() {
			return true
		}
	}
	return false
}

// pollOnce asks all at the same time, each with a deadline, so that a dead bookie delays nobody beyond it.
func (c *Client) pollOnce() {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		round = map[string]*bookiepb.StatusResponse{}
	)
	for _, address := range c.topology.targets() {
		wg.Go(func() {
			status, err := c.status(c.ctx, address)
			if err != nil {
				c.log.Debug("bookie does not tell its status", "bookie", address, "error", err)
			}
			mu.Lock()
			defer mu.Unlock()
			round[address] = status
		})
	}
	wg.Wait()
	c.topology.setStatuses(time.Now(), round)
}

func (c *Client) status(ctx context.Context, address string) (*bookiepb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.ConnectTimeout)
	defer cancel()
	conn, err := c.conns.ready(ctx, address, callLane)
	if err != nil {
		return nil, err
	}
	status, err := bookiepb.NewBookieClient(conn).Status(ctx, &bookiepb.StatusRequest{})
	if err != nil {
		return nil, err
	}
	if c.opts.ClusterID != "" && status.ClusterId != "" && status.ClusterId != c.opts.ClusterID {
		return nil, fmt.Errorf("%w: %s says %s", ErrWrongCluster, address, status.ClusterId)
	}
	return status, nil
}

// CheckCluster asks every known bookie and returns ErrWrongCluster, with the bookie's address, if one is of another
// cluster than Options.ClusterID. Bookies that do not answer are passed over.
func (c *Client) CheckCluster(ctx context.Context) error {
	for _, address := range c.topology.targets() {
		if _, err := c.status(ctx, address); errors.Is(err, ErrWrongCluster) {
			return fmt.Errorf("bookie at %s: %w", address, err)
		}
	}
	return nil
}

// Status asks every known bookie, for people and health checks. Bookies that do not answer are in the map with nil.
func (c *Client) Status(ctx context.Context) map[string]*bookiepb.StatusResponse {
	out := map[string]*bookiepb.StatusResponse{}
	for _, address := range c.topology.targets() {
		status, err := c.status(ctx, address)
		if err != nil {
			status = nil
		}
		out[address] = status
	}
	return out
}
