package executor

import (
	"sync/atomic"
	"time"
)

const (
	timerArmed int32 = iota
	timerRan
	timerStopped
)

// Timer is a task that will be posted. It runs on its Executor like any other task.
type Timer struct {
	executor *Executor
	task     Task
	state    atomic.Int32
	clock    *time.Timer
}

func (t *Timer) start(d time.Duration) {
	t.clock = time.AfterFunc(d, func() { t.executor.Post((*due)(t)) })
}

// Stop keeps the task from running and reports whether it did so: after true the task never runs; after false it has
// run, is running, or was stopped before. Called from any goroutine.
func (t *Timer) Stop() bool {
	stopped := t.state.CompareAndSwap(timerArmed, timerStopped)
	if stopped {
		t.clock.Stop()
	}
	return stopped
}

// due is the Timer as the task that is posted; a type of its own keeps Run out of the Timer's methods.
type due Timer

func (t *due) Run() {
	if t.state.CompareAndSwap(timerArmed, timerRan) {
		t.task.Run()
	}
}
