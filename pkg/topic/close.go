package topic

import (
	"errors"
	"time"

	"geminga/pkg/executor"
)

// drainTimeout bounds how long a closing topic waits for the messages in flight. After it they are dropped: the clients
// send them again to the next owner.
const drainTimeout = 2 * time.Second

type closing struct {
	done     []func(error)
	timer    *executor.Timer
	deadline bool
	cursors  int // being closed
	errs     []error
	logging  bool // the managed ledger is being closed
	lost     error
	remove   bool // the topic is to be deleted
}

// Close ends the topic: no new messages, those in flight are answered, producers and consumers are closed (their
// clients look the topic up again), positions and deduplication state are stored, the log is closed. done on the topic's
// executor. Calling it again waits for the same end.
func (t *Topic) Close(done func(error)) {
	t.exec.AssertCurrent()
	switch t.state {
	case ended:
		done(nil)
		return
	case opening, running:
		t.state = draining
		t.closing.timer = t.exec.After(drainTimeout, executor.Func(func() {
			t.closing.deadline = true
			t.advanceClose()
		}))
	}
	t.closing.done = append(t.closing.done, done)
	t.advanceClose()
}

// lost ends the topic because nothing will complete any more.
func (t *Topic) lost(err error) {
	t.exec.AssertCurrent()
	if t.state == ended || t.closing.lost != nil {
		return
	}
	t.env.Logger.Info("topic lost", "error", err)
	t.closing.lost = err
	t.dropPending()
	if t.state != running {
		t.advanceClose()
		return
	}
	t.Close(func(error) {})
	if report := t.env.Lost; report != nil {
		report(t, err)
	}
}

// advanceClose takes the next step of closing, if it is time. It is called after everything that a step may wait for.
func (t *Topic) advanceClose() {
	switch t.state {
	case draining:
		if t.pub.pending.len() > 0 && !t.closing.deadline && t.closing.lost == nil {
			return
		}
		for _, s := range t.slots {
			if s.state != slotOpen {
				return // its opening or removal ends soon and calls this again
			}
		}
		t.closing.timer.Stop()
		t.state = ending
		t.dropPending()
		t.closeProducers()
		t.closeSubscriptions()
		t.closeDedup()
		t.advanceClose()
	case ending:
		if t.closing.cursors > 0 || t.closing.logging || t.dedup != nil && t.dedup.snapshot.writing {
			return
		}
		t.closing.logging = true
		end := t.log.Close
		if t.closing.remove {
			end = t.log.Delete
		}
		end(func(err error) {
			t.state = ended
			switch {
			case t.closing.remove:
				t.closing.errs = nil // what was not stored is gone anyway
			case t.closing.lost != nil:
				err = nil // there was nothing left to store
			}
			t.finishClose(errors.Join(append(t.closing.errs, err)...))
		})
	}
}

func (t *Topic) finishClose(err error) {
	done := t.closing.done
	t.closing.done = nil
	for _, f := range done {
		f(err)
	}
}

func (t *Topic) closeSubscriptions() {
	t.closing.cursors = len(t.slots)
	for name, s := range t.slots {
		s.state = slotDeleting
		s.sub.exec.PostFunc(func() {
			s.sub.shutDown(func(err error) {
				t.exec.PostFunc(func() {
					if err != nil && t.closing.lost == nil {
						t.closing.errs = append(t.closing.errs, err)
					}
					delete(t.slots, name)
					s.wake(ErrNotReady)
					t.closing.cursors--
					t.advanceClose()
				})
			})
		})
	}
}

// closeDedup stores the deduplication state once more, so that the next owner has little to replay.
func (t *Topic) closeDedup() {
	if t.dedup == nil || t.closing.lost != nil {
		return
	}
	t.dedup.snapshot.idle = func() {
		if t.dedup.snapshot.entries > 0 && !t.closing.remove {
			t.dedup.snapshot.idle = t.advanceClose
			t.writeSnapshot(time.Now())
			return
		}
		t.advanceClose()
	}
	if !t.dedup.snapshot.writing {
		t.snapshotIdle()
	}
}
