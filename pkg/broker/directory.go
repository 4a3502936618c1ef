package broker

import (
	"context"
	"fmt"

	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// Directory answers the questions of the admin API: of a topic that is served here, and of names that any broker can
// look up. Its methods block until the answer or the end of the context; any goroutine.
type Directory struct{ server *Server }

// Directory returns the server's answers for the admin API.
func (s *Server) Directory() Directory { return Directory{s} }

// TopicStats returns the figures of a topic that exists and that this broker serves; it is opened if need be.
func (d Directory) TopicStats(ctx context.Context, name protocol.TopicName) (topic.Stats, error) {
	return await(ctx, "stats of "+name.String(), func(done func(topic.Stats, error)) {
		d.open(name, func(h *hosted, err error) {
			if err != nil {
				done(topic.Stats{}, err)
				return
			}
			h.t.Stats(func(st topic.Stats) { done(st, nil) })
		})
	})
}

// NamespaceTopics returns the full names of the topics of a namespace, served here or not; partitions one by one.
// ErrNoNamespace says that nobody has made or used the namespace.
func (d Directory) NamespaceTopics(ctx context.Context, ns protocol.NamespaceName) ([]string, error) {
	names, err := await(ctx, "topics of "+ns.String(), func(done func([]string, error)) {
		d.server.listTopics(ns, done)
	})
	if err != nil || len(names) > 0 || ns.Tenant == defaultTenant && ns.Local() == "default" {
		return names, err
	}
	r, err := d.namespace(ctx, ns)
	if err == nil && !r.exists() {
		err = ErrNoNamespace
	}
	return nil, err
}

// Partitions returns the number of partitions of a topic, 0 for a topic without.
func (d Directory) Partitions(ctx context.Context, name protocol.TopicName) (int, error) {
	return await(ctx, "partitions of "+name.String(), func(done func(int, error)) {
		readPartitions(d.server.opts.Store, name, func(n uint32, err error) { done(int(n), err) })
	})
}

// Location is where a topic is served.
type Location struct {
	Here  bool // by this broker
	Owned bool // false: by nobody so far; the addresses are those of the broker that should take it
	// Addresses of the broker, empty when there is none of the kind: pulsar://, pulsar+ssl://, http://.
	ServiceURL, TLSURL, WebURL string
}

// Locate returns where a topic is served. A topic that nobody owns is taken by this broker if it is the candidate, or if
// authoritative: another broker thought that it is.
func (d Directory) Locate(ctx context.Context, name protocol.TopicName, authoritative bool) (Location, error) {
	p, err := await(ctx, "lookup of "+name.String(), func(done func(place, error)) {
		d.server.owners.lookup(name, authoritative, done)
	})
	switch {
	case err != nil:
		return Location{}, err
	case p.bundle != nil:
		u := d.server.urls.Load()
		return Location{true, true, u.plain, u.tls, d.server.opts.AdvertisedWebURL}, nil
	}
	return Location{false, p.owned, p.url, p.urlTLS, p.web}, nil
}

// await turns an asynchronous call into a blocking one.
func await[T any](ctx context.Context, what string, call func(done func(T, error))) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	call(func(v T, err error) { answers <- answer{v, err} })
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, fmt.Errorf("%s: %w", what, ctx.Err())
	}
}
