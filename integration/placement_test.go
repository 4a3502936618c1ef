package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"geminga/integration/harness"
)

// TestReplicasMove takes two of five bookies away for good while messages flow: one dies, the other is decommissioned. The
// replicas of both end up on the rest. The dead one's disk is replaced: it is refused under its old id, and is a new
// bookie under another one. In the end every message with a receipt is read once, in order.
func TestReplicasMove(t *testing.T) {
	ctx := deadline(t, 6*time.Minute)
	c := startCluster(t, harness.Options{
		Bookies: 5, Brokers: 2, BookieSets: []string{"lostBookieRecoveryDelay=10"}, BrokerSets: []string{"brokerDeduplicationEnabled=true"},
	})
	topic := topicName(t)
	client := newClient(t, c.URLs[0]+","+c.URLs[1][len("pulsar://"):])
	s := startStream(ctx, t, client, topic, false)
	s.progress(ctx, t, 1000, "before anything")

	dead := must[*harness.Proc](t)(c.LeaderOf(ctx, topic))
	begun := time.Now()
	dead.Kill()
	t.Logf("%s is dead; publishing again after %v", dead.Name, s.progress(ctx, t, 500, "bookie dead"))
	left := slices.DeleteFunc(slices.Clone(c.Bookies), func(p *harness.Proc) bool { return p == dead })
	awaitMembers(ctx, t, left, dead.Name)
	t.Logf("its replicas are on others after %v", time.Since(begun))
	s.progress(ctx, t, 500, "replaced")

	leaver := left[0]
	begun = time.Now()
	out, err := c.Order(ctx, "decommission", leaver.Name)
	t.Logf("decommission of %s, %v:\n%s", leaver.Name, time.Since(begun), out)
	if err != nil {
		t.Fatal(err)
	}
	if held := must[[]harness.Group](t)(harness.Groups(ctx, leaver)); len(held) > 0 {
		// It hears of its leave a moment after everybody else.
		awaitMembers(ctx, t, []*harness.Proc{leaver}, leaver.Name)
	}
	if again, err := c.Order(ctx, "decommission", leaver.Name); err != nil || !strings.Contains(again, "holds no ledgers") {
		t.Errorf("decommissioned again: %v %s", err, again)
	}
	s.progress(ctx, t, 500, "decommissioned")
	if err := leaver.Term(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	left = slices.DeleteFunc(left, func(p *harness.Proc) bool { return p == leaver })
	s.progress(ctx, t, 500, "and stopped")

	out, err = c.Order(ctx, "decommission", left[0].Name)
	if err == nil || !strings.Contains(out, "cannot leave") {
		t.Errorf("a decommission with nowhere to go: %v %s", err, out)
	}

	if err := c.Wipe(dead.Name); err != nil {
		t.Fatal(err)
	}
	wantLine(t, exits(t, dead), dead.Name, "comes back under a new id")
	fresh := must[*harness.Proc](t)(c.NewBookie("bookie-6"))
	restart(ctx, t, fresh)
	s.progress(ctx, t, 500, "a new bookie")
	s.stop()
	verify(ctx, t, client, s.log)
}

// awaitMembers waits until no group that these bookies run a replica of has a certain bookie among its replicas.
func awaitMembers(ctx context.Context, t *testing.T, bookies []*harness.Proc, gone string) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var with []string
		for _, p := range bookies {
			groups, err := harness.Groups(ctx, p)
			if err != nil {
				with = append(with, err.Error())
			}
			for _, g := range groups {
				if slices.Contains(g.Replicas, gone) || slices.Contains(g.Former, gone) || g.LeaderID == "" || g.LeaderID == gone {
					with = append(with, fmt.Sprintf("%s: %+v", p.Name, g))
				}
			}
		}
		if len(with) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is still there: %v", gone, with)
		}
	}
}
