// Package executor runs tasks one after another: a topic lives on one Executor, and so does each subscription, which is
// why neither needs a lock.
//
//	loop, stream, timer ──Post──▶ [ task task task ] ──swap──▶ one goroutine: Run, Run, Run
//	  any goroutine               guarded by a mutex            owns the state of what is bound to it
//
// Promises:
//
//   - Tasks posted to one Executor run one at a time, in the order of their posts.
//   - Post never blocks and never drops a task before Close. The queue has no bound on purpose: a bounded queue that
//     its own consumer fills deadlocks. What enters the system is bounded at its edge.
//   - A wake-up happens only when the Executor is idle, so a busy one costs a mutex and an append per post.
//   - Post does not allocate once the queue has grown to its usual length.
//   - Works inside testing/synctest bubbles: an idle Executor is durably blocked.
//
// Callers are broker, topic and managedledger; a Pool is made by whoever owns the threads. All methods may be called
// from any goroutine, except where they say otherwise. Close waits for the goroutine.
//
// Non-obvious:
//
//   - Close runs what was posted before it, and what those tasks post, then ends; later posts are discarded
//     (TestCloseRunsWhatWasPosted).
//   - Timer.Stop that returns true means the task never runs, even when the timer was already due and queued
//     (TestStopOfAQueuedTimer).
//   - A task must not block: everything bound to its Executor waits for it.
package executor
