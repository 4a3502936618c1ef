package managedledger

import (
	"errors"
	"fmt"
	"slices"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// CursorOptions describe a cursor to open.
type CursorOptions struct {
	Name    string
	Durable bool
	// Initial is where a new cursor begins: ledger.Earliest, ledger.Latest (behind the last entry) or an entry, which is
	// the first to read if Inclusive, else the last not to read. A durable cursor that exists keeps its own place.
	Initial   ledger.Position
	Inclusive bool
	Executor  *executor.Executor // the subscription's
}

// OpenCursor opens, recovers or creates a cursor. done comes on the cursor's executor, never inline. An error that is
// ErrLost says that a newer owner exists.
func (m *ManagedLedger) OpenCursor(o CursorOptions, done func(*Cursor, error)) {
	m.assertCurrent()
	c := newCursor(m, o)
	err := m.addCursor(c, o.Durable)
	c.place(m.snapshot(), o.Initial, o.Inclusive)
	o.Executor.PostFunc(func() {
		switch {
		case err != nil:
			done(nil, err)
		case !o.Durable:
			done(c, nil)
		default:
			(&cursorOpening{c: c, done: done}).begin()
		}
	})
}

func (m *ManagedLedger) addCursor(c *Cursor, durable bool) error {
	if m.state != stateOpen {
		return ErrClosed
	}
	if slices.ContainsFunc(m.cursors.open, func(o *Cursor) bool { return o.name == c.name }) {
		return fmt.Errorf("%w: %s", ErrCursorExists, c.name)
	}
	m.cursors.open = append(m.cursors.open, c)
	m.cursors.n.Store(int32(len(m.cursors.open)))
	if durable && !slices.Contains(m.cursors.names, c.name) {
		m.cursors.names = append(m.cursors.names, c.name)
	}
	return nil
}

func (m *ManagedLedger) removeCursor(c *Cursor) {
	m.cursors.open = slices.DeleteFunc(m.cursors.open, func(o *Cursor) bool { return o == c })
	m.cursors.n.Store(int32(len(m.cursors.open)))
}

// cursorOpening recovers or creates a durable cursor, on the cursor's executor.
//
//	read the item ──absent──▶ put the initial state ────────────────────────────────────▶ ready
//	   ▲    └──names a ledger──▶ fence it ──▶ read its last records ──▶ put our epoch ──▶ ready
//	   └──────────────────────── another version ────────────────────────┘
//
// The put makes every later put of an earlier owner fail, the fence its appends.
type cursorOpening struct {
	c     *Cursor
	done  func(*Cursor, error)
	limit *executor.Timer
	tries int
	store *cursorStore
	state recovery
}

func (o *cursorOpening) begin() {
	m := o.c.m
	o.store = &cursorStore{c: o.c}
	o.store.record = record{store: m.env.Store, executor: o.c.executor, key: metadata.CursorKey(m.key, o.c.name)}
	o.limit = o.store.after(m.opts.OpenTimeout, func() { o.finish(fmt.Errorf("no answer: %w", ledger.ErrUnknown)) })
	o.load()
}

func (o *cursorOpening) call(f func()) {
	o.c.executor.PostFunc(func() {
		if o.done != nil {
			f()
		}
	})
}

// retry reports whether there was an error, and has the opening begin again then.
func (o *cursorOpening) retry(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, ledger.ErrShutdown):
		o.finish(err)
	case errors.Is(err, ledger.ErrFenced):
		o.finish(fmt.Errorf("%w: %w", ErrLost, err))
	default:
		o.store.after(backoff(o.tries), func() {
			if o.done != nil {
				o.load()
			}
		})
		o.tries++
	}
	return true
}

func (o *cursorOpening) load() {
	s := o.store
	s.record.store.Get(s.record.key, func(item metadata.Item, err error) {
		o.call(func() {
			if !o.retry(err) {
				o.loaded(item)
			}
		})
	})
}

func (o *cursorOpening) loaded(item metadata.Item) {
	s, m := o.store, o.c.m
	s.record.version = item.Version
	if item.Version == 0 {
		state, _, _ := appendRecord(nil, link{}, o.c.content(), m.opts.metadataBounds())
		s.info = cursorInfo{State: state}
		o.claim()
		return
	}
	info, err := decodeCursorInfo(item.Value)
	switch {
	case err != nil:
		o.finish(err)
	case info.Epoch > m.env.Epoch:
		o.finish(fmt.Errorf("%w: epoch %d, ours is %d", ErrLost, info.Epoch, m.env.Epoch))
	case info.Ledger == 0:
		s.info = info
		o.state = recovery{}
		if err := o.state.apply(info.State, 0, m.snapshot()); err != nil {
			o.finish(err)
			return
		}
		o.recovered()
	default:
		s.info = info
		m.env.Bookies.Fence(info.ref(), m.env.Epoch, func(last ledger.EntryID, err error) {
			o.call(func() {
				if !o.retry(err) {
					o.readLast(last)
				}
			})
		})
	}
}

// claim puts our epoch into the record.
func (o *cursorOpening) claim() {
	s := o.store
	s.info.Epoch = o.c.m.env.Epoch
	value, err := s.info.encode()
	if err != nil {
		o.finish(err)
		return
	}
	s.record.put(value, func(err error) {
		switch {
		case o.done == nil:
		case errors.Is(err, errConflict):
			o.retry(err)
		default:
			o.finish(err)
		}
	})
}

func (o *cursorOpening) finish(err error) {
	if o.done == nil {
		return
	}
	done, c := o.done, o.c
	o.done = nil
	o.limit.Stop()
	if err == nil && c.closed {
		err = ErrClosed // dropped meanwhile
	}
	if err != nil {
		o.store.record.stop()
		c.m.env.Executor.PostFunc(func() { c.m.removeCursor(c) })
		c.closed = true
		done(nil, fmt.Errorf("open cursor %s of %s: %w", c.name, c.m.key, err))
		return
	}
	c.store = o.store
	c.keepFrom(c.mark)
	c.m.log.Debug("cursor open", "cursor", c.name, "mark", c.mark, "backlog", c.Backlog())
	done(c, nil)
}

// DeleteCursor removes a durable cursor for good, whether it is open or not. done comes on the executor, never inline.
func (m *ManagedLedger) DeleteCursor(name string, done func(error)) {
	m.assertCurrent()
	d := &cursorDeletion{m: m, name: name, done: done}
	d.record = record{store: m.env.Store, executor: m.env.Executor, key: metadata.CursorKey(m.key, name)}
	for _, c := range m.cursors.open {
		if c.name == name { // first nobody may write the record any more
			c.executor.PostFunc(func() {
				c.drop()
				m.env.Executor.PostFunc(d.load)
			})
			return
		}
	}
	m.env.Executor.PostFunc(d.load)
}

// cursorDeletion removes a cursor's record, then its ledger.
type cursorDeletion struct {
	m      *ManagedLedger
	name   string
	record record
	done   func(error)
	tries  int
}

func (d *cursorDeletion) again(err error) {
	if d.tries++; d.tries == deleteTries || errors.Is(err, ledger.ErrShutdown) {
		d.done(fmt.Errorf("managedledger: delete cursor %s of %s: %w", d.name, d.m.key, err))
		return
	}
	d.m.after(backoff(d.tries), d.load)
}

func (d *cursorDeletion) load() {
	d.record.store.Get(d.record.key, func(item metadata.Item, err error) {
		d.m.env.Executor.PostFunc(func() {
			if err != nil {
				d.again(err)
				return
			}
			d.loaded(item)
		})
	})
}

func (d *cursorDeletion) loaded(item metadata.Item) {
	var info cursorInfo
	if item.Version != 0 {
		var err error
		if info, err = decodeCursorInfo(item.Value); err == nil && info.Epoch > d.m.env.Epoch {
			err = fmt.Errorf("%w: epoch %d", ErrLost, info.Epoch)
		}
		if err != nil {
			d.done(err)
			return
		}
	}
	d.record.version = item.Version
	d.record.remove(func(err error) {
		if err != nil {
			d.again(err)
			return
		}
		m := d.m
		m.cursors.names = slices.DeleteFunc(m.cursors.names, func(n string) bool { return n == d.name })
		if info.Ledger != 0 {
			m.env.Bookies.Delete(info.ref(), ignore)
		}
		m.trim()
		d.done(nil)
	})
}
