package managedledger

import (
	"time"

	"geminga/pkg/ledger"
)

// phase is where the change to another ledger has got; see ManagedLedger for the diagram.
type phase int

const (
	phaseSteady phase = iota
	phasePreparing
	phasePrepared
	phaseDraining
	phaseReplacing
	phaseDecided
)

// roll is the change to another ledger.
type roll struct {
	phase phase
	next  ledger.Ref // PREPARED, DRAINING, DECIDED: where it goes
	turn  int        // callbacks of an abandoned change find another turn
	since time.Time  // begin of DRAINING or REPLACING

	// REPLACING.
	cause    cause
	back     phase // if acks come after all
	stuck    int64 // confirmed when it began
	attempts int

	// Backing off.
	stalls    int // consecutive
	lastStall time.Time
	fruitless int // ledgers in a row that have taken nothing
	replaced  int
}

func (r *roll) decided() bool { return r.phase == phaseDecided }

const (
	stallDoublings = 5
	stallForgiven  = 10 * time.Second
)

// sendable returns how many entries the current ledger may be sent now.
func (m *ManagedLedger) sendable() int {
	switch m.roll.phase {
	case phaseDraining, phaseReplacing, phaseDecided:
		return 0
	case phasePrepared:
		if m.writer.bytes >= m.opts.MaxBytesPerLedger {
			return 0
		}
		return m.writer.room(m.opts.MaxEntriesPerLedger)
	}
	return sendEntries
}

// advance moves the change to another ledger on when its time has come, or the end of the managed ledger. While the
// listener is being told of completed ops, which are still in the ring, it does nothing: it is called again afterwards.
func (m *ManagedLedger) advance() {
	if m.telling {
		return
	}
	if m.closer != nil {
		m.closer.settle()
	}
	switch m.roll.phase {
	case phaseSteady:
		if m.state == stateOpen && m.due(7.0/8) {
			m.prepare()
		}
	case phasePrepared:
		if m.due(1) {
			m.roll.phase, m.roll.since = phaseDraining, time.Now()
			m.drained()
		}
	case phaseDraining:
		m.drained()
	}
}

// due reports that the current ledger should be followed by another: it is old and has entries, or it is filled to
// share and old enough.
func (m *ManagedLedger) due(share float64) bool {
	w := m.writer
	if w.entries() == 0 || m.roll.phase == phaseSteady && len(m.list.info.Ledgers) >= m.opts.MaxLedgers {
		return false // empty, or the list has no room for a ledger that is not needed
	}
	full := float64(w.entries()) >= share*float64(m.opts.MaxEntriesPerLedger) ||
		float64(w.bytes) >= share*float64(m.opts.MaxBytesPerLedger)
	if !full && m.ageTimer != nil {
		return false // the timer is armed for MaxRolloverTime: not that old yet
	}
	age := time.Since(w.created)
	return full && age >= m.opts.MinRolloverTime || age >= m.opts.MaxRolloverTime
}

// watchAge has the ledger rolled for its age even when nothing happens.
func (m *ManagedLedger) watchAge(d time.Duration) {
	stopTimer(&m.ageTimer)
	m.ageTimer = m.after(d, func() {
		m.ageTimer = nil
		if !m.live() {
			return
		}
		m.advance()
		if m.roll.phase == phaseSteady { // empty
			m.watchAge(m.opts.MaxRolloverTime)
		}
	})
}

// prepare creates the next ledger and puts it into the list.
func (m *ManagedLedger) prepare() {
	m.roll.phase = phasePreparing
	m.roll.attempts = 0
	if n := len(m.list.info.Ledgers); n >= m.opts.MaxLedgers*3/4 {
		m.env.Metrics.crowded()
		m.log.Warn("the topic has many ledgers: from the limit on its current one grows without end", "ledgers", n, "limit", m.opts.MaxLedgers)
	}
	m.create(0, func(ref ledger.Ref) {
		turn := m.roll.turn
		m.list.change(func(info *Info) { info.ensure(ref) }, func() {
			if turn == m.roll.turn {
				m.roll.phase, m.roll.next = phasePrepared, ref
				m.advance()
			}
		})
	})
}

// create makes a ledger, tries again until it has one, and hands it over if the change it is for is still wanted.
func (m *ManagedLedger) create(avoid ledger.GroupID, done func(ledger.Ref)) {
	turn := m.roll.turn
	m.env.Bookies.Create(m.env.Epoch, avoid, func(ref ledger.Ref, err error) {
		m.env.Executor.PostFunc(func() {
			switch wanted := m.live() && turn == m.roll.turn; {
			case err == nil && wanted && ref.ID > m.list.info.newest():
				done(ref)
			case err == nil:
				m.env.Bookies.Delete(ref, ignore)
				if wanted { // older than a ledger of the list: positions must ascend
					m.create(avoid, done)
				}
			case wanted:
				m.log.Warn("cannot create a ledger", "avoid", avoid, "err", err)
				m.after(backoff(m.roll.attempts), func() {
					if m.live() && turn == m.roll.turn {
						m.create(avoid, done)
					}
				})
				m.roll.attempts++
			}
		})
	})
}

func ignore(error) {}

// drained goes on in the next ledger once the current one has nothing outstanding.
func (m *ManagedLedger) drained() {
	w := m.writer
	if w.outstanding() > 0 {
		return
	}
	last := ledger.EntryID(w.confirmed.Load())
	next := m.roll.next
	m.list.change(func(info *Info) {
		info.closeAt(w.ref.ID, last, w.bytes)
		info.dropOpen(next.ID) // prepared once and not wanted then
	}, func() {})
	m.env.Bookies.Close(w.ref, last, ignore)
	m.env.Metrics.rolled(causeFull, time.Since(m.roll.since))
	m.log.Info("ledger full", "ledger", w.ref, "entries", w.entries(), "bytes", w.bytes, "next", next)
	m.use(next)
}

// use makes ref the current ledger and sends it all that has not completed.
func (m *ManagedLedger) use(ref ledger.Ref) {
	old := m.view.Load()
	bytes := m.writer.bytes
	m.writer = newWriter(m, ref)
	m.view.Store(newView(old.closed(bytes), ref, &m.writer.confirmed))
	m.roll.phase, m.roll.next = phaseSteady, ledger.Ref{}
	m.roll.turn++
	m.ring.sent = m.ring.head
	m.watchAge(m.opts.MaxRolloverTime)
	stopTimer(&m.stallTimer)
	m.send()
	m.kickBarrier()
	m.trim()
	m.watchTrim()
}
