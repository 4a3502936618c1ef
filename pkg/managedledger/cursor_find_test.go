package managedledger_test

import (
	"strconv"
	"testing"
	"testing/synctest"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// Entries "0", "1", … over several ledgers: every border is found, and the part that is left begins before it and is no
// longer than asked for.
func TestBisect(t *testing.T) {
	const entries = 40
	inWorld(t, func(w *world) {
		n := w.filled(entries, 7)
		all := n.results()
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest, Inclusive: true})
		for _, least := range []int64{0, 1, 6, 100} {
			for border := range entries + 1 {
				var got ledger.Position
				reads := 0
				on(n.sub, func() {
					c.Bisect(least, func(payload []byte) bool {
						reads++
						i, err := strconv.Atoi(string(payload))
						return err == nil && i < border
					}, func(p ledger.Position, err error) {
						got = p
						if err != nil {
							t.Error(err)
						}
					})
				})
				synctest.Wait()
				at := 0
				for at < entries && all[at].pos.Less(got) {
					at++
				}
				if at > border || int64(at) < int64(border)-least || least == 100 && (at > 0 || reads > 0) || reads > 6 {
					t.Errorf("border %d, least %d: %d after %d reads", border, least, at, reads)
				}
			}
		}
		on(n.sub, func() { c.Close(nil) })
		on(n.sub, func() {
			c.Bisect(0, nil, func(_ ledger.Position, err error) {
				if err == nil {
					t.Error("closed cursor")
				}
			})
		})
	})
}

func TestBisectOfNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.filled(0, 7)
		c := n.mustCursor(managedledger.CursorOptions{Name: "c", Initial: ledger.Earliest, Inclusive: true})
		done := 0
		on(n.sub, func() {
			c.Bisect(0, nil, func(_ ledger.Position, err error) {
				if done++; err != nil {
					t.Error(err)
				}
			})
		})
		if done != 1 {
			t.Errorf("done %d times", done)
		}
	})
}
