package broker

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
	"geminga/rpc/pulsarpb"
)

// ErrPartitioned says that a request is for topics without partitions.
var ErrPartitioned = errors.New("topic is partitioned")

// open returns a topic that exists, on the broker that serves it. done comes on the topic's executor, errors on any.
func (d Directory) open(name protocol.TopicName, done func(*hosted, error)) {
	s := d.server
	s.owners.lookup(name, true, func(p place, err error) {
		switch {
		case err != nil:
			done(nil, err)
		case p.bundle == nil:
			done(nil, fmt.Errorf("%w: %s", errNotOwner, p.url))
		default:
			s.topics.openIf(s.isThere, name, p.bundle, done)
		}
	})
}

// DeleteTopic removes a topic without partitions, or one partition, with messages and subscriptions. Connected producers
// and consumers are topic.ErrInUse, unless forced: then they are closed. A client that is still there may make a new one.
func (d Directory) DeleteTopic(ctx context.Context, name protocol.TopicName, force bool) error {
	n, err := d.Partitions(ctx, name)
	switch {
	case err != nil:
		return err
	case n > 0:
		return fmt.Errorf("%s: %w", name, ErrPartitioned)
	}
	_, err = await(ctx, "delete "+name.String(), func(done func(struct{}, error)) {
		d.open(name, func(h *hosted, err error) {
			if err != nil {
				done(struct{}{}, err)
				return
			}
			d.server.topics.remove(h, force, func(err error) { done(struct{}{}, err) })
		})
	})
	return err
}

// DeletePartitions removes a partitioned topic: first its partitions, by remove, since other brokers may serve some of
// them; then their number. A partition that is not there (ErrNoSuchTopic) has never been used.
func (d Directory) DeletePartitions(ctx context.Context, name protocol.TopicName, remove func(protocol.TopicName) error) error {
	info, version, err := d.partitioned(ctx, name)
	if err != nil {
		return err
	}
	for i := range int(info.Partitions) {
		if err := remove(name.WithPartition(i)); err != nil && !errors.Is(err, ErrNoSuchTopic) {
			return err
		}
	}
	key := partitionedKey(name)
	outcome, err := await(ctx, "delete "+name.String(), func(done func(metadata.Outcome, error)) {
		d.server.opts.Store.Commit(metadata.Txn{}.If(key, version).Then(metadata.Delete(key)), done)
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errMetadata, err)
	}
	return outcome.Err
}

// Subscriptions returns the names of the durable subscriptions of a topic; of one that is not persistent, those that are
// called so by their consumers.
func (d Directory) Subscriptions(ctx context.Context, name protocol.TopicName) ([]string, error) {
	return await(ctx, "subscriptions of "+name.String(), func(done func([]string, error)) {
		d.open(name, func(h *hosted, err error) {
			if err != nil {
				done(nil, err)
				return
			}
			done(h.t.Subscriptions(), nil)
		})
	})
}

// DeleteSubscription removes a subscription; connected consumers are topic.ErrConsumerBusy, unless forced.
func (d Directory) DeleteSubscription(ctx context.Context, name protocol.TopicName, subscription string, force bool) error {
	_, err := await(ctx, "delete "+subscription+" of "+name.String(), func(done func(struct{}, error)) {
		d.open(name, func(h *hosted, err error) {
			if err != nil {
				done(struct{}{}, err)
				return
			}
			r := topic.UnsubscribeRequest{Subscription: subscription, Force: force}
			h.t.Unsubscribe(r, func(err error) { done(struct{}{}, err) })
		})
	})
	return err
}

// StoredEntry is an entry as it is stored: a message, or a batch of them.
type StoredEntry struct {
	Ledger, Entry             int64
	ProducerName              string
	SequenceID                uint64
	PublishTime, EventTime    uint64 // ms; EventTime 0: none
	DeliverAt                 int64  // ms; 0: at once
	PartitionKey, OrderingKey string
	KeyBase64                 bool
	Batch                     int               // messages; 0: not a batch
	Compression               string            // "": none
	Encrypted                 bool              // by the producer
	Properties                map[string]string // of a message; those of a batch are inside
	Body                      []byte            // as the producer made it: compressed, encrypted
}

// ReadEntry reads one entry of a topic, acknowledged or not.
func (d Directory) ReadEntry(ctx context.Context, name protocol.TopicName, ledgerID, entry int64) (StoredEntry, error) {
	at := ledger.Position{Ledger: ledger.ID(ledgerID), Entry: ledger.EntryID(entry)}
	return await(ctx, "read "+at.String()+" of "+name.String(), func(done func(StoredEntry, error)) {
		d.open(name, func(h *hosted, err error) {
			if err != nil {
				done(StoredEntry{}, err)
				return
			}
			h.t.ReadEntry(at, func(payload []byte, err error) {
				e := StoredEntry{Ledger: ledgerID, Entry: entry}
				if err == nil {
					err = e.parse(payload)
				}
				done(e, err)
			})
		})
	})
}

// parse copies what payload has.
func (e *StoredEntry) parse(payload []byte) error {
	var section protocol.Section
	if err := section.Parse(payload); err != nil {
		return err
	}
	var md pulsarpb.MessageMetadata
	if err := proto.Unmarshal(section.Metadata, &md); err != nil {
		return fmt.Errorf("%w: %w", protocol.ErrBadPayload, err)
	}
	e.ProducerName, e.SequenceID = md.GetProducerName(), md.GetSequenceId()
	e.PublishTime, e.EventTime, e.DeliverAt = md.GetPublishTime(), md.GetEventTime(), md.GetDeliverAtTime()
	e.PartitionKey, e.OrderingKey, e.KeyBase64 = md.GetPartitionKey(), string(md.GetOrderingKey()), md.GetPartitionKeyB64Encoded()
	if md.NumMessagesInBatch != nil {
		e.Batch = int(max(1, md.GetNumMessagesInBatch()))
	}
	if c := md.GetCompression(); c != pulsarpb.CompressionType_NONE {
		e.Compression = c.String()
	}
	e.Encrypted = len(md.EncryptionKeys) > 0
	e.Properties = properties(md.Properties)
	e.Body = append([]byte(nil), section.Body...)
	return nil
}
