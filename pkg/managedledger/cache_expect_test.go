package managedledger

import (
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// TestCacheWaitsForReaders: entries that a reader has not come to, or will come to again, get their time several times
// over; those that all have read do not, nor any beyond half of the budget.
func TestCacheWaitsForReaders(t *testing.T) {
	all := ledger.Limits{Entries: blockSize, Bytes: 1 << 20}
	read := func(c *Cache) { release(look(c, 1, 0, all)) }
	everything := make([]ledger.Position, blockSize)
	for i := range everything {
		everything[i] = ledger.Position{Ledger: 1, Entry: ledger.EntryID(i)}
	}
	again := func(c *Cache) { c.expect(everything) }
	for name, tc := range map[string]struct {
		readers int
		budget  int64
		do      []func(*Cache)
		stays   time.Duration // from then on
	}{
		"nobody reads":           {0, 1 << 20, nil, time.Second},
		"a reader is behind":     {1, 1 << 20, nil, (1 + maxExtensions) * time.Second},
		"all have read":          {2, 1 << 20, []func(*Cache){read, read}, time.Second},
		"one of two has read":    {2, 1 << 20, []func(*Cache){read}, (1 + maxExtensions) * time.Second},
		"will be read again":     {1, 1 << 20, []func(*Cache){read, again}, (1 + maxExtensions) * time.Second},
		"was read again":         {1, 1 << 20, []func(*Cache){read, again, read}, time.Second},
		"the budget is needed":   {1, blockSize * 10, nil, time.Second},
		"read more than thought": {1, 1 << 20, []func(*Cache){read, read, again}, (1 + maxExtensions) * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCache(t, CacheOptions{Bytes: tc.budget, TTL: time.Second}, func(c *Cache, e *executor.Executor) {
				owner := &counter{}
				owner.refs.Store(1)
				c.insert(e, 1, 0, payloads(owner, blockSize, 9), tc.readers)
				for _, f := range tc.do {
					f(c)
				}
				pass(tc.stays - 100*time.Millisecond)
				synctest.Wait()
				if c.Entries() != blockSize {
					t.Errorf("%d entries before %v", c.Entries(), tc.stays)
				}
				pass(2 * time.Second)
				synctest.Wait()
				if c.Entries() != 0 || owner.refs.Load() != 1 {
					t.Errorf("%d entries after %v", c.Entries(), tc.stays)
				}
			})
		})
	}
}
