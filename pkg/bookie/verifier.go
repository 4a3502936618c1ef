package bookie

import (
	"context"
	"sync"
)

// verifier answers "do we still lead?" for many readers with few rounds of messages. A round that began after a reader
// came answers that reader; one under way does not, because its answer may be older than what the reader must see.
//
//	reader A ──▶ round 1 ═══════════╗
//	reader B ─────────▶ waits       ║ answers A
//	reader C ────────────▶ waits    ╚══▶ round 2 ══════╗
//	                                                   ╚ answers B, C
type verifier struct {
	ask  func(context.Context) error
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	running bool
	next    *round // not begun; nil: nobody waits
}

type round struct {
	done chan struct{}
	err  error
}

func newVerifier(ask func(context.Context) error) *verifier {
	ctx, cancel := context.WithCancel(context.Background())
	return &verifier{ask: ask, ctx: ctx, stop: cancel}
}

// verify returns nil when leadership was confirmed after the call began.
func (v *verifier) verify(ctx context.Context) error {
	v.mu.Lock()
	if v.next == nil {
		v.next = &round{done: make(chan struct{})}
	}
	mine := v.next
	if !v.running && v.ctx.Err() == nil {
		v.running = true
		v.wg.Go(v.run)
	}
	v.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	case <-v.ctx.Done():
		return errStopped
	}
}

// run goes on while somebody waits.
func (v *verifier) run() {
	for {
		v.mu.Lock()
		r := v.next
		v.next = nil
		if r == nil {
			v.running = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		r.err = v.ask(v.ctx)
		close(r.done)
	}
}

func (v *verifier) close() {
	v.mu.Lock()
	v.stop()
	v.mu.Unlock()
	v.wg.Wait()
}
