package managedledger

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/invariant"
	"geminga/pkg/ledger"
)

// ManagedLedger is one endless log made of many ledgers. It lives on the topic's executor: all methods run there unless
// they say otherwise.
//
// # Adding
//
// Ops wait in a ring, in order, until they complete in order. Entries go to the current ledger's group as they come,
// any number in flight; the ring knows which have been sent. Nothing is ever in flight to two ledgers at a time: were
// the next ledger written before the last entry of the current one is stored, a crash could keep a later message and
// lose an earlier one, and a producer's retry of the earlier one would then look like a duplicate.
//
// # Another ledger, because the current one is full
//
//	STEADY ──nearly full──▶ PREPARING ──listed──▶ PREPARED ──full──▶ DRAINING ──all acked──▶ STEADY, in the next ledger
//	                        create, put [… cur, next]                send no more to cur
//
// The next ledger is in the list before it is needed, and the current one takes adds until then, even beyond its size,
// so a rollover costs the adds one round trip to the group, whatever the metadata does. That the current ledger has
// been closed is noted in the list afterwards; a new owner that finds two open ledgers fences both, in order. Putting
// the list at the moment of the rollover was rejected: adds would wait for the metadata group.
//
// # Another ledger, because the current one is in trouble
//
//	any ──no ack for a while, stream broken──▶ REPLACING ──ledger created elsewhere──▶ DECIDED ──listed──▶ STEADY
//	                                                    └──acks have come meanwhile──▶ back to where it was
//
// Deciding fixes S, the last acknowledged entry; the list is put with the ledger closed at S and the new one behind it;
// then everything after S is sent to the new one. The old group is told to close at S, whenever it can hear.
//
//	the old group, late                   this owner
//	1 stores S+1, S+2                     1 decides: S, abandons the ledger
//	2 acknowledges S+2                    2 ignores it: w is not the writer, or the decision stands
//	                                      3 puts the list: closed at S
//	                                      4 sends S+1, S+2 again, as entries 0, 1 of the new ledger
//
// Ignoring the late acknowledgement is what keeps an op from completing at two positions. A put that fails because the
// list has another version means that a newer owner has decided otherwise: Lost.
//
// Consecutive stalls back off: each doubles the time that counts as a stall, up to 32 times LedgerStallTimeout;
// ten seconds without one reset it. So a machine that is slow as a whole does not chase its own tail.
//
// # Invariants
//
//  1. Ops complete in the order of Add, each once, at consecutive entries of one ledger or the start of the next.
//  2. LastConfirmed never goes back, and is advanced before Completed is called.
//  3. Every ledger that has ever taken an append of a completed op is in the list, with at least that entry.
//  4. A position once confirmed has one content for ever.
type ManagedLedger struct {
	env  Env
	opts Options
	key  string
	log  *slog.Logger

	list   list // the record in the metadata
	view   atomic.Pointer[view]
	ring   ring
	writer *writer
	roll   roll
	state  state
	closer *closer // while closing

	telling bool // Listener.Completed is being called

	cursors    cursors
	trimming   trimming
	batch      []ledger.Payload // scratch
	kick       kick
	stallTimer *executor.Timer
	ageTimer   *executor.Timer
}

type state int

const (
	stateOpen    state = iota
	stateClosing       // no adds; pending ones complete
	stateClosed
	stateLost
)

// cursors are those that are open, and the names of those that exist.
type cursors struct {
	open  []*Cursor
	names []string     // durable
	n     atomic.Int32 // len(open), for other executors
}

// kick completes barriers that nothing else would complete.
type kick struct {
	m      *ManagedLedger
	posted bool
}

// Run implements executor.Task.
func (k *kick) Run() {
	k.posted = false
	if k.m.live() {
		k.m.complete(ledger.EntryID(k.m.writer.confirmed.Load()))
		k.m.advance()
	}
}

// Name returns the metadata key. Any goroutine.
func (m *ManagedLedger) Name() string { return m.key }

// Pending returns the number of ops that have not completed.
func (m *ManagedLedger) Pending() int { return m.ring.len() }

// LastConfirmed returns the last readable entry; its Entry is ledger.NoEntry while the topic has none. Any goroutine.
func (m *ManagedLedger) LastConfirmed() ledger.Position { return m.view.Load().lastConfirmed() }

// First returns the first entry that exists, or will. Any goroutine.
func (m *ManagedLedger) First() ledger.Position { return m.snapshot().first() }

// Next returns the first entry after p that exists, or will. Any goroutine.
func (m *ManagedLedger) Next(p ledger.Position) ledger.Position { return m.snapshot().next(p) }

// Floor returns the last entry at p or before it; its Entry is ledger.NoEntry when there is none. Any goroutine.
func (m *ManagedLedger) Floor(p ledger.Position) ledger.Position { return m.snapshot().floor(p) }

// Exists reports that p is a readable entry. Any goroutine.
func (m *ManagedLedger) Exists(p ledger.Position) bool { return m.snapshot().exists(p) }

// Cursors returns the names of the durable cursors.
func (m *ManagedLedger) Cursors() []string { return slices.Clone(m.cursors.names) }

// Stats describe a managed ledger.
type Stats struct {
	Ledgers       int   // with entries, and the current one
	Entries       int64 // confirmed
	Bytes         int64 // as far as known
	LastConfirmed ledger.Position
	Current       ledger.Ref
	Pending       int // ops not completed
	Cursors       int // open
	Replaced      int // ledgers given up because of trouble
}

// Stats returns figures.
func (m *ManagedLedger) Stats() Stats {
	s := m.snapshot()
	st := Stats{
		Ledgers: len(s.segments), Entries: s.total(), Bytes: m.writer.bytes, LastConfirmed: s.last(), Current: m.writer.ref,
		Pending: m.ring.len(), Cursors: len(m.cursors.open), Replaced: m.roll.replaced,
	}
	for _, seg := range s.segments {
		st.Bytes += seg.bytes
	}
	return st
}

func (m *ManagedLedger) snapshot() snapshot { return m.view.Load().snapshot() }

// live reports that ops may still complete.
func (m *ManagedLedger) live() bool { return m.state == stateOpen || m.state == stateClosing }

// after runs f on the executor when d has passed.
func (m *ManagedLedger) after(d time.Duration, f func()) *executor.Timer {
	return m.env.Executor.After(d, executor.Func(f))
}

// lose ends the managed ledger: another owner has it, or it cannot go on.
func (m *ManagedLedger) lose(err error) {
	if !m.live() {
		return
	}
	closer := m.closer
	m.end(stateLost)
	m.log.Warn("managed ledger lost", "err", err)
	m.env.Listener.Lost(err)
	if closer != nil {
		closer.finish(err)
	}
}

// end stops everything; nothing completes afterwards.
func (m *ManagedLedger) end(s state) {
	m.state = s
	m.list.record.stop()
	stopTimer(&m.stallTimer)
	stopTimer(&m.ageTimer)
	stopTimer(&m.trimming.timer)
	m.env.Bookies.Abandon(m.writer.ref)
	if n := m.ring.len(); n > 0 {
		m.env.Metrics.addsFailed(n)
		m.ring.pop(n)
	}
}

func stopTimer(t **executor.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}

func (m *ManagedLedger) assertCurrent() {
	if invariant.Enabled {
		m.env.Executor.AssertCurrent()
	}
}
