package managedledger_test

import (
	"testing"
	"time"

	"geminga/pkg/managedledger"
)

// A topic whose list is full keeps its ledger going, and can be opened again.
func TestFullListOfLedgers(t *testing.T) {
	inWorld(t, func(w *world) {
		opts := managedledger.Options{MaxEntriesPerLedger: 1, MinRolloverTime: 1, MaxLedgers: 5}
		n := w.node(1, opts)
		n.mustOpen()
		for range 20 {
			n.add("x")
			pass(time.Second)
		}
		var st managedledger.Stats
		on(n.exec, func() { st = n.ml.Stats() })
		if err := n.lostErr(); err != nil || st.Entries != 20 || st.Ledgers > 5 || st.Ledgers < 4 {
			t.Errorf("%+v, lost: %v", st, err)
		}
		n.kill()
		next := w.node(2, opts)
		next.mustOpen()
		next.add("y")
		pass(time.Second)
		if got := len(next.results()); got != 1 {
			t.Errorf("%d entries added by the next owner", got)
		}
	})
}
