package broker

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"hash/fnv"

	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

const maxBundles = 1 << 16

// bundleName returns the range "0x00000000_0x08000000" that the topic's hash lies in, when the hash space is cut into
// count pieces of one size. The last one ends with 0xffffffff. Hash and names are those of Pulsar.
func bundleName(n protocol.TopicName, count int) string {
	hash := uint64(crc32.ChecksumIEEE([]byte(n.String())))
	size := (uint64(1) << 32) / uint64(count)
	i := min(hash/size, uint64(count-1))
	low, high := i*size, (i+1)*size
	if i == uint64(count-1) {
		high = 0xffffffff
	}
	return fmt.Sprintf("0x%08x_0x%08x", low, high)
}

func bundleKey(n protocol.TopicName, count int) string {
	return metadata.OwnerKey(n.Tenant, n.NamespaceName().Local(), bundleName(n, count))
}

// candidate chooses among the live brokers by rendezvous hashing: all who see the same members choose the same, and a
// member that comes or goes moves only its own share.
func candidate(key string, live []Member) Member {
	var best Member
	var score uint64
	for i, m := range live {
		h := fnv.New64a()
		_, _ = h.Write([]byte(m.ID))
		_, _ = h.Write([]byte{0})
		_, _ = h.Write([]byte(key))
		s := mix(h.Sum64())
		if i == 0 || s > score || s == score && m.ID < best.ID {
			best, score = m, s
		}
	}
	return best
}

// mix spreads the bits of a weak hash.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// namespaceInfo is the part of a namespace's record that the broker needs to know.
type namespaceInfo struct {
	Bundles int `json:"bundles"`
}

// bundles tells into how many bundles a namespace is cut. The number is stored with the namespace when it is first used,
// because epochs belong to bundles: were the number to follow a setting, a topic could find itself in a bundle with
// smaller epochs than it has seen.
func (o *ownership) bundles(ns protocol.NamespaceName, done func(int, error)) {
	name := ns.String()
	o.mu.Lock()
	if n := o.mu.counts[name]; n > 0 {
		o.mu.Unlock()
		done(n, nil)
		return
	}
	o.mu.waiting[name] = append(o.mu.waiting[name], done)
	first := len(o.mu.waiting[name]) == 1
	o.mu.Unlock()
	if first {
		o.readNamespace(ns, 0)
	}
}

func (o *ownership) readNamespace(ns protocol.NamespaceName, attempt int) {
	key := metadata.NamespaceKey(ns.Tenant, ns.Local())
	o.server.opts.Store.Get(key, func(item metadata.Item, err error) {
		fields := map[string]json.RawMessage{}
		var info namespaceInfo
		if err == nil && item.Version != 0 {
			if err = json.Unmarshal(item.Value, &fields); err == nil {
				err = json.Unmarshal(item.Value, &info)
			}
		}
		switch {
		case err != nil:
			o.knowNamespace(ns, 0, fmt.Errorf("%w: namespace: %w", errMetadata, err))
		case info.Bundles > 0 && info.Bundles <= maxBundles:
			o.knowNamespace(ns, info.Bundles, nil)
		case attempt == maxAttempts:
			o.knowNamespace(ns, 0, errMetadata)
		default:
			fields["bundles"], _ = json.Marshal(o.server.opts.DefaultNumberOfNamespaceBundles)
			o.writeNamespace(ns, item, fields, attempt)
		}
	})
}

// writeNamespace stores the number of bundles, keeping what else the record holds.
func (o *ownership) writeNamespace(ns protocol.NamespaceName, old metadata.Item, fields map[string]json.RawMessage, attempt int) {
	key := metadata.NamespaceKey(ns.Tenant, ns.Local())
	value, err := json.Marshal(fields)
	if err != nil {
		o.knowNamespace(ns, 0, err)
		return
	}
	var txn metadata.Txn
	txn = txn.If(key, old.Version).Then(metadata.Put(key, value))
	o.server.opts.Store.Commit(txn, func(metadata.Outcome, error) {
		o.readNamespace(ns, attempt+1) // whoever won, and whatever became of it, the record tells
	})
}

func (o *ownership) knowNamespace(ns protocol.NamespaceName, count int, err error) {
	name := ns.String()
	o.mu.Lock()
	if err == nil {
		o.mu.counts[name] = count
	}
	waiting := o.mu.waiting[name]
	delete(o.mu.waiting, name)
	o.mu.Unlock()
	for _, done := range waiting {
		done(count, err)
	}
}
