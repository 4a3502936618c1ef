package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"geminga/pkg/protocol"
)

const maxPartitions = 10_000

// pathDomain is the path value that says whether a topic is persistent.
const pathDomain = "domain"

// topicRoutes adds what is served below the path of a topic.
type topicRoutes func(method, below string, serve http.HandlerFunc)

// routeTopics are the paths of the topics of a domain. Those that are not persistent have nothing that is stored.
func (h *handler) routeTopics(domain string) {
	below := func(root string) topicRoutes {
		return func(method, below string, serve http.HandlerFunc) {
			pattern := method + " " + root + "/" + domain + "/{tenant}/{namespace}/{topic}" + below
			h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				r.SetPathValue(pathDomain, domain)
				serve(w, r)
			})
		}
	}
	below("/lookup/v2/topic")("GET", "", h.serveLookup)
	handle := below("/admin/v2")
	handle("GET", "/stats", h.serveStats)
	handle("GET", "/internalStats", h.serveInternalStats)
	handle("GET", "/partitions", h.servePartitions)
	h.routeOpen(handle)
	if domain == protocol.Persistent {
		handle("PUT", "", h.createTopic)
		handle("PUT", "/partitions", h.createPartitions)
		handle("POST", "/partitions", h.updatePartitions)
		h.routeStored(handle)
	}
}

// topicOf parses the topic that a path names.
func topicOf(r *http.Request) (protocol.TopicName, error) {
	return protocol.ParseTopicName(r.PathValue(pathDomain) + "://" + r.PathValue("tenant") + "/" + r.PathValue("namespace") + "/" +
		r.PathValue("topic"))
}

// withTopic serves one request about a topic, within RequestTimeout.
func (h *handler) withTopic(w http.ResponseWriter, r *http.Request, serve func(context.Context, protocol.TopicName) error) {
	name, err := topicOf(r)
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), h.opts.RequestTimeout)
		defer cancel()
		err = serve(ctx, name)
	}
	if err != nil {
		h.fail(w, r, err)
	}
}

func (h *handler) serveClusters(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, append([]string{}, h.opts.Clusters...))
}

func (h *handler) serveTopics(w http.ResponseWriter, r *http.Request) {
	ns, err := protocol.ParseNamespaceName(r.PathValue("tenant") + "/" + r.PathValue("namespace"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.RequestTimeout)
	defer cancel()
	l, ok := h.opts.Broker.(Lister)
	if !ok {
		h.fail(w, r, errNotYet)
		return
	}
	topics, err := l.NamespaceTopics(ctx, ns)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, append([]string{}, topics...))
}

func (h *handler) serveStats(w http.ResponseWriter, r *http.Request) {
	h.withOwned(w, r, func(ctx context.Context, name protocol.TopicName) error {
		stats, err := h.opts.Broker.TopicStats(ctx, name)
		if err == nil {
			writeJSON(w, http.StatusOK, stats)
		}
		return err
	})
}

// internalStats is the part of Pulsar's PersistentTopicInternalStats that exists, plus the ledger group. Of the ledgers
// only the open one is named.
type internalStats struct {
	NumberOfEntries    int64            `json:"numberOfEntries"`
	TotalSize          int64            `json:"totalSize"`
	LedgerCount        int              `json:"ledgerCount"`
	LastConfirmedEntry string           `json:"lastConfirmedEntry"`
	PendingAddEntries  int              `json:"pendingAddEntriesCount"`
	LedgersReplaced    int              `json:"ledgersReplaced"`
	Ledgers            []internalLedger `json:"ledgers"`
}

type internalLedger struct {
	LedgerID uint64 `json:"ledgerId"`
	Group    uint32 `json:"group"`
}

func (h *handler) serveInternalStats(w http.ResponseWriter, r *http.Request) {
	h.withOwned(w, r, func(ctx context.Context, name protocol.TopicName) error {
		stats, err := h.opts.Broker.TopicStats(ctx, name)
		if err == nil {
			l := stats.Ledger
			writeJSON(w, http.StatusOK, internalStats{
				NumberOfEntries: l.Entries, TotalSize: l.Bytes, LedgerCount: l.Ledgers,
				LastConfirmedEntry: l.LastConfirmed.String(), PendingAddEntries: l.Pending, LedgersReplaced: l.Replaced,
				Ledgers: []internalLedger{{uint64(l.Current.ID), uint32(l.Current.Group)}},
			})
		}
		return err
	})
}

// partitionsAnswer is Pulsar's PartitionedTopicMetadata.
type partitionsAnswer struct {
	Partitions int  `json:"partitions"`
	Deleted    bool `json:"deleted"`
}

func (h *handler) servePartitions(w http.ResponseWriter, r *http.Request) {
	h.withTopic(w, r, func(ctx context.Context, name protocol.TopicName) error {
		c, ok := h.opts.Broker.(Counter)
		if !ok {
			return errNotYet
		}
		n, err := c.Partitions(ctx, name)
		if err == nil {
			writeJSON(w, http.StatusOK, partitionsAnswer{Partitions: n})
		}
		return err
	})
}

func (h *handler) createPartitions(w http.ResponseWriter, r *http.Request) {
	h.changePartitions(w, r, Partitioner.CreatePartitions)
}

func (h *handler) updatePartitions(w http.ResponseWriter, r *http.Request) {
	h.changePartitions(w, r, Partitioner.UpdatePartitions)
}

type partitionChange func(p Partitioner, ctx context.Context, name protocol.TopicName, n int) error

func (h *handler) changePartitions(w http.ResponseWriter, r *http.Request, change partitionChange) {
	h.withTopic(w, r, func(ctx context.Context, name protocol.TopicName) error {
		p, ok := h.opts.Broker.(Partitioner)
		if !ok {
			return errNotYet
		}
		n, err := partitionCount(r.Body)
		if err != nil {
			return err
		}
		if err := change(p, ctx, name, n); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}

// partitionCount reads 4 or {"partitions": 4}: older and newer clients, with a content type of their own.
func partitionCount(body io.Reader) (int, error) {
	var raw json.RawMessage
	if err := json.NewDecoder(body).Decode(&raw); err != nil {
		return 0, errBadCount
	}
	var m struct{ Partitions int }
	if json.Unmarshal(raw, &m.Partitions) != nil && json.Unmarshal(raw, &m) != nil || m.Partitions < 1 || m.Partitions > maxPartitions {
		return 0, errBadCount
	}
	return m.Partitions, nil
}

// createTopic makes a topic without partitions. The body holds properties, which are not kept.
func (h *handler) createTopic(w http.ResponseWriter, r *http.Request) {
	h.withOwned(w, r, func(ctx context.Context, name protocol.TopicName) error {
		c, ok := h.opts.Broker.(Creator)
		if !ok {
			return errNotYet
		}
		if err := c.CreateTopic(ctx, name); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}
