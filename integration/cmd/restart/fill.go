package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"geminga/pkg/bookieclient"
	"geminga/pkg/ledger"
)

const (
	epoch = ledger.Epoch(1)
	// inFlight bounds the payload bytes that are not acknowledged.
	inFlight = 32 << 20
	// checked is how many entries are read back after each restart.
	checked = 200
)

// filler appends to all ledgers in turn, so that neighbours in the log belong to different ledgers.
type filler struct {
	client  *bookieclient.Client
	o       *options
	payload []byte

	mu      sync.Mutex
	change  sync.Cond
	ledgers []*target
	byID    map[ledger.ID]*target
	unacked int // bytes
	err     error
	filled  int64
	turn    int
}

// target is a ledger that is filled.
type target struct {
	ref   ledger.Ref
	next  ledger.EntryID
	acked ledger.EntryID
}

func newFiller(client *bookieclient.Client, o *options) *filler {
	f := &filler{client: client, o: o, payload: make([]byte, o.entry), byID: map[ledger.ID]*target{}}
	f.change.L = &f.mu
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(f.payload)
	return f
}

// create makes the ledgers, some at a time.
func (f *filler) create(ctx context.Context) error {
	room := make(chan struct{}, 64)
	for range f.o.ledgers {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		f.client.Create(epoch, 0, func(ref ledger.Ref, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if err != nil {
				f.err = errors.Join(f.err, err)
			} else {
				t := &target{ref: ref, acked: ledger.NoEntry}
				f.ledgers, f.byID[ref.ID] = append(f.ledgers, t), t
			}
			<-room
		})
	}
	for range cap(room) {
		room <- struct{}{}
	}
	return f.err
}

// Appended implements ledger.Waiter.
func (f *filler) Appended(ref ledger.Ref, last ledger.EntryID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.byID[ref.ID]
	f.unacked -= int(last-t.acked) * f.o.entry
	t.acked = last
	if err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("%s after %d: %w", ref, last, err))
	}
	f.change.Broadcast()
}

// fill appends until so many payload bytes are there, and waits until all are acknowledged.
func (f *filler) fill(ctx context.Context, total int64) error {
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = errors.Join(f.err, ctx.Err())
		f.change.Broadcast()
	})
	defer stop()
	entries := make([]ledger.Payload, f.o.batch)
	for i := range entries {
		entries[i].Data = f.payload
	}
	size := f.o.batch * f.o.entry
	for ; f.filled < total; f.filled += int64(size) {
		if err := f.wait(func() bool { return f.unacked+size <= inFlight }); err != nil {
			return err
		}
		t := f.ledgers[f.turn%len(f.ledgers)]
		f.turn++
		first := t.next
		t.next += ledger.EntryID(f.o.batch)
		f.mu.Lock()
		f.unacked += size
		f.mu.Unlock()
		f.client.Append(t.ref, epoch, first, entries, f)
	}
	return f.wait(func() bool { return f.unacked == 0 })
}

func (f *filler) wait(until func() bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil && !until() {
		f.change.Wait()
	}
	return f.err
}

// check reads some entries of some ledgers back, the last one of each among them.
func (f *filler) check(ctx context.Context) error {
	for i := range checked {
		t := f.ledgers[rand.IntN(len(f.ledgers))]
		if t.acked == ledger.NoEntry {
			continue
		}
		at := t.acked
		if i%2 == 1 {
			at = rand.N(t.acked + 1)
		}
		got, err := f.read(ctx, t, at)
		if err != nil {
			return fmt.Errorf("entry %d of %s: %w", at, t.ref, err)
		}
		if len(got) != 1 || !bytes.Equal(got[0].Payload.Data, f.payload) {
			return fmt.Errorf("entry %d of %s is another one now", at, t.ref)
		}
		got[0].Payload.Release()
	}
	return nil
}

func (f *filler) read(ctx context.Context, t *target, at ledger.EntryID) ([]ledger.Entry, error) {
	type answer struct {
		entries []ledger.Entry
		err     error
	}
	done := make(chan answer, 1)
	f.client.Read(t.ref, at, t.acked, ledger.Limits{Entries: 1, Bytes: 1}, func(e []ledger.Entry, err error) { done <- answer{e, err} })
	select {
	case a := <-done:
		return a.entries, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
