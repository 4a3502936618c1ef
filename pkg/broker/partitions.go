package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// Outcomes of changes to topics, for the admin API.
var (
	ErrNoSuchTopic     = errNoSuchTopic
	ErrTopicExists     = errors.New("This topic already exists") //nolint:staticcheck // Pulsar's words, which its clients print
	ErrFewerPartitions = errors.New("a partitioned topic cannot lose partitions")
)

// A partitioned topic is a number in the metadata. Its partitions are topics of their own, which come into being when
// they are used; lists of topics name them before.

// partitionedInfo is the value of a PartitionedKey.
type partitionedInfo struct {
	Partitions uint32 `json:"partitions"`
}

func partitionedKey(n protocol.TopicName) string {
	return metadata.PartitionedKey(n.Tenant, n.NamespaceName().Local(), n.Domain, n.Local)
}

// readPartitions reads the number of partitions of a topic. done comes on a goroutine of the store.
func readPartitions(store managedledger.Store, n protocol.TopicName, done func(uint32, error)) {
	getPartitions(store, n, func(info partitionedInfo, _ int64, err error) { done(info.Partitions, err) })
}

// getPartitions is readPartitions with the version of the key, 0 for a topic without partitions.
func getPartitions(store managedledger.Store, n protocol.TopicName, done func(partitionedInfo, int64, error)) {
	key := partitionedKey(n)
	store.Get(key, func(item metadata.Item, err error) {
		var info partitionedInfo
		switch {
		case err != nil:
			err = fmt.Errorf("%w: %w", errMetadata, err)
		case item.Version != 0:
			if bad := json.Unmarshal(item.Value, &info); bad != nil {
				err = fmt.Errorf("%w: %s: %w", managedledger.ErrCorrupt, key, bad)
			}
		}
		done(info, item.Version, err)
	})
}

// isThere reports whether there is a topic: the metadata has it or, if it is not persistent, it is open here. done comes on
// any goroutine.
func (s *Server) isThere(n protocol.TopicName, done func(bool, error)) {
	if !n.IsPersistent() {
		done(s.topics.serving(n.String()) != nil, nil)
		return
	}
	s.opts.Store.Get(topic.Key(n), func(item metadata.Item, err error) {
		if err != nil {
			err = fmt.Errorf("%w: %w", errMetadata, err)
		}
		done(item.Version != 0, err)
	})
}

// exists reports whether clients may use a topic that must not be made for them: it is there, or it is a partition, used
// before or not, of a topic that has so many. done comes on any goroutine.
func (s *Server) exists(n protocol.TopicName, done func(bool, error)) {
	s.isThere(n, func(ok bool, err error) {
		if ok || err != nil || n.Partition < 0 {
			done(ok, err)
			return
		}
		readPartitions(s.opts.Store, n.Partitioned(), func(count uint32, err error) { done(int64(n.Partition) < int64(count), err) })
	})
}

// CreatePartitions makes a partitioned topic. ErrTopicExists says that there is a topic of this name, partitioned or not.
func (d Directory) CreatePartitions(ctx context.Context, name protocol.TopicName, partitions int) error {
	txn := metadata.Txn{}.If(topic.Key(name), 0)
	return d.putPartitions(ctx, txn, name, 0, partitions)
}

// UpdatePartitions gives a partitioned topic more partitions.
func (d Directory) UpdatePartitions(ctx context.Context, name protocol.TopicName, partitions int) error {
	now, version, err := d.partitioned(ctx, name)
	switch {
	case err != nil:
		return err
	case int64(partitions) < int64(now.Partitions):
		return fmt.Errorf("%s has %d: %w", name, now.Partitions, ErrFewerPartitions)
	}
	return d.putPartitions(ctx, metadata.Txn{}, name, version, partitions)
}

// partitioned reads the record of a partitioned topic and its version; ErrNoSuchTopic when there is none.
func (d Directory) partitioned(ctx context.Context, name protocol.TopicName) (partitionedInfo, int64, error) {
	type record struct {
		info    partitionedInfo
		version int64
	}
	r, err := await(ctx, "partitions of "+name.String(), func(done func(record, error)) {
		getPartitions(d.server.opts.Store, name, func(info partitionedInfo, version int64, err error) {
			done(record{info, version}, err)
		})
	})
	if err == nil && r.version == 0 {
		err = fmt.Errorf("%s: %w", name, ErrNoSuchTopic)
	}
	return r.info, r.version, err
}

func (d Directory) putPartitions(ctx context.Context, txn metadata.Txn, name protocol.TopicName, version int64, n int) error {
	switch {
	case !name.IsPersistent():
		return errNotPersistent
	case name.Partition >= 0:
		return fmt.Errorf("%w: %s is a partition", protocol.ErrBadTopicName, name)
	}
	txn, err := withPartitions(txn, name, version, n)
	if err != nil {
		return err
	}
	outcome, err := await(ctx, "partitions of "+name.String(), func(done func(metadata.Outcome, error)) {
		d.server.opts.Store.Commit(txn, done)
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errMetadata, err)
	case errors.Is(outcome.Err, metadata.ErrBadVersion):
		return ErrTopicExists
	}
	return outcome.Err
}

// withPartitions adds to a transaction that a topic gets a number of partitions, if its record has the version.
func withPartitions(txn metadata.Txn, name protocol.TopicName, version int64, n int) (metadata.Txn, error) {
	value, err := json.Marshal(partitionedInfo{uint32(n)})
	if err != nil {
		return txn, err
	}
	key := partitionedKey(name)
	return txn.If(key, version).Then(metadata.Put(key, value)), nil
}

// CreateTopic makes a topic without partitions, on the broker that serves it.
func (d Directory) CreateTopic(ctx context.Context, name protocol.TopicName) error {
	if !name.IsPersistent() {
		return errNotPersistent
	}
	s := d.server
	for _, key := range []string{topic.Key(name), partitionedKey(name)} {
		item, err := await(ctx, "create "+name.String(), func(done func(metadata.Item, error)) { s.opts.Store.Get(key, done) })
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errMetadata, err)
		case item.Version != 0:
			return ErrTopicExists
		}
	}
	_, err := await(ctx, "create "+name.String(), func(done func(*hosted, error)) {
		s.owners.lookup(name, true, func(p place, err error) {
			switch {
			case err != nil:
				done(nil, err)
			case p.bundle == nil:
				done(nil, fmt.Errorf("%w: %s", errNotOwner, p.url))
			default:
				s.topics.open(name, p.bundle, done)
			}
		})
	})
	return err
}

// listTopics reads the names of the persistent topics of a namespace, sorted. done comes on a goroutine of the store.
func (s *Server) listTopics(ns protocol.NamespaceName, done func([]string, error)) {
	start := protocol.Persistent + "://" + ns.String() + "/"
	topics := metadata.TopicPrefix(ns.Tenant, ns.Local(), protocol.Persistent)
	partitioned := metadata.PartitionedTopicPrefix(ns.Tenant, ns.Local(), protocol.Persistent)
	s.opts.Store.List(topics, func(items []metadata.Item, err error) {
		if err != nil {
			done(nil, fmt.Errorf("%w: %w", errMetadata, err))
			return
		}
		names := make([]string, 0, len(items))
		for i := range items {
			if local, ok := metadata.Unescape(items[i].Key[len(topics):]); ok {
				names = append(names, start+local)
			}
		}
		s.opts.Store.List(partitioned, func(items []metadata.Item, err error) {
			if err != nil {
				done(nil, fmt.Errorf("%w: %w", errMetadata, err))
				return
			}
			for i := range items {
				var info partitionedInfo
				local, ok := metadata.Unescape(items[i].Key[len(partitioned):])
				if !ok || json.Unmarshal(items[i].Value, &info) != nil {
					continue
				}
				for p := range info.Partitions {
					names = append(names, fmt.Sprintf("%s%s-partition-%d", start, local, p))
				}
			}
			slices.Sort(names)
			done(slices.Compact(names), nil)
		})
	})
}
