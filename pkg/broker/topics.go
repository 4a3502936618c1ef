package broker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"geminga/pkg/executor"
	"geminga/pkg/managedledger"
	"geminga/pkg/protocol"
	"geminga/pkg/topic"
)

// topics is the map of the topics that are open here, opening or closing.
//
//	(absent) ──get──▶ opening ──ok──▶ serving ──unload, bundle lost, shutdown──▶ closing ──▶ (absent)
//	   ▲                 │ failed         │ topic.Lost
//	   └─────────────────┴────────────────┘
//
// At most one opening of a topic is under way; all who ask meanwhile wait for its end. A failed one leaves nothing
// behind: whoever asks next tries anew, and clients do.
type topics struct {
	server  *Server
	deleted atomic.Int64 // topics deleted here
	mu      struct {
		sync.Mutex
		byName  map[string]*hosted
		loads   int       // most at a time; 0: no limit
		loading int       // under way
		queue   []*hosted // that wait for their turn to load
	}
}

type hostedState uint8

const (
	hostedOpening hostedState = iota
	hostedServing
	hostedClosing
)

// hosted is a topic that is in the map.
type hosted struct {
	server  *Server
	name    protocol.TopicName
	text    string
	bundle  *bundle
	exec    *executor.Executor
	t       *topic.Topic // set before hostedServing
	batches []*batch     // by loop; each owned by its loop
	in, out traffic
	peers   peers
	limit   publishLimit

	subscribes subscribeLimit // on exec

	// Guarded by topics.mu.
	state   hostedState
	waiting []func(*hosted, error)
	closed  []func(error)
	doomed  bool // to be closed as soon as it is open
}

// traffic counts messages and bytes.
type traffic struct{ messages, bytes atomic.Int64 }

func (t *traffic) add(messages, bytes int64) {
	t.messages.Add(messages)
	t.bytes.Add(bytes)
}

func (ts *topics) init(s *Server) {
	ts.server = s
	ts.mu.byName = make(map[string]*hosted)
}

// get gives the topic to done on the topic's executor, opening it if need be. Errors come on any goroutine, perhaps
// inline. create allows a topic that does not exist to be made, if the broker does such things at all.
func (ts *topics) get(name protocol.TopicName, create bool, done func(*hosted, error)) {
	s := ts.server
	if s.closing.Load() {
		done(nil, errShuttingDown)
		return
	}
	b := s.owners.owned(name)
	if b == nil {
		done(nil, errNotOwner)
		return
	}
	if s.mayMake(create) {
		ts.open(name, b, done)
		return
	}
	ts.openIf(s.exists, name, b, done)
}

// existence is isThere or exists.
type existence func(protocol.TopicName, func(bool, error))

// openIf opens a topic only if it is there. What it knows is too old when a topic was deleted meanwhile.
func (ts *topics) openIf(there existence, name protocol.TopicName, b *bundle, done func(*hosted, error)) {
	deleted := ts.deleted.Load()
	there(name, func(ok bool, err error) {
		switch {
		case err != nil:
			done(nil, err)
		case !ok:
			done(nil, fmt.Errorf("%s: %w", name, errNoSuchTopic))
		case deleted != ts.deleted.Load():
			ts.openIf(there, name, b, done)
		default:
			ts.open(name, b, done)
		}
	})
}

func (ts *topics) open(name protocol.TopicName, b *bundle, done func(*hosted, error)) {
	text := name.String()
	ts.mu.Lock()
	h := ts.mu.byName[text]
	if h != nil {
		switch h.state {
		case hostedServing:
			ts.mu.Unlock()
			h.exec.PostFunc(func() { done(h, nil) })
			return
		case hostedOpening:
			h.waiting = append(h.waiting, done)
			ts.mu.Unlock()
			return
		}
		ts.mu.Unlock()
		done(nil, errMoved)
		return
	}
	h = &hosted{
		server: ts.server, name: name, text: text, bundle: b, exec: ts.server.topicPool.For(text),
		batches: make([]*batch, len(ts.server.states)), waiting: []func(*hosted, error){done},
	}
	h.limit.why = throttleTopicRate
	ts.mu.byName[text] = h
	ts.mu.Unlock()
	ts.server.rates.apply(h)
	ts.enqueue(h)
}

// load opens the topic itself.
func (ts *topics) load(h *hosted) {
	env := ts.server.topicEnv
	env.Ledger.Executor = h.exec
	env.Options = *ts.server.topicOptions.Load()
	env.Ledger.Epoch = h.bundle.epoch
	env.Lost = func(_ *topic.Topic, err error) { ts.lost(h, err) }
	ts.server.metrics.loading(1)
	topic.Open(env, h.name, func(t *topic.Topic, err error) { // on the topic's executor
		ts.server.metrics.loading(-1)
		ts.opened(h, t, err)
	})
}

// enqueue loads a topic as soon as not too many others are loading.
func (ts *topics) enqueue(h *hosted) {
	ts.mu.Lock()
	ts.mu.queue = append(ts.mu.queue, h)
	ts.mu.Unlock()
	ts.loadNext()
}

// setLoads changes maxConcurrentTopicLoadRequest.
func (ts *topics) setLoads(most int) {
	ts.mu.Lock()
	ts.mu.loads = most
	ts.mu.Unlock()
	ts.loadNext()
}

// loadNext starts to load what may be loaded.
func (ts *topics) loadNext() {
	for {
		ts.mu.Lock()
		if len(ts.mu.queue) == 0 || ts.mu.loads > 0 && ts.mu.loading >= ts.mu.loads {
			ts.mu.Unlock()
			return
		}
		h := ts.mu.queue[0]
		ts.mu.queue = slices.Delete(ts.mu.queue, 0, 1)
		doomed := h.doomed
		ts.mu.loading++
		ts.mu.Unlock()
		if doomed { // nobody wants it any more
			h.exec.PostFunc(func() { ts.opened(h, nil, errMoved) })
			continue
		}
		ts.load(h)
	}
}

func (ts *topics) opened(h *hosted, t *topic.Topic, err error) {
	h.t = t
	ts.mu.Lock()
	ts.mu.loading--
	waiting := h.waiting
	h.waiting = nil
	doomed := h.doomed
	switch {
	case err != nil:
		delete(ts.mu.byName, h.text)
	case doomed:
		h.state = hostedClosing
		err = errMoved
	default:
		h.state = hostedServing
	}
	closed := h.closed
	if t == nil {
		h.closed = nil
	}
	ts.mu.Unlock()
	if err != nil && !doomed {
		ts.server.log.Warn("Topic cannot be opened", "topic", h.text, "error", err)
		if errors.Is(err, managedledger.ErrLost) {
			ts.server.owners.lost(h.bundle)
		}
	}
	if err == nil {
		t.Configure(*ts.server.topicOptions.Load()) // they may have changed since load
	}
	for _, done := range waiting {
		if err != nil {
			done(nil, err)
		} else {
			done(h, nil)
		}
	}
	switch {
	case t == nil:
		for _, f := range closed {
			f(nil)
		}
	case doomed:
		ts.shut(h)
	}
	ts.loadNext()
}

// configure puts the options in force in an open topic. One that is opening looks at them when it is open, which is after
// they have changed.
func (ts *topics) configure(h *hosted) {
	if ts.serving(h.text) == h {
		h.exec.PostFunc(func() { h.t.Configure(*ts.server.topicOptions.Load()) })
	}
}

// lost forgets a topic that another owner has taken, or whose log failed. On its executor. The topic has closed its
// producers and consumers and ends by itself.
func (ts *topics) lost(h *hosted, err error) {
	ts.server.log.Warn("Topic lost", "topic", h.text, "error", err)
	if errors.Is(err, managedledger.ErrLost) {
		ts.server.owners.lost(h.bundle)
	}
	ts.unload(h, func(error) {})
}

// unload closes a topic; done comes on some goroutine when it is closed.
func (ts *topics) unload(h *hosted, done func(error)) {
	ts.mu.Lock()
	if ts.mu.byName[h.text] != h {
		ts.mu.Unlock()
		done(nil)
		return
	}
	h.closed = append(h.closed, done)
	before := h.state
	if before == hostedServing {
		h.state = hostedClosing
	}
	h.doomed = true
	ts.mu.Unlock()
	if before == hostedServing {
		ts.shut(h)
	}
}

// shut closes a topic in state closing.
func (ts *topics) shut(h *hosted) {
	h.limit.close()
	h.exec.PostFunc(func() { h.t.Close(func(err error) { ts.ended(h, err) }) })
}

// ended forgets a topic that has closed.
func (ts *topics) ended(h *hosted, err error) {
	ts.mu.Lock()
	delete(ts.mu.byName, h.text)
	closed := h.closed
	h.closed = nil
	ts.mu.Unlock()
	if err != nil {
		ts.server.log.Warn("Topic closed with errors", "topic", h.text, "error", err)
	}
	for _, f := range closed {
		f(err)
	}
}

// remove deletes a topic. It is closing until all of it is gone: whoever asks for it meanwhile is told to come again, and
// makes a new one then, or none. On its executor; done comes there too.
func (ts *topics) remove(h *hosted, force bool, done func(error)) {
	if !force && h.t.InUse() {
		done(fmt.Errorf("%s: %w", h.text, topic.ErrInUse))
		return
	}
	ts.mu.Lock()
	if ts.mu.byName[h.text] != h || h.state != hostedServing {
		ts.mu.Unlock()
		done(errMoved)
		return
	}
	h.state, h.doomed = hostedClosing, true
	h.closed = append(h.closed, done)
	ts.mu.Unlock()
	h.limit.close()
	h.t.Delete(true, func(err error) {
		ts.deleted.Add(1)
		ts.ended(h, err)
	})
}

// all returns the topics of a bundle, or of all (nil).
func (ts *topics) all(b *bundle) []*hosted {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var out []*hosted
	for _, h := range ts.mu.byName {
		if b == nil || h.bundle.key == b.key {
			out = append(out, h)
		}
	}
	return out
}

// serving returns an open topic, or nil.
func (ts *topics) serving(text string) *hosted {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if h := ts.mu.byName[text]; h != nil && h.state == hostedServing {
		return h
	}
	return nil
}
