package managedledger

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// counter is an owner that counts all references and refuses to come back from zero.
type counter struct{ refs atomic.Int64 }

func (c *counter) Retain() {
	if c.refs.Add(1) <= 1 {
		panic("retained from zero")
	}
}

func (c *counter) Release() {
	if c.refs.Add(-1) < 0 {
		panic("released too often")
	}
}

func payloads(owner *counter, n, size int) []ledger.Payload {
	ps := make([]ledger.Payload, n)
	for i := range ps {
		ps[i] = ledger.Payload{Data: make([]byte, size), Owner: owner}
		ps[i].Data[0] = byte(i)
	}
	return ps
}

func inCache(t *testing.T, o CacheOptions, f func(c *Cache, e *executor.Executor)) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCache(o)
		if err != nil {
			t.Fatal(err)
		}
		e := executor.New("cache")
		f(c, e)
		c.Close()
		if c.Bytes() != 0 || c.Entries() != 0 {
			t.Errorf("%d bytes, %d entries left", c.Bytes(), c.Entries())
		}
		pass(time.Minute) // the last sweep finds nothing
		e.Close()
	})
}

func look(c *Cache, id ledger.ID, first ledger.EntryID, max ledger.Limits) []ledger.Entry {
	return c.lookup(nil, span{ledger: id, first: first, max: max})
}

func TestCacheFindsNeighbours(t *testing.T) {
	inCache(t, CacheOptions{}, func(c *Cache, e *executor.Executor) {
		owner := &counter{}
		owner.refs.Store(1)
		c.insert(e, 7, 60, payloads(owner, 10, 100), 0)
		c.insert(e, 7, 71, payloads(owner, 5, 100), 0)
		for _, tc := range []struct {
			first ledger.EntryID
			max   ledger.Limits
			want  int
		}{
			{60, ledger.Limits{Entries: 100, Bytes: 1 << 20}, 10},
			{59, ledger.Limits{Entries: 100, Bytes: 1 << 20}, 0},
			{65, ledger.Limits{Entries: 3, Bytes: 1 << 20}, 3},
			{65, ledger.Limits{Entries: 3, Bytes: 250}, 2},
			{65, ledger.Limits{Entries: 3, Bytes: 1}, 1}, // the first one always
			{71, ledger.Limits{Entries: 100, Bytes: 1 << 20}, 5},
		} {
			got := look(c, 7, tc.first, tc.max)
			if len(got) != tc.want {
				t.Errorf("from %d at most %v: %d entries, want %d", tc.first, tc.max, len(got), tc.want)
			}
			for i, e := range got {
				if want := (ledger.Position{Ledger: 7, Entry: tc.first + ledger.EntryID(i)}); e.Position != want {
					t.Errorf("got %s, want %s", e.Position, want)
				}
			}
			release(got)
		}
		if got := look(c, 8, 60, ledger.Limits{Entries: 1, Bytes: 1}); len(got) != 0 {
			t.Error("found another ledger's entry")
		}
		if owner.refs.Load() != 16 {
			t.Errorf("%d references, want 15 of the cache and ours", owner.refs.Load())
		}
		c.Close()
		if owner.refs.Load() != 1 {
			t.Errorf("%d references, want ours", owner.refs.Load())
		}
	})
}

func TestCacheEvictsByTime(t *testing.T) {
	inCache(t, CacheOptions{TTL: time.Second}, func(c *Cache, e *executor.Executor) {
		owner := &counter{}
		owner.refs.Store(1)
		c.insert(e, 1, 0, payloads(owner, 3, 10), 0)
		pass(900 * time.Millisecond)
		synctest.Wait()
		if c.Entries() != 3 {
			t.Errorf("%d entries before their time", c.Entries())
		}
		c.insert(e, 1, 3, payloads(owner, 1, 10), 0) // the block is in use
		pass(200 * time.Millisecond)
		synctest.Wait()
		if c.Entries() != 4 {
			t.Errorf("%d entries of a block in use", c.Entries())
		}
		held := look(c, 1, 0, ledger.Limits{Entries: 10, Bytes: 100})
		pass(3 * time.Second)
		synctest.Wait()
		if c.Entries() != 0 || owner.refs.Load() != 5 {
			t.Errorf("%d entries after their time, %d references", c.Entries(), owner.refs.Load())
		}
		release(held)
	})
}

func TestCacheKeepsItsBudget(t *testing.T) {
	inCache(t, CacheOptions{Bytes: 100_000}, func(c *Cache, e *executor.Executor) {
		owner := &counter{}
		owner.refs.Store(1)
		for i := range ledger.EntryID(1000) {
			c.insert(e, ledger.ID(1+i%5), 64*i, payloads(owner, 64, 100), 0)
			if c.Bytes() > 100_000 {
				t.Fatalf("%d bytes", c.Bytes())
			}
		}
		if c.Bytes() < 80_000 {
			t.Errorf("%d bytes: too much was evicted", c.Bytes())
		}
		if got := look(c, 1+999%5, 999*64, ledger.Limits{Entries: 64, Bytes: 1 << 20}); len(got) != 64 {
			t.Error("the newest block is not there")
		} else {
			release(got)
		}
		if owner.refs.Load() != 1+c.Entries() {
			t.Errorf("%d references for %d entries", owner.refs.Load(), c.Entries())
		}
	})
}

func TestCachePolicyIsReadAtEachInsert(t *testing.T) {
	inCache(t, CacheOptions{}, func(c *Cache, e *executor.Executor) {
		owner := &counter{}
		owner.refs.Store(1)
		c.insert(e, 1, 0, payloads(owner, 1, 10), 0)
		c.SetCopyEntries(true)
		ps := payloads(owner, 2, 10)
		c.insert(e, 1, 1, ps, 0)
		if owner.refs.Load() != 2 {
			t.Errorf("%d references", owner.refs.Load())
		}
		ps[1].Data[0] = 99 // the memory goes to somebody else
		got := look(c, 1, 0, ledger.Limits{Entries: 9, Bytes: 100})
		if len(got) != 3 || got[2].Payload.Data[0] != 1 {
			t.Errorf("got %v", got)
		}
		release(got)
		c.SetCopyEntries(false)
		c.insert(e, 1, 3, payloads(owner, 1, 10), 0)
		if owner.refs.Load() != 3 {
			t.Errorf("%d references", owner.refs.Load())
		}
	})
}

// TestCacheUnderRace has inserts, lookups and evictions at once; owners panic when a reference comes back from zero.
func TestCacheUnderRace(t *testing.T) {
	c, _ := NewCache(CacheOptions{Bytes: 20_000, TTL: time.Millisecond})
	pool := executor.NewPool(executor.Options{Name: "cache", Threads: 4})
	owners := make([]*counter, 4)
	done := make(chan struct{}, 4)
	for g := range owners {
		owners[g] = &counter{}
		owners[g].refs.Store(1)
		e := pool.Next()
		e.PostFunc(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 0))
			for i := range 2000 {
				c.insert(e, ledger.ID(g%2), ledger.EntryID(i*5), payloads(owners[g], 5, 20), 0)
				got := look(c, ledger.ID(rnd.IntN(2)), ledger.EntryID(rnd.IntN(i*5+1)), ledger.Limits{Entries: 70, Bytes: 900})
				if i%50 == 0 {
					c.Sweep()
				}
				release(got)
			}
			done <- struct{}{}
		})
	}
	for range owners {
		<-done
	}
	pool.Close()
	c.Close()
	for g, o := range owners {
		if o.refs.Load() != 1 {
			t.Errorf("owner %d: %d references", g, o.refs.Load())
		}
	}
}

// pass lets time pass; it is virtual.
func pass(d time.Duration) { <-time.After(d) }
