package bookie

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"geminga/pkg/metadata"
)

// maxSnapshot bounds what Restore takes into memory.
const maxSnapshot = 4 << 30

// metaFSM applies the log of the metadata group and feeds its watchers.
type metaFSM struct {
	health *health
	buffer int // events that a watcher may be behind

	mu       sync.RWMutex
	machine  *metadata.Machine
	watchers map[*watcher]struct{}
}

var _ raft.FSM = (*metaFSM)(nil)

func newMetaFSM(h *health, buffer int) *metaFSM {
	return &metaFSM{health: h, buffer: buffer, machine: metadata.NewMachine(), watchers: map[*watcher]struct{}{}}
}

// Apply implements raft.FSM. The answer is a metadata.Outcome.
func (f *metaFSM) Apply(log *raft.Log) any {
	if log.Type != raft.LogCommand {
		return nil
	}
	txn, err := metadata.DecodeTxn(log.Data)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.health.ok() {
		return nil
	}
	if err != nil { // it was decoded before it was proposed; should it be broken, all replicas agree on that
		return metadata.Outcome{Err: err, Failed: -1, Revision: f.machine.Revision()}
	}
	out, events := f.machine.Apply(txn)
	if len(events) > 0 {
		for w := range f.watchers {
			if !w.offer(events, out.Revision, f.buffer) {
				delete(f.watchers, w)
			}
		}
	}
	return out
}

// Snapshot implements raft.FSM: a copy in constant time.
func (f *metaFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &metaSnapshot{f.machine.Clone()}, nil
}

// Restore implements raft.FSM. Watchers have missed what the snapshot brings and are cut off.
func (f *metaFSM) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot))
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	m := metadata.NewMachine()
	if err := m.Restore(b); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.machine = m
	f.cutLocked()
	return nil
}

// cut ends all watches.
func (f *metaFSM) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutLocked()
}

func (f *metaFSM) cutLocked() {
	for w := range f.watchers {
		w.end()
	}
	clear(f.watchers)
}

func (f *metaFSM) get(key string) (metadata.Item, uint64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	it, _ := f.machine.Get(key)
	return it, f.machine.Revision()
}

func (f *metaFSM) list(prefix, after string, limit int) ([]metadata.Item, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.machine.List(prefix, after, limit)
}

// watch returns a copy of the present state and a watcher of everything after it.
func (f *metaFSM) watch(prefix string) (*metadata.Machine, *watcher) {
	w := &watcher{prefix: prefix, wake: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers[w] = struct{}{}
	return f.machine.Clone(), w
}

func (f *metaFSM) unwatch(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
}

// watcher gathers the events below a prefix for one watch. Offering never blocks: a watcher that is too far behind is
// cut off, and its client starts again.
type watcher struct {
	prefix string
	wake   chan struct{} // holds one

	mu       sync.Mutex
	events   []metadata.Item
	revision uint64
	ended    bool
}

func (w *watcher) offer(events []metadata.Item, revision uint64, buffer int) bool {
	w.mu.Lock()
	for _, ev := range events {
		if strings.HasPrefix(ev.Key, w.prefix) {
			w.events = append(w.events, ev)
			w.revision = revision
		}
	}
	full := len(w.events) > buffer
	if full {
		w.events, w.ended = nil, true
	}
	news := full || len(w.events) > 0
	w.mu.Unlock()
	if news {
		w.signal()
	}
	return !full
}

func (w *watcher) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what has gathered.
func (w *watcher) take() (events []metadata.Item, revision uint64, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, w.events = w.events, nil
	return events, w.revision, w.ended
}

// metaSnapshot is a state to be written.
type metaSnapshot struct{ machine *metadata.Machine }

// Persist implements raft.FSMSnapshot.
func (s *metaSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s.machine.AppendSnapshot(nil)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *metaSnapshot) Release() {}
