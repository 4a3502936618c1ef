package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/pkg/protocol"
)

// ownership knows which bundles this broker owns and finds the owners of others.
//
// A bundle is a range of the hashes of the topics of a namespace; its owner is the record OwnerKey. Taking a bundle is a
// compare-and-set of that record which raises its epoch, and the epoch goes with everything the owner does to ledgers.
// So it does not matter if gossip is wrong about who lives: an owner that was deposed while it slept finds out by its
// next write, and nothing that it was told is stored gets lost.
//
//	       read record
//	          │ ours, this incarnation ────────────────────────────────▶ owned
//	          │ of a live other ───────────────────────────────────────▶ redirect there
//	          │ free, or its owner is dead ─▶ candidate by rendezvous: other ▶ redirect there (authoritative)
//	          │                                                         ours, or asked authoritatively
//	          ▼
//	compare-and-set {us, incarnation, epoch+1} ── ok ──────────────────▶ owned
//	          │ somebody was faster, or the outcome is not known
//	          └──▶ read again (a few times)
type ownership struct {
	server *Server
	mu     struct {
		sync.Mutex
		counts  map[string]int // bundles of a namespace
		waiting map[string][]func(int, error)
		bundles map[string]*bundle // by key
	}
}

// bundle is a bundle that this broker owns or is about to take.
type bundle struct {
	key string

	// Guarded by ownership.mu; epoch is read freely by those who got the bundle as owned: it never changes then.
	owned   bool
	epoch   ledger.Epoch
	version int64 // of the record
	busy    bool  // a search is under way
	waiting []seeker
}

type seeker struct {
	authoritative bool
	done          func(place, error)
}

// maxAttempts bounds the rounds of one search.
const maxAttempts = 5

func (o *ownership) init(s *Server) {
	o.server = s
	o.mu.counts = make(map[string]int)
	o.mu.waiting = make(map[string][]func(int, error))
	o.mu.bundles = make(map[string]*bundle)
}

// owned returns the bundle of a topic if this broker owns it as far as it knows.
func (o *ownership) owned(n protocol.TopicName) *bundle {
	o.mu.Lock()
	defer o.mu.Unlock()
	count := o.mu.counts[n.NamespaceName().String()]
	if count == 0 {
		return nil
	}
	if b := o.mu.bundles[bundleKey(n, count)]; b != nil && b.owned {
		return b
	}
	return nil
}

// lookup finds who serves a topic, and takes its bundle if it is ours to take. done comes on any goroutine, perhaps
// inline.
func (o *ownership) lookup(n protocol.TopicName, authoritative bool, done func(place, error)) {
	if o.server.urls.Load() == nil || o.server.closing.Load() {
		done(place{}, errShuttingDown)
		return
	}
	if b := o.owned(n); b != nil {
		done(place{bundle: b}, nil)
		return
	}
	o.bundles(n.NamespaceName(), func(count int, err error) {
		if err != nil {
			done(place{}, err)
			return
		}
		o.seek(bundleKey(n, count), seeker{authoritative, done})
	})
}

// seek starts a search for the owner of a bundle, or joins the one under way.
func (o *ownership) seek(key string, s seeker) {
	o.mu.Lock()
	b := o.mu.bundles[key]
	if b == nil {
		b = &bundle{key: key}
		o.mu.bundles[key] = b
	}
	if b.owned {
		o.mu.Unlock()
		s.done(place{bundle: b}, nil)
		return
	}
	b.waiting = append(b.waiting, s)
	search := !b.busy
	b.busy = true
	o.mu.Unlock()
	if search {
		o.read(b, s.authoritative, 0)
	}
}

// read is one round of a search.
func (o *ownership) read(b *bundle, authoritative bool, attempt int) {
	if attempt == maxAttempts {
		o.finish(b, place{}, errNoOwner)
		return
	}
	o.server.opts.Store.Get(b.key, func(item metadata.Item, err error) {
		if err != nil {
			o.finish(b, place{}, fmt.Errorf("%w: %w", errMetadata, err))
			return
		}
		var info metadata.OwnerInfo
		if item.Version != 0 {
			if err := json.Unmarshal(item.Value, &info); err != nil {
				o.finish(b, place{}, fmt.Errorf("owner record %s does not decode: %w", b.key, err))
				return
			}
		}
		o.decide(b, info, item.Version, authoritative, attempt)
	})
}

// decide looks at the record: ours, another's, or to be taken.
func (o *ownership) decide(b *bundle, info metadata.OwnerInfo, version int64, authoritative bool, attempt int) {
	me := &o.server.opts
	if info.Broker == me.ID && info.Incarnation == me.Incarnation {
		// Ours by a compare-and-set whose answer was lost, or given up by us a moment ago: its epoch is used up by then,
		// so it is taken anew.
		if !o.take(b, info.Epoch, version) {
			o.claim(b, info, version, authoritative, attempt)
		}
		return
	}
	live := o.live()
	if info.Broker != "" && info.Broker != me.ID {
		i := slices.IndexFunc(live, func(m Member) bool { return m.ID == info.Broker })
		switch {
		case i >= 0 && (live[i].Incarnation == "" || live[i].Incarnation == info.Incarnation):
			o.finish(b, place{url: info.ServiceURL, urlTLS: info.TLSURL, web: info.WebURL, owned: true}, nil)
			return
		case i < 0 && me.Members != nil && !me.Members.Settled():
			o.finish(b, place{}, errNoOwner) // we may not have heard of it yet
			return
		}
	}
	if c := candidate(b.key, live); !authoritative && c.ID != me.ID && c.ServiceURL != "" {
		o.finish(b, place{url: c.ServiceURL, urlTLS: c.TLSURL, web: c.WebURL}, nil)
		return
	}
	o.claim(b, info, version, authoritative, attempt)
}

// claim tries to become the owner.
func (o *ownership) claim(b *bundle, old metadata.OwnerInfo, version int64, authoritative bool, attempt int) {
	s := o.server
	if s.closing.Load() {
		o.finish(b, place{}, errShuttingDown)
		return
	}
	u := s.urls.Load()
	info := metadata.OwnerInfo{
		Broker: s.opts.ID, Incarnation: s.opts.Incarnation, Epoch: old.Epoch + 1, ServiceURL: u.plain, TLSURL: u.tls,
		WebURL: s.opts.AdvertisedWebURL,
	}
	value, err := json.Marshal(info)
	if err != nil {
		o.finish(b, place{}, err)
		return
	}
	var txn metadata.Txn
	txn = txn.If(b.key, version).Then(metadata.Put(b.key, value))
	s.opts.Store.Commit(txn, func(out metadata.Outcome, err error) {
		if err != nil || out.Err != nil || len(out.Versions) != 1 {
			o.read(b, authoritative, attempt+1) // lost the race, or do not know: the record tells
			return
		}
		if !o.take(b, info.Epoch, out.Versions[0]) {
			o.read(b, authoritative, attempt+1)
		}
	})
}

// take notes that the bundle is ours. An epoch that was ours before and has been given up is refused.
func (o *ownership) take(b *bundle, epoch ledger.Epoch, version int64) bool {
	o.mu.Lock()
	if epoch <= b.epoch {
		o.mu.Unlock()
		return false
	}
	// The bundle is replaced, so that epoch never changes in one that was given out.
	n := &bundle{key: b.key, owned: true, epoch: epoch, version: version}
	o.mu.bundles[b.key] = n
	waiting := b.waiting
	b.waiting, b.busy = nil, false
	o.mu.Unlock()
	o.server.log.Info("Bundle taken", "bundle", b.key, "epoch", epoch)
	for _, w := range waiting {
		w.done(place{bundle: n}, nil)
	}
	return true
}

// finish ends a search without ownership.
func (o *ownership) finish(b *bundle, p place, err error) {
	o.mu.Lock()
	waiting := b.waiting
	b.waiting, b.busy = nil, false
	o.mu.Unlock()
	for _, w := range waiting {
		w.done(p, err)
	}
}

// lost gives up a bundle that another broker has, or may have: its topics are closed. The next lookup reads the record.
func (o *ownership) lost(b *bundle) {
	o.mu.Lock()
	had := b.owned
	b.owned = false
	o.mu.Unlock()
	if !had {
		return
	}
	o.server.log.Warn("Bundle lost", "bundle", b.key, "epoch", b.epoch)
	for _, h := range o.server.topics.all(b) {
		o.server.topics.unload(h, func(error) {})
	}
}

// changed is told by the watch of owner records.
func (o *ownership) changed(items []metadata.Item, _ bool) {
	for i := range items {
		o.mu.Lock()
		b := o.mu.bundles[items[i].Key]
		newer := b != nil && b.owned && (items[i].Version > b.version || items[i].Version == 0)
		o.mu.Unlock()
		if newer {
			o.lost(b)
		}
	}
}

// releaseAll gives every bundle up, so that others can take it at once.
func (o *ownership) releaseAll(ctx context.Context) error {
	o.mu.Lock()
	var mine []*bundle
	for _, b := range o.mu.bundles {
		if b.owned {
			b.owned = false
			mine = append(mine, b)
		}
	}
	o.mu.Unlock()
	done := make(chan error, len(mine))
	for _, b := range mine {
		value, err := json.Marshal(metadata.OwnerInfo{Epoch: b.epoch})
		if err != nil {
			return err
		}
		var txn metadata.Txn
		txn = txn.If(b.key, b.version).Then(metadata.Put(b.key, value))
		o.server.opts.Store.Commit(txn, func(out metadata.Outcome, err error) {
			if errors.Is(out.Err, metadata.ErrBadVersion) {
				out.Err = nil // another has it already
			}
			done <- errors.Join(err, out.Err)
		})
	}
	var errs []error
	for range mine {
		select {
		case err := <-done:
			errs = append(errs, err)
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("broker: releasing bundles: %w", ctx.Err()))...)
		}
	}
	return errors.Join(errs...)
}

// live returns the brokers that are alive, this one always among them.
func (o *ownership) live() []Member {
	s := o.server
	u := s.urls.Load()
	me := Member{ID: s.opts.ID, Incarnation: s.opts.Incarnation, ServiceURL: u.plain, TLSURL: u.tls}
	out := []Member{me}
	if s.opts.Members != nil {
		for _, m := range s.opts.Members.Brokers() {
			if m.ID != me.ID {
				out = append(out, m)
			}
		}
	}
	return out
}
