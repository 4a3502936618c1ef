package managedledger

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// An update of the policy is not lost on ledgers whose entries come for the first time, or into blocks that are being
// made, at the same time: whatever is inserted when the update has returned follows it.
func TestCachePolicyIsNotLost(t *testing.T) {
	c, err := NewCache(CacheOptions{Bytes: 1 << 30, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	pool := executor.NewPool(executor.Options{Name: "cache", Threads: 4})
	defer pool.Close()
	const executors, inserts, updates = 4, 3000, 400
	var updating atomic.Int64 // odd while an update runs; an even number/2 updates are done
	var compared atomic.Int64
	copies := func(done int64) bool { return done/2%2 == 1 }
	var wg sync.WaitGroup
	for g := range executors {
		e := pool.Next()
		wg.Add(1)
		e.PostFunc(func() {
			defer wg.Done()
			for i := range inserts {
				owner := &counter{}
				owner.refs.Store(1)
				before := updating.Load()
				c.insert(e, ledger.ID(g*inserts+i/3), ledger.EntryID(i%3), payloads(owner, 1, 10), 0) // each third in a new block
				if before != updating.Load() || before%2 != 0 {
					continue // it came together with an update: either is right
				}
				compared.Add(1)
				if kept := owner.refs.Load() > 1; kept == copies(before) {
					t.Errorf("after %d updates: kept %t", before/2, kept)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for i := range int64(updates) {
			updating.Add(1)
			c.SetCopyEntries(copies(2*i + 2))
			updating.Add(1)
			<-time.After(10 * time.Microsecond)
		}
	})
	wg.Wait()
	if compared.Load() == 0 {
		t.Error("each insert came together with an update")
	}
	c.Close()
}
