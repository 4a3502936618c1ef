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

// TestMetadataMembersMove takes all three members that the metadata group began with away for good while messages flow: two
// die, one after the other, which the group could not bear without a replacement in between, and the last one is
// decommissioned and stopped. Bookies that joined later take their places, one of them after it had lost its disk under
// another id. Then one of the dead comes back with all that it knew, and all is started anew. The cluster serves all the time,
// and in the end every message with a receipt is read once, in order.
func TestMetadataMembersMove(t *testing.T) {
	ctx := deadline(t, 8*time.Minute)
	c := startCluster(t, harness.Options{
		Bookies: 3, Brokers: 2, BookieSets: []string{"lostBookieRecoveryDelay=10"}, BrokerSets: []string{"brokerDeduplicationEnabled=true"},
	})
	for _, id := range []string{"bookie-4", "bookie-5"} {
		restart(ctx, t, must[*harness.Proc](t)(c.NewBookie(id)))
	}
	founders := slices.Clone(c.Bookies[:3])
	topic := topicName(t)
	client := newClient(t, c.URLs[0]+","+c.URLs[1][len("pulsar://"):])
	s := startStream(ctx, t, client, topic, false)
	s.progress(ctx, t, 1000, "before anything")

	var gone []string
	for range 2 {
		leads := must[string](t)(harness.MetadataLeader(ctx, running(c.Bookies, gone)))
		at := slices.IndexFunc(founders, func(p *harness.Proc) bool { return p.Name == leads })
		lost := founders[max(at, 0)] // the leader, unless a newcomer leads by now
		founders = slices.DeleteFunc(founders, func(p *harness.Proc) bool { return p == lost })
		gone = append(gone, lost.Name)
		begun := time.Now()
		lost.Kill()
		t.Logf("%s is dead, %s led the metadata; publishing again after %v", lost.Name, leads, s.progress(ctx, t, 500, "member dead"))
		now := metadataWithout(ctx, t, running(c.Bookies, gone), gone)
		t.Logf("members after %v: %v", time.Since(begun), now)
		awaitMembers(ctx, t, running(c.Bookies, gone), lost.Name) // or a ledger group may lose two of three
		t.Logf("its replicas are on others after %v", time.Since(begun))
		ownsAgain(ctx, t, c, topic, len(gone))
		s.progress(ctx, t, 500, "replaced")
	}

	// A disk was replaced: the bookie comes back under a new id, and takes the place of the last of the first members.
	fresh := must[*harness.Proc](t)(c.NewBookie("bookie-6"))
	restart(ctx, t, fresh)
	last := founders[0]
	out, err := c.Order(ctx, "decommission", last.Name)
	t.Logf("decommission of %s:\n%s", last.Name, out[max(0, len(out)-1000):])
	if err != nil || strings.Contains(out, "must go on running") {
		t.Fatalf("decommission: %v", err)
	}
	gone = append(gone, last.Name)
	left := running(c.Bookies, gone)
	if now := metadataWithout(ctx, t, left, gone); !slices.Contains(now, fresh.Name) {
		t.Errorf("members are %v, want %s among them", now, fresh.Name)
	}
	if err := last.Term(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	s.progress(ctx, t, 500, "none of the first members is left")

	// It knows only members that are gone, and holds the metadata as they were.
	back := c.Bookies[slices.IndexFunc(c.Bookies, func(p *harness.Proc) bool { return p.Name == gone[0] })]
	restart(ctx, t, back)
	metadataWithout(ctx, t, append(left, back), gone)
	s.progress(ctx, t, 500, "one of the dead is back")

	left = append(left, back)
	for _, p := range left {
		p.Kill()
	}
	for _, p := range left {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("all bookies were killed; publishing again after %v", s.progress(ctx, t, 500, "all bookies restarted"))
	s.stop()
	verify(ctx, t, client, s.log)
}

// running leaves out the bookies with some names.
func running(all []*harness.Proc, gone []string) []*harness.Proc {
	return slices.DeleteFunc(slices.Clone(all), func(p *harness.Proc) bool { return slices.Contains(gone, p.Name) })
}

// metadataWithout waits until three bookies of those that run are members of the metadata group, by the word of each, and
// returns their ids.
func metadataWithout(ctx context.Context, t *testing.T, bookies []*harness.Proc, gone []string) []string {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		members, fault := []string{}, ""
		for _, p := range bookies {
			g, err := harness.Metadata(ctx, p)
			if err != nil {
				fault = err.Error()
			}
			if g == nil {
				continue
			}
			members = append(members, p.Name)
			if len(g.Replicas) != 3 || slices.ContainsFunc(g.Replicas, func(id string) bool { return slices.Contains(gone, id) }) {
				fault = fmt.Sprintf("%s says %v", p.Name, g.Replicas)
			}
		}
		if fault == "" && len(members) == 3 {
			return members
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("members are %v: %s", members, fault)
		}
	}
}

// ownsAgain kills the owner of the topic, so that another broker has to write to the metadata, and starts it again, so that
// it has to find them.
func ownsAgain(ctx context.Context, t *testing.T, c *harness.Cluster, topic string, round int) {
	t.Helper()
	owner := must[*harness.Proc](t)(c.OwnerOf(ctx, topic))
	owner.Kill()
	restart(ctx, t, owner)
	t.Logf("round %d: %s was killed and is back", round, owner.Name)
}
