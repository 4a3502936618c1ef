package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/bookietest"
)

// While nobody answers, with a message under way, shutting down is quick and no error.
func TestCloseWhileNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &heldStore{}
		cluster := bookietest.New(bookietest.Options{Groups: 1})
		t.Cleanup(cluster.Close)
		s := startOn(t, cluster, func(o *Options) {
			inBubble(o)
			o.Ledger.LedgerStallTimeout = time.Hour
			store.Store, o.Store = o.Store, store
		})
		p := pipe(t, s)
		p.handshake()
		p.producer(name(1), 1, "")
		cluster.Delay(1, time.Minute)
		p.write(sendFrame(t, 1, 0, "x"))
		synctest.Wait()
		store.hold()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > silence+time.Second {
			t.Errorf("it took %v", d)
		}
		store.release()
	})
}
