package journal

import (
	"fmt"
	"time"
)

// arm starts the clock for an operation of the writer that may hang. The memory that callers own is not touched
// between arm and disarm: when the clock runs out they get it back, while the operation may still be under way.
//
// The deadline is counted in steps, and a step is at most one however long it took. So a process that was stopped, or
// a machine that slept, does not take its own absence for a hung disk.
func (j *Journal) arm(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.armed, j.steps = what, deadlineSteps
	j.stepLocked()
}

// deadlineSteps are the steps of one WriteDeadline.
const deadlineSteps = 10

func (j *Journal) stepLocked() {
	step := j.opts.WriteDeadline / deadlineSteps
	j.due = time.Now().Add(step)
	j.clock.Reset(step)
}

// disarm stops the clock. It returns the error that poisoned the journal meanwhile, or poisons it with err.
func (j *Journal) disarm(err error) error {
	j.clock.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	what := j.armed
	j.armed = ""
	if err != nil {
		j.poisonLocked(fmt.Errorf("%s: %w", what, err))
	}
	return j.err
}

// expired runs when a step is over. A late call for an operation that has returned finds another due time, or none.
func (j *Journal) expired() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.armed == "" || time.Now().Before(j.due) {
		return
	}
	if j.steps--; j.steps > 0 {
		j.stepLocked()
		return
	}
	j.hung = true
	j.poisonLocked(fmt.Errorf("%s: %w (%v)", j.armed, ErrDeadline, j.opts.WriteDeadline))
}

// poisonLocked ends the journal's life as something that can be written: nobody knows any more what is on the disk,
// and no later sync can tell. Everybody who waits gets the error now.
func (j *Journal) poisonLocked(cause error) {
	if j.err != nil {
		return
	}
	j.err = fmt.Errorf("%w: %w", ErrPoisoned, cause)
	close(j.failed) // before anybody is released, so that who has the error finds it closed
	for _, r := range j.inflight {
		r.finishLocked(j.err)
	}
	for _, r := range j.queue {
		r.finishLocked(j.err)
	}
	j.inflight, j.queue, j.queued = nil, nil, 0
	j.wake.Signal()
	j.opts.Logger.Error("journal takes no writes any more", "dir", j.opts.Dir, "err", j.err)
}
