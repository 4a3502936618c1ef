package managedledger

import (
	"errors"
	"fmt"
	"log/slog"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// opening makes a managed ledger out of what an earlier owner has left. It lives on the topic's executor.
//
//	read the list ──▶ fence the open ledgers, in order ──▶ create a ledger ──▶ put the list ──▶ read the cursors' names
//	     ▲                                                                        │
//	     └────────────────────────── another version ─────────────────────────────┘
//
// One put closes what was open, drops what was empty, adds the new ledger and raises the epoch: from then on every put
// of an earlier owner fails. Its appends fail since the fence. In between it may still put, which is the "another
// version" above, or not, in which case all it has ever had acknowledged is in the ledgers that were fenced: an op
// completes only in a ledger that the list names.
//
// Closing the ledgers in their groups comes after the put and is not waited for: the list decides, the group follows.
type opening struct {
	env    Env
	opts   Options
	key    string
	log    *slog.Logger
	record record
	done   func(*ManagedLedger, error)
	limit  *executor.Timer
	tries  int

	info   Info
	at     int // next ledger of info to look at
	closed []closing
	fresh  ledger.Ref // survives starting again
	put    bool       // fresh may be in the list
	names  []string
}

type closing struct {
	ref  ledger.Ref
	last ledger.EntryID
}

// Open recovers or creates the managed ledger kept under a metadata key. done comes on env.Executor, never inline. An
// error that is ErrLost says that a newer owner exists; after any other, Open may be tried again.
func Open(env Env, key string, opts Options, done func(*ManagedLedger, error)) {
	if env.Logger == nil {
		env.Logger = slog.New(slog.DiscardHandler)
	}
	if env.Metrics == nil {
		env.Metrics, _ = NewMetrics(nil) // cannot fail: nothing is measured
	}
	opts.EnsureDefaults()
	o := &opening{env: env, opts: opts, key: key, done: done, log: env.Logger.With("topic", key, "epoch", env.Epoch)}
	o.record = record{store: env.Store, executor: env.Executor, key: key}
	env.Executor.PostFunc(func() {
		if err := opts.Validate(); err != nil {
			o.finish(nil, err)
			return
		}
		o.limit = env.Executor.After(opts.OpenTimeout, executor.Func(func() {
			o.finish(nil, fmt.Errorf("managedledger: open %s: no answer within %s: %w", key, opts.OpenTimeout, ledger.ErrUnknown))
		}))
		o.load()
	})
}

// call makes f the continuation of a callback on another goroutine: it runs on the executor unless opening has ended.
func (o *opening) call(f func()) {
	o.env.Executor.PostFunc(func() {
		if o.done != nil {
			f()
		}
	})
}

// again runs step after a while.
func (o *opening) again(what string, err error, step func()) {
	if errors.Is(err, ledger.ErrShutdown) {
		o.finish(nil, err)
		return
	}
	o.log.Debug("opening is delayed", "at", what, "err", err)
	o.env.Executor.After(backoff(o.tries), executor.Func(func() {
		if o.done != nil {
			step()
		}
	}))
	o.tries++
}

func (o *opening) load() {
	o.env.Store.Get(o.key, func(item metadata.Item, err error) {
		o.call(func() {
			if err != nil {
				o.again("list", err, o.load)
				return
			}
			o.loaded(item)
		})
	})
}

func (o *opening) loaded(item metadata.Item) {
	o.info, o.at, o.closed = Info{}, 0, nil
	o.record.version = item.Version
	if item.Version != 0 {
		info, err := DecodeInfo(item.Value)
		if err != nil {
			o.finish(nil, err)
			return
		}
		o.info = info
	}
	if o.info.Epoch > o.env.Epoch {
		o.finish(nil, fmt.Errorf("%w: epoch %d, ours is %d", ErrLost, o.info.Epoch, o.env.Epoch))
		return
	}
	o.fence()
}

// fence learns the last entry of the next open ledger.
func (o *opening) fence() {
	for o.at < len(o.info.Ledgers) && o.info.Ledgers[o.at].Closed {
		o.at++
	}
	if o.at == len(o.info.Ledgers) {
		o.create()
		return
	}
	ref := o.info.Ledgers[o.at].ref()
	o.env.Bookies.Fence(ref, o.env.Epoch, func(last ledger.EntryID, err error) {
		o.call(func() { o.fenced(ref, last, err) })
	})
}

func (o *opening) fenced(ref ledger.Ref, last ledger.EntryID, err error) {
	switch {
	case errors.Is(err, ledger.ErrFenced):
		o.finish(nil, fmt.Errorf("%w: %w: %s", ErrLost, err, ref))
	case err != nil:
		// Also ErrNoLedger: either a newer owner has dropped it, which the list will say, or this topic's data is gone,
		// and then there is nothing to do but to say so when time is up.
		o.again("fence "+ref.String(), err, o.load)
	default:
		if ref == o.fresh { // put by us after all, and fenced now
			o.fresh = ledger.Ref{}
		}
		if !o.info.closeAt(ref.ID, last, o.info.Ledgers[o.at].Bytes) {
			o.closed = append(o.closed, closing{ref, last})
			o.at++
		}
		o.fence()
	}
}

func (o *opening) create() {
	if o.fresh.ID > o.info.newest() {
		o.save()
		return
	}
	if o.fresh.ID != 0 { // made before the ledgers that an earlier owner has put meanwhile: positions must ascend
		o.env.Bookies.Delete(o.fresh, ignore)
		o.fresh = ledger.Ref{}
	}
	o.env.Bookies.Create(o.env.Epoch, 0, func(ref ledger.Ref, err error) {
		o.env.Executor.PostFunc(func() {
			switch {
			case err == nil && o.done == nil:
				o.env.Bookies.Delete(ref, ignore)
			case err == nil:
				o.fresh = ref
				o.create()
			case o.done != nil:
				o.again("create", err, o.create)
			}
		})
	})
}

func (o *opening) save() {
	o.info.Epoch = o.env.Epoch
	o.info.ensure(o.fresh)
	value, err := o.info.Encode()
	if err != nil {
		o.finish(nil, err)
		return
	}
	o.put = true
	o.record.put(value, func(err error) {
		switch {
		case o.done == nil:
		case errors.Is(err, errConflict):
			o.again("list", err, o.load)
		case err != nil:
			o.finish(nil, err)
		default:
			o.follow()
			o.listCursors()
		}
	})
}

// follow tells the groups what the list says.
func (o *opening) follow() {
	for _, c := range o.closed {
		o.env.Bookies.Close(c.ref, c.last, ignore)
	}
}

func (o *opening) listCursors() {
	o.env.Store.List(metadata.CursorPrefix(o.key), func(items []metadata.Item, err error) {
		o.call(func() {
			if err != nil {
				o.again("cursors", err, o.listCursors)
				return
			}
			for _, item := range items {
				if name, ok := metadata.CursorName(item.Key); ok {
					o.names = append(o.names, name)
				}
			}
			o.finish(o.build(), nil)
		})
	})
}

func (o *opening) build() *ManagedLedger {
	m := &ManagedLedger{env: o.env, opts: o.opts, key: o.key, log: o.log}
	m.kick.m = m
	m.list = list{m: m, record: o.record, info: o.info}
	m.cursors.names = o.names
	var segments []segment
	for _, l := range o.info.Ledgers {
		if l.Closed {
			segments = append(segments, segment{ref: l.ref(), entries: l.Entries, bytes: l.Bytes})
		}
	}
	m.writer = newWriter(m, o.fresh)
	m.view.Store(newView(segments, o.fresh, &m.writer.confirmed))
	m.watchAge(m.opts.MaxRolloverTime)
	m.sweep()
	m.watchTrim()
	return m
}

func (o *opening) finish(m *ManagedLedger, err error) {
	if o.done == nil {
		return
	}
	done := o.done
	o.done = nil
	if o.limit != nil {
		o.limit.Stop()
	}
	if err != nil {
		o.record.stop()
		if o.fresh != (ledger.Ref{}) && !o.put {
			o.env.Bookies.Delete(o.fresh, ignore)
		}
		done(nil, fmt.Errorf("open %s: %w", o.key, err))
		return
	}
	o.log.Info("managed ledger open", "ledger", o.fresh, "last", m.LastConfirmed(), "fenced", len(o.closed))
	done(m, nil)
}
