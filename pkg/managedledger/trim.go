package managedledger

import (
	"slices"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// trimming deletes closed ledgers that nobody needs: every durable cursor has stored a mark-delete position behind their
// last entry, no Hold is in them, and retention does not keep them. Without durable cursors that is all closed ledgers.
// Cursors that are not durable keep nothing; one that is in a trimmed ledger goes on with the first entry there is
// (Cursor.log). The ledger of the last entry stays in any case: it tells the last message id, and the last index.
//
//	put the list: ledgers ─▶ deleting ──▶ new view ──▶ Bookies.Delete ──▶ some later put: no longer deleting
//
// The list never names a ledger that may be gone, and always names one that may be left: whoever opens the topic after a
// crash deletes what is still in deleting, once more if need be.
type trimming struct {
	hold    ledger.Position // see Hold
	holding bool
	putting bool
	again   bool // something has changed meanwhile
	sweeps  map[ledger.ID]sweep
	timer   *executor.Timer
}

// sweep is what is known of the deletion of a ledger.
type sweep int

const (
	sweepFlying sweep = iota + 1
	sweepDone
)

// mostDeleting bounds the ledgers in the list that wait for their bookies; no more are trimmed meanwhile.
const mostDeleting = 1000

// Hold keeps the entries behind p, whatever the cursors say, until another call moves it on. It is for readers that have no
// cursor between two openings of the topic.
func (m *ManagedLedger) Hold(p ledger.Position) {
	m.assertCurrent()
	s := m.snapshot()
	moved := !m.trimming.holding || s.next(p).Ledger != s.next(m.trimming.hold).Ledger
	m.trimming.hold, m.trimming.holding = p, true
	if moved {
		m.trim()
	}
}

// trim takes the ledgers out of the list that nobody needs.
func (m *ManagedLedger) trim() {
	t := &m.trimming
	if m.state != stateOpen {
		return
	}
	if t.putting {
		t.again = true
		return
	}
	unneeded := m.unneeded()
	if len(unneeded) == 0 {
		return
	}
	t.putting = true
	m.list.change(func(info *Info) { info.trim(unneeded) }, func() {
		t.putting = false
		m.view.Store(m.view.Load().without(unneeded))
		m.env.Metrics.trimmed(len(unneeded))
		m.log.Info("ledgers trimmed", "ledgers", len(unneeded), "first", m.First())
		m.sweep()
		if t.again {
			t.again = false
			m.trim()
		}
	})
}

// unneeded returns the ledgers that nobody needs, the first ones of the view.
func (m *ManagedLedger) unneeded() (ids []ledger.ID) {
	s := m.snapshot()
	from, ok := m.needed(s)
	if !ok {
		return nil
	}
	left := m.writer.bytes
	for _, seg := range s.segments {
		left += seg.bytes
	}
	room := mostDeleting - len(m.list.info.Deleting)
	for _, seg := range s.segments[:len(s.segments)-1] {
		left -= seg.bytes
		if seg.ref.ID >= from || len(ids) >= room || m.retained(seg.ref.ID, left) {
			break
		}
		ids = append(ids, seg.ref.ID)
	}
	return ids
}

// needed returns the first ledger that somebody needs; not ok while that is not known of a cursor.
func (m *ManagedLedger) needed(s snapshot) (from ledger.ID, ok bool) {
	from = s.last().Ledger
	if m.trimming.holding {
		from = min(from, s.next(m.trimming.hold).Ledger)
	}
	for _, name := range m.cursors.names {
		i := slices.IndexFunc(m.cursors.open, func(c *Cursor) bool { return c.name == name })
		if i < 0 {
			return 0, false
		}
		stored := m.cursors.open[i].stored.Load()
		if stored == nil {
			return 0, false
		}
		from = min(from, s.next(*stored).Ledger)
	}
	return from, true
}

// retained reports that retention keeps a closed ledger, left being the bytes behind it.
func (m *ManagedLedger) retained(id ledger.ID, left int64) bool {
	if limit := m.opts.RetentionBytes; limit >= 0 && left >= limit {
		return false
	}
	if m.opts.RetentionTime < 0 {
		return true
	}
	i := slices.IndexFunc(m.list.info.Ledgers, func(l LedgerInfo) bool { return l.ID == id })
	closed := time.Now() // not in the list as closed yet
	if i >= 0 && m.list.info.Ledgers[i].Closed {
		closed = time.UnixMilli(m.list.info.Ledgers[i].ClosedAt)
	}
	return time.Since(closed) < m.opts.RetentionTime
}

// sweep has the bookies delete what the list says.
func (m *ManagedLedger) sweep() {
	t := &m.trimming
	if t.sweeps == nil {
		t.sweeps = make(map[ledger.ID]sweep)
	}
	for _, d := range m.list.info.Deleting {
		if t.sweeps[d.ID] != 0 {
			continue
		}
		t.sweeps[d.ID] = sweepFlying
		m.env.Bookies.Delete(d.ref(), func(err error) {
			m.env.Executor.PostFunc(func() { m.swept(d.ID, err) })
		})
	}
}

func (m *ManagedLedger) swept(id ledger.ID, err error) {
	if m.trimming.sweeps[id] = sweepDone; err != nil {
		delete(m.trimming.sweeps, id) // it is in the list: the next check tries again
		m.log.Warn("cannot delete a ledger", "ledger", id, "err", err)
	}
}

// forgetSwept drops from a list to be put what the bookies have deleted.
func (m *ManagedLedger) forgetSwept(info *Info) {
	info.Deleting = slices.DeleteFunc(info.Deleting, func(d DeletingLedger) bool { return m.trimming.sweeps[d.ID] == sweepDone })
}

// listed forgets what a list that was put does not name any more.
func (m *ManagedLedger) listed(info *Info) {
	for id, s := range m.trimming.sweeps {
		if s == sweepDone && !slices.ContainsFunc(info.Deleting, func(d DeletingLedger) bool { return d.ID == id }) {
			delete(m.trimming.sweeps, id)
		}
	}
}

// watchTrim checks again and again for what no event announces: that retention ends, that a failed deletion is due again.
func (m *ManagedLedger) watchTrim() {
	t := &m.trimming
	if t.timer != nil || len(m.view.Load().segments) == 1 && len(m.list.info.Deleting) == 0 {
		return
	}
	t.timer = m.after(m.opts.RetentionCheckInterval, func() {
		t.timer = nil
		if m.state != stateOpen {
			return
		}
		m.trim()
		m.sweep()
		if len(m.list.info.Deleting) > 0 && !t.putting {
			m.list.change(func(*Info) {}, func() {}) // without what has been deleted
		}
		m.watchTrim()
	})
}
