package ledgers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/bookieclient"
	"geminga/pkg/ledger"
)

const (
	pace      = 20 * time.Millisecond  // between two appends of a writer
	window    = 200                    // entries that may be unanswered
	stall     = 250 * time.Millisecond // silence after which a ledger is left, as brokers do by default
	maxStall  = 4 * time.Second        // what it may grow to when one stall follows the other
	retry     = 50 * time.Millisecond  // after a call that failed
	keepEvery = 2                      // of two ledgers that are done one is deleted, when there are many
)

// Writer is one list of ledgers. Its owner is a client; another client can take it over.
type Writer struct {
	id    int
	waits bool // for its group, instead of going on in another one
	log   *Log
	gap   gap
	acked atomic.Int64 // entries

	mu    sync.Mutex
	owner uint64 // who may add ledgers and end them
	list  []*Ledger
}

func (w *Writer) ledgers() []*Ledger {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*Ledger(nil), w.list...)
}

// Acked counts the entries that were acknowledged.
func (w *Writer) Acked() int64 { return w.acked.Load() }

// run is one owner's life.
type run struct {
	*Writer
	epoch  uint64
	client *bookieclient.Client
	rnd    *rand.Rand
	stall  time.Duration
	calls  *sync.WaitGroup // closes and deletes that were ordered
	note   chan struct{}   // something came for the ledger under way
}

// own makes the client the owner. The one before is not told.
func (w *Writer) own(client *bookieclient.Client, calls *sync.WaitGroup) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner++
	return &run{
		Writer: w, epoch: w.owner, client: client, stall: stall, calls: calls,
		rnd: rand.New(rand.NewPCG(w.log.seed, uint64(w.id)<<32|w.owner)), note: make(chan struct{}, 1),
	}
}

// run writes until ctx ends or another owner is noticed. Ledgers under way are left as they are.
func (r *run) run(ctx context.Context) {
	next, ok := r.recover(ctx)
	for avoid := ledger.GroupID(0); ok && ctx.Err() == nil; {
		l := r.create(ctx, next, avoid)
		if l == nil {
			return
		}
		avoid = 0
		silent := r.fill(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if silent {
			avoid = l.Group
		}
		next, ok = r.end(l)
		r.forget()
	}
}

// recover ends the ledger of the owner before at the entry that a fence names.
func (r *run) recover(ctx context.Context) (next uint64, ok bool) {
	list := r.ledgers()
	if len(list) == 0 {
		return 0, true
	}
	l := list[len(list)-1]
	for ctx.Err() == nil && !l.isEnded() {
		last, err := await(func(done func(ledger.EntryID, error)) { r.client.Fence(l.Ref, ledger.Epoch(r.epoch), done) })
		switch {
		case err == nil:
			r.log.fault(l.end(last, true))
		case errors.Is(err, ledger.ErrFenced):
			return 0, false // a third owner
		case isFinal(err):
			r.log.fault(fmt.Errorf("fence of %v, which is open: %w", l.Ref, err))
			return 0, false
		default:
			sleep(ctx, retry)
		}
	}
	if ctx.Err() != nil {
		return 0, false
	}
	r.close(l)
	return l.base + uint64(l.last+1), true
}

func (l *Ledger) isEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// create adds a ledger to the list.
func (r *run) create(ctx context.Context, base uint64, avoid ledger.GroupID) *Ledger {
	for ctx.Err() == nil {
		ref, err := await(func(done func(ledger.Ref, error)) { r.client.Create(ledger.Epoch(r.epoch), avoid, done) })
		if err != nil {
			sleep(ctx, retry)
			continue
		}
		l := &Ledger{Ref: ref, epoch: ledger.Epoch(r.epoch), writer: r.Writer, base: base, bulk: int(r.log.bulk.Load()), sent: ledger.NoEntry, acked: ledger.NoEntry}
		if r.add(l) {
			return l
		}
		r.delete(l) // it was never on the list
		return nil
	}
	return nil
}

// add fails when there is another owner.
func (r *run) add(l *Ledger) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owner != r.epoch {
		return false
	}
	l.attempt = uint64(len(r.list))
	r.list = append(r.list, l)
	return true
}

// end decides on the closing entry and returns the sequence to go on from. False: there is another owner.
func (r *run) end(l *Ledger) (next uint64, ok bool) {
	r.mu.Lock()
	if ok = r.owner == r.epoch; ok {
		l.mu.Lock()
		acked := l.acked
		l.mu.Unlock()
		r.log.fault(l.end(acked, false))
	}
	r.mu.Unlock()
	r.client.Abandon(l.Ref)
	if !ok {
		return 0, false
	}
	r.close(l)
	return l.base + uint64(l.last+1), true
}

// fill appends until the ledger is full, silent, or lost to another owner.
func (r *run) fill(ctx context.Context, l *Ledger) (silent bool) {
	size := ledger.EntryID(200 + r.rnd.IntN(1000))
	b := &board{run: r, ledger: l, heard: time.Now()}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-r.note:
		case <-tick.C:
		}
		acked, heard, err := b.read()
		switch {
		case err != nil:
			r.lost(l, err)
			return false
		case acked >= size-1:
			r.stall = stall
			return false
		case acked < l.sent && !r.waits && time.Since(heard) > r.stall:
			r.stall = min(2*r.stall, maxStall)
			return true
		case acked == l.sent:
			b.touch() // silence counts from the next append
		}
		if l.sent-acked < window && l.sent < size-1 {
			r.append(l, min(ledger.EntryID(1+r.rnd.IntN(3)), size-1-l.sent), b)
		}
	}
}

func (r *run) append(l *Ledger, n ledger.EntryID, b *board) {
	first := l.sent + 1
	entries := make([]ledger.Payload, n)
	for i := range entries {
		entries[i].Data = l.stamp(first + ledger.EntryID(i)).content()
	}
	l.mu.Lock()
	l.sent += n
	l.mu.Unlock()
	r.client.Append(l.Ref, l.epoch, first, entries, b)
}

// lost judges why appends can no longer succeed.
func (r *run) lost(l *Ledger, err error) {
	if errors.Is(err, ledger.ErrShutdown) {
		return
	}
	r.mu.Lock()
	other := r.owner != r.epoch
	r.mu.Unlock()
	if other && (errors.Is(err, ledger.ErrFenced) || errors.Is(err, ledger.ErrClosed) || errors.Is(err, ledger.ErrNoLedger)) {
		return
	}
	r.log.fault(fmt.Errorf("append to %v, which is open and ours: %w", l.Ref, err))
}

// board is where the client tells how far appends have got.
type board struct {
	run    *run
	ledger *Ledger

	mu    sync.Mutex
	heard time.Time
	err   error
}

// Appended implements ledger.Waiter.
func (b *board) Appended(_ ledger.Ref, last ledger.EntryID, err error) {
	now := time.Now()
	before := b.ledger.lastAcked()
	counts, fault := b.ledger.ack(last)
	b.run.log.fault(fault)
	if counts {
		n := int64(last - before)
		b.run.gap.acked(now)
		b.run.log.any.acked(now)
		b.run.acked.Add(n)
		b.run.log.Acked.Add(n)
	}
	b.mu.Lock()
	b.heard = now
	if err != nil && b.err == nil {
		b.err = err
	}
	b.mu.Unlock()
	select {
	case b.run.note <- struct{}{}:
	default:
	}
}

func (l *Ledger) lastAcked() ledger.EntryID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

func (b *board) read() (acked ledger.EntryID, heard time.Time, err error) {
	acked = b.ledger.lastAcked()
	b.mu.Lock()
	defer b.mu.Unlock()
	return acked, b.heard, b.err
}

func (b *board) touch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = time.Now()
}

// close orders what was decided. It is retried for as long as the client lives.
func (r *run) close(l *Ledger) {
	if l.last == ledger.NoEntry {
		r.delete(l)
		return
	}
	r.calls.Add(1)
	r.client.Close(l.Ref, l.last, func(err error) {
		defer r.calls.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case err == nil:
			l.closed = true
		case errors.Is(err, ledger.ErrShutdown), l.deleted && errors.Is(err, ledger.ErrNoLedger):
		default:
			r.log.fault(fmt.Errorf("close of %v at %d, %d acknowledged: %w", l.Ref, l.last, l.acked, err))
		}
	})
}

// delete is repeated until it is answered.
func (r *run) delete(l *Ledger) {
	l.mu.Lock()
	l.deleted = true
	l.mu.Unlock()
	r.calls.Add(1)
	r.client.Delete(l.Ref, func(err error) {
		defer r.calls.Done()
		switch {
		case err == nil, errors.Is(err, ledger.ErrShutdown):
		case isFinal(err):
			r.log.fault(fmt.Errorf("delete of %v: %w", l.Ref, err))
		default:
			r.delete(l)
		}
	})
}

// forget deletes one ledger in keepEvery of those that are closed and not the newest, so that deletes are part of the load.
func (r *run) forget() {
	list := r.ledgers()
	if len(list) < 4 || r.log.keep.Load() {
		return
	}
	l := list[len(list)-4]
	l.mu.Lock()
	gone := !l.closed || l.deleted
	l.mu.Unlock()
	if !gone && l.attempt%keepEvery == 0 {
		r.delete(l)
	}
}

// isFinal says whether an error is an answer, not the lack of one.
func isFinal(err error) bool {
	for _, e := range []error{
		ledger.ErrNotNext, ledger.ErrFenced, ledger.ErrClosed, ledger.ErrNoLedger, ledger.ErrExists, ledger.ErrNoEntry, ledger.ErrBadCommand,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func await[T any](call func(func(T, error))) (v T, err error) {
	done := make(chan struct{})
	call(func(got T, e error) { v, err = got, e; close(done) })
	<-done
	return v, err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
