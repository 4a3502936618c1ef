package managedledger

import (
	"errors"
	"fmt"
	"time"

	"geminga/pkg/ledger"
)

const (
	sendEntries = 1024
	sendBytes   = 4 << 20
)

// Add appends ops in order. It retains the payloads itself; the slice stays the caller's. After Lost or Close it does
// nothing.
func (m *ManagedLedger) Add(ops []Op) {
	m.assertCurrent()
	if m.state != stateOpen {
		return
	}
	for i := range ops {
		ops[i].Payload.Retain()
		m.ring.push(&ops[i])
	}
	m.send()
	m.kickBarrier()
}

// send hands what has not been sent to the current ledger, as far as it takes adds.
func (m *ManagedLedger) send() {
	for m.ring.sent != m.ring.tail {
		most := m.sendable()
		if most == 0 {
			break
		}
		m.sendBatch(min(most, sendEntries))
	}
	clear(m.batch)
	m.batch = m.batch[:0]
	m.watchStall()
	m.advance()
}

// sendBatch sends the next entries, at most most and about sendBytes.
func (m *ManagedLedger) sendBatch(most int) {
	w := m.writer
	m.batch = m.batch[:0]
	size := 0
	for m.ring.sent != m.ring.tail && len(m.batch) < most && size < sendBytes {
		op := m.ring.at(m.ring.sent)
		if !op.Barrier {
			m.batch = append(m.batch, op.Payload)
			size += len(op.Payload.Data)
		}
		m.ring.sent++
	}
	if len(m.batch) == 0 {
		return
	}
	if w.outstanding() == 0 {
		w.progress = time.Now()
	}
	first := w.next
	w.next += ledger.EntryID(len(m.batch))
	w.bytes += int64(size)
	m.env.Bookies.Append(w.ref, m.env.Epoch, first, m.batch, w)
}

// kickBarrier sees to a barrier at the head that no acknowledgement will complete.
func (m *ManagedLedger) kickBarrier() {
	if m.ring.head != m.ring.sent && m.ring.at(m.ring.head).Barrier && !m.kick.posted {
		m.kick.posted = true
		m.env.Executor.Post(&m.kick)
	}
}

// progressed handles what a writer's stream has said.
func (m *ManagedLedger) progressed(w *writer) {
	if w != m.writer || m.roll.decided() || !m.live() {
		return // late: see ManagedLedger
	}
	failure := w.failure.Load() // before acked, so that whatever was stored before the failure counts
	if last := min(ledger.EntryID(w.acked.Load()), w.next-1); int64(last) > w.confirmed.Load() {
		w.progress = time.Now()
		m.complete(last)
	}
	if failure != nil && m.live() && w.broken == nil {
		w.broken = *failure
		m.failed(w, w.broken)
	}
	if m.live() {
		m.advance()
	}
}

// failed handles the end of a writer's stream.
func (m *ManagedLedger) failed(w *writer, err error) {
	switch {
	case errors.Is(err, ledger.ErrFenced):
		m.lose(fmt.Errorf("%w: %w: %s", ErrLost, err, w.ref))
	case errors.Is(err, ledger.ErrShutdown), errors.Is(err, ledger.ErrBadCommand): // no other ledger will take it either
		m.lose(err)
	default:
		m.trouble(causeError, err)
	}
}

// complete completes the ops up to entry last of the current ledger, and the barriers behind them.
func (m *ManagedLedger) complete(last ledger.EntryID) {
	w := m.writer
	first := ledger.EntryID(w.confirmed.Load() + 1)
	end, size := m.ring.head, int64(0)
	m.batch = m.batch[:0]
	for e := first; end != m.ring.sent; end++ {
		op := m.ring.at(end)
		if op.Barrier {
			continue
		}
		if e > last {
			break
		}
		e++
		m.batch = append(m.batch, op.Payload)
		size += int64(len(op.Payload.Data))
	}
	if entries := len(m.batch); entries > 0 {
		if m.env.Cache != nil && len(m.cursors.open) > 0 {
			m.env.Cache.insert(m.env.Executor, w.ref.ID, first, m.batch, m.readers())
		}
		clear(m.batch)
		m.batch = m.batch[:0]
		w.confirmed.Store(int64(last)) // from here on readers find them
		m.env.Metrics.added(entries, size)
	}
	m.tell(first, end)
	m.notify()
}

// readers counts the cursors that are expected to come to the entries that are added now.
func (m *ManagedLedger) readers() (n int) {
	since := m.env.Cache.recently()
	for _, c := range m.cursors.open {
		if c.waiting.Load() || c.asked.Load() >= int64(since) {
			n++
		}
	}
	return n
}

// tell calls Listener.Completed for the ops before end. The listener may call Add meanwhile, so the ring may move.
func (m *ManagedLedger) tell(first ledger.EntryID, end uint64) {
	m.telling = true
	defer func() { m.telling = false }()
	for m.ring.head != end && m.live() {
		ops := m.ring.span(m.ring.head, end)
		m.env.Listener.Completed(ops, ledger.Position{Ledger: m.writer.ref.ID, Entry: first})
		for i := range ops {
			if !ops[i].Barrier {
				first++
			}
		}
		if m.live() {
			m.ring.pop(len(ops))
		}
	}
}

// notify wakes the cursors that wait for entries; see Cursor.park.
func (m *ManagedLedger) notify() {
	for _, c := range m.cursors.open {
		if c.waiting.Load() && c.waiting.CompareAndSwap(true, false) {
			c.executor.Post(&c.wake)
		}
	}
}
