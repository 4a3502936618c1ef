package bookie

import (
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Who changes one of raft's settings does not put back what others have changed meanwhile.
func TestSettingsOfRaftAreChangedOneAtATime(t *testing.T) {
	c := newCluster(t, 1, nil)
	g := c.nodes["a"].groups.get(1)
	before := g.raft.ReloadableConfig()
	const rounds = 2000
	var wg sync.WaitGroup
	change := func(f func(c *raft.ReloadableConfig, i int)) {
		wg.Go(func() {
			for i := range rounds {
				if err := g.retune(func(c *raft.ReloadableConfig) { f(c, i) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	change(func(c *raft.ReloadableConfig, i int) {
		if want := before.TrailingLogs + uint64(i); c.TrailingLogs != want {
			t.Errorf("%d logs stay, not %d", c.TrailingLogs, want)
		}
		c.TrailingLogs++
	})
	change(func(c *raft.ReloadableConfig, i int) {
		if want := before.SnapshotInterval + time.Duration(i); c.SnapshotInterval != want {
			t.Errorf("a snapshot each %v, not %v", c.SnapshotInterval, want)
		}
		c.SnapshotInterval++
	})
	wg.Wait()
}
