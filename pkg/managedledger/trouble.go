package managedledger

import (
	"time"

	"geminga/pkg/ledger"
)

// stallTimeout is what counts as a stall now: LedgerStallTimeout, doubled by each stall that followed another within ten
// seconds.
func (m *ManagedLedger) stallTimeout() time.Duration {
	return m.opts.LedgerStallTimeout << min(m.roll.stalls, stallDoublings)
}

// watchStall keeps a timer while entries are outstanding. It is armed once and looks at the time when due, so an
// acknowledgement costs nothing but a time stamp.
func (m *ManagedLedger) watchStall() {
	if m.stallTimer == nil && m.writer.outstanding() > 0 && m.roll.phase < phaseReplacing && m.live() {
		left := m.stallTimeout() - time.Since(m.writer.progress)
		m.stallTimer = m.after(max(left, time.Millisecond), m.checkStall)
	}
}

func (m *ManagedLedger) checkStall() {
	m.stallTimer = nil
	if !m.live() || m.roll.phase >= phaseReplacing {
		return
	}
	w := m.writer
	if w.outstanding() > 0 && time.Since(w.progress) >= m.stallTimeout() {
		m.trouble(causeStall, ledger.ErrUnknown)
		return
	}
	m.watchStall()
}

// trouble begins to replace the current ledger.
func (m *ManagedLedger) trouble(why cause, err error) {
	if m.roll.phase >= phaseReplacing {
		m.roll.cause = max(m.roll.cause, why)
		return
	}
	w := m.writer
	m.log.Warn("ledger in trouble", "ledger", w.ref, "acked", w.confirmed.Load(), "outstanding", w.outstanding(),
		"silent", time.Since(w.progress), "err", err)
	r := &m.roll
	r.back, r.phase, r.cause = r.phase, phaseReplacing, why
	r.since, r.stuck, r.attempts = time.Now(), w.confirmed.Load(), 0
	stopTimer(&m.stallTimer)
	if ready := r.back == phasePrepared || r.back == phaseDraining; ready && r.next.Group != w.ref.Group {
		m.decide(r.next)
		return
	}
	r.turn++ // a ledger being prepared is not wanted: it may be in the same group, or never come
	if r.back == phasePreparing {
		r.back = phaseSteady
	}
	if r.fruitless++; w.confirmed.Load() != int64(ledger.NoEntry) {
		r.fruitless = 0
	}
	if r.fruitless < 2 {
		m.create(w.ref.Group, m.replacement)
		return
	}
	// One ledger after the other refuses everything: the next one will hardly do better at once.
	turn := r.turn
	m.after(backoff(r.fruitless), func() {
		if m.live() && turn == m.roll.turn {
			m.create(w.ref.Group, m.replacement)
		}
	})
}

// replacement has the ledger to go on with. If the old one has come back meanwhile it is better to stay.
func (m *ManagedLedger) replacement(ref ledger.Ref) {
	r, w := &m.roll, m.writer
	if r.cause == causeStall && w.confirmed.Load() > r.stuck {
		m.log.Info("ledger out of trouble", "ledger", w.ref, "after", time.Since(r.since))
		m.env.Bookies.Delete(ref, ignore)
		r.phase = r.back
		r.turn++
		m.backOff()
		m.send()
		m.kickBarrier()
		return
	}
	m.decide(ref)
}

// backOff counts a stall.
func (m *ManagedLedger) backOff() {
	r := &m.roll
	if time.Since(r.lastStall) > stallForgiven {
		r.stalls = 0
	}
	r.stalls++
	r.lastStall = time.Now()
}

// decide closes the current ledger at its last acknowledged entry and goes on in ref.
func (m *ManagedLedger) decide(ref ledger.Ref) {
	w := m.writer
	if acked := min(ledger.EntryID(w.acked.Load()), w.next-1); int64(acked) > w.confirmed.Load() {
		m.complete(acked)
		if !m.live() {
			m.env.Bookies.Delete(ref, ignore)
			return
		}
	}
	m.roll.phase = phaseDecided
	m.roll.turn++
	m.env.Bookies.Abandon(w.ref)
	last, size := ledger.EntryID(w.confirmed.Load()), m.confirmedBytes()
	var empty bool
	m.list.change(func(info *Info) {
		empty = info.closeAt(w.ref.ID, last, size)
		info.dropOpen(ref.ID)
		info.ensure(ref)
	}, func() {
		m.replaced(w, ref, last)
		if !empty {
			m.env.Bookies.Close(w.ref, last, ignore)
		}
	})
}

// replaced goes on in ref, now that the list says so.
func (m *ManagedLedger) replaced(w *writer, ref ledger.Ref, last ledger.EntryID) {
	r := &m.roll
	if r.cause == causeStall {
		m.backOff()
	}
	r.replaced++
	m.env.Metrics.rolled(r.cause, time.Since(r.since))
	m.log.Info("ledger replaced", "ledger", w.ref, "last", last, "next", ref, "after", time.Since(r.since),
		"resent", m.ring.len())
	w.bytes = m.confirmedBytes()
	m.use(ref)
}

// confirmedBytes returns the bytes of the current ledger up to the last completed entry.
func (m *ManagedLedger) confirmedBytes() int64 {
	size := m.writer.bytes
	for i := m.ring.head; i != m.ring.sent; i++ {
		size -= int64(len(m.ring.at(i).Payload.Data))
	}
	return size
}
