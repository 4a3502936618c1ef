package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// getJSON reads one document from a daemon's HTTP port.
func getJSON(ctx context.Context, addr, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s%s: %s", addr, path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// OwnerOf returns the broker that owns a topic.
func (c *Cluster) OwnerOf(ctx context.Context, topic string) (*Proc, error) {
	var errs []error
	for _, p := range c.Brokers {
		var answer struct{ BrokerURL string }
		if err := getJSON(ctx, p.HTTP, "/lookup/v2/topic/"+strings.Replace(topic, "://", "/", 1), &answer); err != nil {
			errs = append(errs, err)
			continue
		}
		for i, url := range c.URLs {
			if url == answer.BrokerURL {
				return c.Brokers[i], nil
			}
		}
		errs = append(errs, fmt.Errorf("lookup of %s names %s, none of ours", topic, answer.BrokerURL))
	}
	return nil, errors.Join(errs...)
}

// Group is what a bookie says of a ledger group.
type Group struct {
	Group    uint32
	LeaderID string `json:"leaderId"`
	Replicas []string
	Former   []string // on their way out
	Ready    bool     // the bookie leads it
	ReadOnly bool     // as its leader, the bookie takes nothing for it
}

// Groups lists the replicas that a bookie runs.
func Groups(ctx context.Context, bookie *Proc) ([]Group, error) {
	var status struct{ Groups []Group }
	err := getJSON(ctx, bookie.HTTP, "/status", &status)
	return status.Groups, err
}

// ReadOnly says whether a bookie refuses entries.
func ReadOnly(ctx context.Context, bookie *Proc) (bool, error) {
	var status struct {
		ReadOnly bool `json:"readOnly"`
	}
	err := getJSON(ctx, bookie.HTTP, "/status", &status)
	return status.ReadOnly, err
}

// GroupOf returns the ledger group of the topic's open ledger.
func (c *Cluster) GroupOf(ctx context.Context, topic string) (uint32, error) {
	owner, err := c.OwnerOf(ctx, topic)
	if err != nil {
		return 0, err
	}
	var stats struct {
		Ledgers []struct{ Group uint32 }
	}
	path := "/admin/v2/" + strings.Replace(topic, "://", "/", 1) + "/internalStats"
	if err := getJSON(ctx, owner.HTTP, path, &stats); err != nil {
		return 0, err
	}
	if len(stats.Ledgers) == 0 {
		return 0, fmt.Errorf("%s has no ledgers", topic)
	}
	return stats.Ledgers[len(stats.Ledgers)-1].Group, nil
}

// LeaderOf returns the bookie that leads the group of the topic's open ledger.
func (c *Cluster) LeaderOf(ctx context.Context, topic string) (*Proc, error) {
	group, err := c.GroupOf(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, p := range c.Bookies {
		groups, err := Groups(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			if g.Group == group && g.LeaderID == p.Name {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("no bookie leads group %d", group)
}

// Metadata is what a bookie says of the metadata group, nil when it is no member. Replicas are those of its configuration.
func Metadata(ctx context.Context, bookie *Proc) (*Group, error) {
	var status struct{ Metadata *Group }
	err := getJSON(ctx, bookie.HTTP, "/status", &status)
	return status.Metadata, err
}

// MetadataLeader returns the id of the bookie that leads the metadata group, as some bookie knows it; empty when none does.
func MetadataLeader(ctx context.Context, bookies []*Proc) (string, error) {
	var errs []error
	for _, p := range bookies {
		g, err := Metadata(ctx, p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if g != nil && g.LeaderID != "" {
			return g.LeaderID, nil
		}
	}
	return "", errors.Join(errs...)
}
