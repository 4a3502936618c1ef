package executor

import (
	"runtime"
	"sync"
	"time"

	"geminga/pkg/invariant"
)

// Task is a unit of work. Reusable structs that implement it can be posted without allocation.
type Task interface{ Run() }

// Func is a function as a Task.
type Func func()

// Run calls the function.
func (f Func) Run() { f() }

// shrinkAbove is the queue capacity beyond which a queue that a burst has grown is given back.
const shrinkAbove = 8192

// Executor runs posted tasks one after another on its goroutine.
//
// The worker takes the whole queue at once by swapping two slices, so the mutex is taken once per batch on its side.
// Before it sleeps it yields once: on few cores the goroutines that just got ready often post more, and a yield is far
// cheaper than being put to sleep and woken (BenchmarkPingPong, 2 cores: 280–320 ns per round trip, 460–580 without it;
// under a steady stream of posts it makes no difference).
//
// INVARIANT: idle is true only while the worker sleeps or is about to (it holds the mutex until it sleeps), so a post
// that sees idle false will be found by the worker's next look at the queue.
type Executor struct {
	name string
	wg   sync.WaitGroup

	mu struct {
		sync.Mutex
		queue  []Task
		idle   bool
		closed bool // no task is taken any more once the queue is empty
		ended  bool // the worker has gone: posts are discarded
	}
	wake  sync.Cond
	owner invariant.Goroutine // runs the tasks
}

// New returns a running Executor. Most callers want one out of a Pool.
func New(name string) *Executor {
	e := &Executor{name: name}
	e.wake.L = &e.mu
	e.wg.Go(e.work)
	return e
}

// Name returns the name, for logs and metrics.
func (e *Executor) Name() string { return e.name }

// Post queues a task behind those posted before. It never blocks.
func (e *Executor) Post(t Task) {
	e.mu.Lock()
	if e.mu.ended {
		e.mu.Unlock()
		return
	}
	e.mu.queue = append(e.mu.queue, t)
	wake := e.mu.idle
	e.mu.idle = false
	e.mu.Unlock()
	if wake {
		e.wake.Signal()
	}
}

// PostFunc is Post(Func(f)).
func (e *Executor) PostFunc(f func()) { e.Post(Func(f)) }

// After posts the task when d has passed, unless the Timer is stopped first.
func (e *Executor) After(d time.Duration, t Task) *Timer {
	timer := &Timer{executor: e, task: t}
	timer.start(d)
	return timer
}

// Pending returns the number of tasks that are queued and not yet taken by the worker.
func (e *Executor) Pending() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.mu.queue)
}

// AssertCurrent checks, in invariants builds, that it is called from a task of this Executor.
func (e *Executor) AssertCurrent() {
	if invariant.Enabled {
		e.owner.Check("executor " + e.name)
	}
}

// Close runs what is queued, ends the goroutine and waits for it. It must not be called from a task of this Executor.
// Calling it again is harmless.
func (e *Executor) Close() {
	if invariant.Enabled {
		invariant.Assert(!e.owner.Owns(), "executor %s closes itself", e.name)
	}
	e.mu.Lock()
	e.mu.closed = true
	e.mu.idle = false
	e.mu.Unlock()
	e.wake.Signal()
	e.wg.Wait()
}

func (e *Executor) work() {
	e.owner.Own()
	var batch []Task
	for {
		batch = e.take(batch)
		if batch == nil {
			return
		}
		for i, t := range batch {
			batch[i] = nil
			t.Run()
		}
		if cap(batch) > shrinkAbove && len(batch) < cap(batch)/4 {
			batch = nil
		}
		batch = batch[:0]
	}
}

// take waits for tasks and returns them all, leaving spare as the next queue. nil means the Executor is closed.
func (e *Executor) take(spare []Task) []Task {
	e.mu.Lock()
	if len(e.mu.queue) == 0 && !e.mu.closed {
		e.mu.Unlock()
		runtime.Gosched()
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	for len(e.mu.queue) == 0 {
		if e.mu.closed {
			e.mu.ended = true
			return nil
		}
		e.mu.idle = true
		e.wake.Wait()
	}
	e.mu.idle = false
	batch := e.mu.queue
	e.mu.queue = spare
	return batch
}
