package managedledger

import (
	"math"
	"sync/atomic"
	"time"

	"geminga/pkg/ledger"
)

// writer is the one ledger that takes adds at a time. It is the ledger.Waiter of its appends and the task that handles
// their progress: any number of acknowledgements between two turns of the executor cost one task.
//
//	stream                                     executor
//	1 acked = 7                                1 posted = false
//	2 posted was true: leaves it to the task   2 reads acked: 7 or later
//
// Since the task clears the flag before it reads, a progress that finds the flag set is either read by the coming turn
// or posts one of its own.
type writer struct {
	m       *ManagedLedger
	ref     ledger.Ref
	created time.Time

	// The executor's.
	next     ledger.EntryID // the next to send
	bytes    int64          // sent
	progress time.Time      // of the latest acknowledgement, or the first append after a pause
	broken   error          // the stream's verdict: nothing beyond acked will come

	confirmed atomic.Int64 // completed and readable; readers look at it through the view

	// The stream's.
	acked   atomic.Int64
	failure atomic.Pointer[error]
	posted  atomic.Bool
}

func newWriter(m *ManagedLedger, ref ledger.Ref) *writer {
	w := &writer{m: m, ref: ref, created: time.Now()}
	w.confirmed.Store(int64(ledger.NoEntry))
	w.acked.Store(int64(ledger.NoEntry))
	return w
}

// Appended implements ledger.Waiter.
func (w *writer) Appended(_ ledger.Ref, last ledger.EntryID, err error) {
	if int64(last) > w.acked.Load() {
		w.acked.Store(int64(last))
	}
	if err != nil {
		failure := err // of its own, so that only a failure is allocated
		w.failure.CompareAndSwap(nil, &failure)
	}
	w.post()
}

func (w *writer) post() {
	if w.posted.CompareAndSwap(false, true) {
		w.m.env.Executor.Post(w)
	}
}

// Run implements executor.Task.
func (w *writer) Run() {
	w.posted.Store(false)
	w.m.progressed(w)
}

// outstanding returns the entries sent and not completed.
func (w *writer) outstanding() int64 { return int64(w.next) - 1 - w.confirmed.Load() }

// entries returns the entries sent.
func (w *writer) entries() int64 { return int64(w.next) }

// room returns how many more entries fit, if the ledger is not to exceed most.
func (w *writer) room(most int64) int {
	return int(min(max(most-w.entries(), 0), math.MaxInt32))
}
