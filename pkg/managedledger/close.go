package managedledger

import (
	"errors"
	"fmt"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// closer ends a managed ledger in an orderly way: pending ops complete, then the current ledger is closed in the list,
// so that the next owner has nothing to fence. If that takes longer than CloseTimeout, the next owner will.
type closer struct {
	m       *ManagedLedger
	done    func(error)
	limit   *executor.Timer
	settled bool
}

// Close finishes pending ops, closes the ledger and answers; Add does nothing from now on. Cursors are to be closed
// before. done comes on the executor, never inline; ops that have not completed by then have an unknown outcome.
func (m *ManagedLedger) Close(done func(error)) {
	m.assertCurrent()
	if m.state == stateOpen {
		m.state = stateClosing
		m.closer = &closer{m: m, done: done}
		m.closer.limit = m.after(m.opts.CloseTimeout, func() {
			m.closer.finish(fmt.Errorf("managedledger: close %s: no answer within %s: %w", m.key, m.opts.CloseTimeout, ledger.ErrUnknown))
		})
		m.env.Executor.PostFunc(m.advance)
		return
	}
	m.env.Executor.PostFunc(func() { done(ErrClosed) })
}

// settle closes the ledger when nothing is pending.
func (c *closer) settle() {
	m := c.m
	if c.settled || m.ring.len() > 0 || m.roll.decided() || m.state != stateClosing {
		return
	}
	c.settled = true
	m.roll.phase = phaseDecided
	m.roll.turn++
	w := m.writer
	last := ledger.EntryID(w.confirmed.Load())
	m.list.change(func(info *Info) {
		info.closeAt(w.ref.ID, last, w.bytes)
		info.dropOpen(0)
	}, func() {
		if last != ledger.NoEntry {
			m.env.Bookies.Close(w.ref, last, ignore)
		}
		c.finish(nil)
	})
}

func (c *closer) finish(err error) {
	if c.done == nil {
		return
	}
	done := c.done
	c.done = nil
	c.limit.Stop()
	if c.m.live() {
		c.m.end(stateClosed)
	}
	done(err)
}

// Delete removes the topic: its record, that of its deduplication, its cursors and all their ledgers. Pending ops do not
// complete. done comes on the executor, never inline; after an error Delete may be called again.
func (m *ManagedLedger) Delete(done func(error)) {
	m.assertCurrent()
	m.env.Executor.PostFunc(func() {
		if m.state == stateLost {
			done(ErrLost)
			return
		}
		if m.closer != nil {
			m.closer.finish(ErrClosed)
		}
		if m.live() {
			m.end(stateClosed)
		}
		for _, c := range m.cursors.open {
			c.executor.PostFunc(c.drop)
		}
		(&deletion{m: m, done: done}).load()
	})
}

// deletion removes a topic's records in one transaction, then the ledgers that they named.
type deletion struct {
	m     *ManagedLedger
	done  func(error)
	tries int
	txn   metadata.Txn
	refs  []ledger.Ref
}

const deleteTries = 12

func (d *deletion) call(f func()) { d.m.env.Executor.PostFunc(f) }

func (d *deletion) again(err error) {
	if d.tries++; d.tries == deleteTries || errors.Is(err, ledger.ErrShutdown) {
		d.done(fmt.Errorf("managedledger: delete %s: %w", d.m.key, err))
		return
	}
	d.m.after(backoff(d.tries), d.load)
}

func (d *deletion) load() {
	d.txn, d.refs = metadata.Txn{}, nil
	d.m.env.Store.Get(d.m.key, func(item metadata.Item, err error) {
		d.call(func() {
			if err != nil {
				d.again(err)
				return
			}
			d.loaded(item)
		})
	})
}

func (d *deletion) loaded(item metadata.Item) {
	if item.Version != 0 {
		info, err := DecodeInfo(item.Value)
		if err == nil && info.Epoch > d.m.env.Epoch {
			err = fmt.Errorf("%w: epoch %d", ErrLost, info.Epoch)
		}
		if err != nil {
			d.done(err)
			return
		}
		for _, l := range info.Ledgers {
			d.refs = append(d.refs, l.ref())
		}
		for _, l := range info.Deleting {
			d.refs = append(d.refs, l.ref())
		}
	}
	d.txn = d.txn.If(d.m.key, item.Version).Then(metadata.Delete(d.m.key), metadata.Delete(metadata.DedupKey(d.m.key)))
	d.m.env.Store.List(metadata.CursorPrefix(d.m.key), func(items []metadata.Item, err error) {
		d.call(func() {
			if err != nil {
				d.again(err)
				return
			}
			d.commit(items)
		})
	})
}

func (d *deletion) commit(cursors []metadata.Item) {
	for _, item := range cursors {
		info, err := decodeCursorInfo(item.Value)
		if err != nil {
			d.m.log.Error("cursor record unreadable, its ledger stays", "key", item.Key, "err", err)
		} else if ref := info.ref(); ref.ID != 0 {
			d.refs = append(d.refs, ref)
		}
		d.txn = d.txn.If(item.Key, item.Version).Then(metadata.Delete(item.Key))
	}
	d.m.env.Store.Commit(d.txn, func(out metadata.Outcome, err error) {
		d.call(func() {
			if err == nil {
				err = out.Err
			}
			if err != nil {
				// It may have happened: the ledgers that were named are kept in mind by deleting them then.
				d.resolve(err)
				return
			}
			d.deleteLedgers()
		})
	})
}

// resolve finds out whether a transaction of unknown outcome has removed the topic.
func (d *deletion) resolve(failure error) {
	if errors.Is(failure, metadata.ErrBadVersion) {
		d.again(failure)
		return
	}
	d.m.env.Store.Get(d.m.key, func(item metadata.Item, err error) {
		d.call(func() {
			if err == nil && item.Version == 0 {
				d.deleteLedgers()
				return
			}
			d.again(failure)
		})
	})
}

func (d *deletion) deleteLedgers() {
	left, failed := len(d.refs), error(nil)
	d.m.cursors.names = nil
	if left == 0 {
		d.done(nil)
		return
	}
	for _, ref := range d.refs {
		d.m.env.Bookies.Delete(ref, func(err error) {
			d.call(func() {
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", ref, err))
				}
				if left--; left == 0 {
					d.done(failed)
				}
			})
		})
	}
}

func lostIfConflict(err error) error {
	if errors.Is(err, errConflict) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}
