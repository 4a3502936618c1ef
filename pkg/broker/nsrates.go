package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

// fieldPublishRate is where a namespace's policies hold the publish rate, for each cluster.
const fieldPublishRate = "publishMaxMessageRate"

// publishRate is how Pulsar writes a Rate. Less than 0 is no limit.
type publishRate struct {
	Messages int64 `json:"publishThrottlingRateInMsg"`
	Bytes    int64 `json:"publishThrottlingRateInByte"`
}

// namespaceRates are the publish rates that namespaces' policies give to each of their topics, instead of the broker's rate
// for topics. They are watched: a change comes into force on the topics that are open.
type namespaceRates struct {
	server *Server
	mu     struct {
		sync.Mutex                 // also held while rates are set, so that an older one never comes last
		byKey      map[string]Rate // by NamespaceKey
	}
}

func (n *namespaceRates) init(s *Server) {
	n.server = s
	n.mu.byKey = map[string]Rate{}
}

// changed is told by the watch of namespaces.
func (n *namespaceRates) changed(items []metadata.Item, _ bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	touched := map[string]bool{}
	for i := range items {
		key := items[i].Key
		rate, ok, err := n.server.rateIn(items[i])
		if err != nil {
			n.server.log.Warn("Publish rate of a namespace is not applied", "namespace", key, "reason", err)
		}
		before, had := n.mu.byKey[key]
		if ok == had && rate == before {
			continue
		}
		touched[key] = true
		delete(n.mu.byKey, key)
		if ok {
			n.mu.byKey[key] = rate
		}
	}
	if len(touched) == 0 {
		return
	}
	for _, h := range n.server.topics.all(nil) {
		if key := h.namespaceKey(); touched[key] {
			h.limit.set(n.rate(key), time.Now())
		}
	}
}

func (h *hosted) namespaceKey() string {
	return metadata.NamespaceKey(h.name.Tenant, h.name.NamespaceName().Local())
}

// rate is the rate of each topic of a namespace. The lock is held.
func (n *namespaceRates) rate(key string) Rate {
	if r, ok := n.mu.byKey[key]; ok {
		return r
	}
	return *n.server.topicRate.Load()
}

// apply gives topics their rates.
func (n *namespaceRates) apply(hs ...*hosted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range hs {
		h.limit.set(n.rate(h.namespaceKey()), time.Now())
	}
}

// rateIn reads the rate in a namespace's record; ok says that there is one.
func (s *Server) rateIn(item metadata.Item) (rate Rate, ok bool, err error) {
	r, err := decodeNamespace(item)
	if err != nil || !r.exists() || r.fields[fieldPolicies] == nil {
		return Rate{}, false, err
	}
	var policies struct {
		Rates map[string]publishRate `json:"publishMaxMessageRate"`
	}
	if err := json.Unmarshal(r.fields[fieldPolicies], &policies); err != nil {
		return Rate{}, false, fmt.Errorf("policies: %w", err)
	}
	p, ok := policies.Rates[s.opts.ClusterName]
	return Rate{Messages: max(0, p.Messages), Bytes: max(0, p.Bytes)}, ok, nil
}

// PublishRate returns the publish rate that a namespace's policies give to each of its topics, if they do.
func (d Directory) PublishRate(ctx context.Context, ns protocol.NamespaceName) (rate Rate, ok bool, err error) {
	item, err := d.get(ctx, metadata.NamespaceKey(ns.Tenant, ns.Local()))
	if err != nil {
		return Rate{}, false, err
	}
	if r, err := decodeNamespace(item); err == nil && !r.exists() {
		return Rate{}, false, ErrNoNamespace
	}
	return d.server.rateIn(item)
}

// SetPublishRate gives each topic of a namespace a publish rate, on all brokers; nil takes it away, and the broker's rate
// for topics counts again.
func (d Directory) SetPublishRate(ctx context.Context, ns protocol.NamespaceName, rate *Rate) error {
	r, err := d.namespace(ctx, ns)
	switch {
	case err != nil:
		return err
	case !r.exists():
		return ErrNoNamespace
	}
	policies, err := objectIn(r.fields[fieldPolicies])
	if err != nil {
		return err
	}
	rates, err := objectIn(policies[fieldPublishRate])
	if err != nil {
		return err
	}
	delete(rates, d.server.opts.ClusterName)
	if rate != nil {
		rates[d.server.opts.ClusterName], err = json.Marshal(publishRate{rate.Messages, rate.Bytes})
	}
	if err == nil {
		policies[fieldPublishRate], err = json.Marshal(rates)
	}
	if err == nil {
		r.fields[fieldPolicies], err = json.Marshal(policies)
	}
	if err != nil {
		return err
	}
	return d.put(ctx, metadata.NamespaceKey(ns.Tenant, ns.Local()), r.version, r.fields, errMetadata)
}

// objectIn decodes a JSON object; nothing, and null, which clients write for what they leave open, are an empty one.
func objectIn(text json.RawMessage) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if text != nil && json.Unmarshal(text, &fields) != nil {
		return nil, ErrBadPolicies
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	return fields, nil
}
