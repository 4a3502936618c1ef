package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"geminga/pkg/broker"
	"geminga/pkg/protocol"
)

// Stored works on topics that exist, on the broker that serves them; topics that are not persistent exist while they are open.
type Stored interface {
	DeleteTopic(ctx context.Context, name protocol.TopicName, force bool) error
	// DeletePartitions calls remove for each partition, which may be on another broker.
	DeletePartitions(ctx context.Context, name protocol.TopicName, remove func(protocol.TopicName) error) error
	Subscriptions(ctx context.Context, name protocol.TopicName) ([]string, error)
	DeleteSubscription(ctx context.Context, name protocol.TopicName, subscription string, force bool) error
	ReadEntry(ctx context.Context, name protocol.TopicName, ledger, entry int64) (broker.StoredEntry, error)
}

// routeOpen are the paths of what every topic has.
func (h *handler) routeOpen(handle topicRoutes) {
	handle("DELETE", "", h.withStored(
		func(s Stored, name protocol.TopicName, w http.ResponseWriter, r *http.Request) error {
			return answerDone(w, s.DeleteTopic(r.Context(), name, forced(r)))
		}))
	handle("GET", "/subscriptions", h.withStored(
		func(s Stored, name protocol.TopicName, w http.ResponseWriter, r *http.Request) error {
			return answer(w)(s.Subscriptions(r.Context(), name))
		}))
	handle("DELETE", "/subscription/{subscription}", h.withStored(
		func(s Stored, name protocol.TopicName, w http.ResponseWriter, r *http.Request) error {
			return answerDone(w, s.DeleteSubscription(r.Context(), name, r.PathValue("subscription"), forced(r)))
		}))
}

// routeStored are the paths of what only persistent topics have.
func (h *handler) routeStored(handle topicRoutes) {
	handle("DELETE", "/partitions", h.deletePartitions)
	handle("GET", "/ledger/{ledger}/entry/{entry}", h.withStored(serveEntry))
}

func (h *handler) withStored(
	serve func(Stored, protocol.TopicName, http.ResponseWriter, *http.Request) error,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.withOwned(w, r, func(ctx context.Context, name protocol.TopicName) error {
			s, ok := h.opts.Broker.(Stored)
			if !ok {
				return errNotYet
			}
			return serve(s, name, w, r.WithContext(ctx))
		})
	}
}

// deletePartitions is served by any broker.
func (h *handler) deletePartitions(w http.ResponseWriter, r *http.Request) {
	h.withTopic(w, r, func(ctx context.Context, name protocol.TopicName) error {
		s, ok := h.opts.Broker.(Stored)
		if !ok {
			return errNotYet
		}
		return answerDone(w, s.DeletePartitions(ctx, name, func(partition protocol.TopicName) error {
			return h.deleteAnywhere(ctx, s, partition, forced(r))
		}))
	})
}

func forced(r *http.Request) bool { return r.URL.Query().Get("force") == "true" }

// serveEntry answers one stored entry: what its metadata says in headers, the message or the batch as the body. Pulsar's
// brokers decompress; this one leaves it to the client, and says so in a header of its own.
func serveEntry(s Stored, name protocol.TopicName, w http.ResponseWriter, r *http.Request) error {
	ledger, bad1 := strconv.ParseInt(r.PathValue("ledger"), 10, 64)
	entry, bad2 := strconv.ParseInt(r.PathValue("entry"), 10, 64)
	if bad1 != nil || bad2 != nil || ledger < 0 || entry < 0 {
		return errBadEntry
	}
	e, err := s.ReadEntry(r.Context(), name, ledger, entry)
	if err != nil {
		return err
	}
	set := func(name, value string) {
		if value != "" && value != "0" {
			w.Header().Set("X-Pulsar-"+name, value)
		}
	}
	set("Message-ID", fmt.Sprintf("%d:%d", ledger, entry))
	set("producer-name", e.ProducerName)
	w.Header().Set("X-Pulsar-sequence-id", strconv.FormatUint(e.SequenceID, 10))
	w.Header().Set("X-Pulsar-publish-time", date(int64(e.PublishTime)))
	if e.EventTime != 0 {
		set("event-time", date(int64(e.EventTime)))
	}
	if e.DeliverAt != 0 {
		set("deliver-at-time", date(e.DeliverAt))
	}
	set("partition-key", e.PartitionKey)
	if e.KeyBase64 {
		set("partition-key-b64-encoded", "true")
	}
	set("ordering-key", e.OrderingKey)
	set("num-batch-message", strconv.Itoa(e.Batch))
	set("compression", e.Compression)
	if e.Encrypted {
		set("Is-Encrypted", "true")
	}
	if len(e.Properties) > 0 {
		text, err := json.Marshal(e.Properties)
		if err != nil {
			return err
		}
		set("PROPERTY", string(text))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(e.Body)
	return nil
}

// date is how Pulsar writes times in headers.
func date(millis int64) string {
	return time.UnixMilli(millis).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
