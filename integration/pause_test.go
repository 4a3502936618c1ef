package integration

import (
	"syscall"
	"testing"
	"time"

	"geminga/integration/harness"
)

// TestPauses stops processes for longer than their deadlines, as a suspended machine does, and lets them go on: the
// bookie that leads the topic's group, then all bookies, then the broker that owns the topic. No process may take its
// own absence for a fault of its disk, and nothing that was promised is lost.
func TestPauses(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	c := startCluster(t, harness.Options{
		Bookies: 3, Brokers: 2,
		BookieSets: []string{"journalWriteTimeoutSeconds=1"},
		BrokerSets: []string{"brokerDeduplicationEnabled=true"},
	})
	topic := topicName(t)
	client := newClient(t, c.URLs[0]+","+c.URLs[1][len("pulsar://"):])
	s := startStream(ctx, t, client, topic, false)
	s.progress(ctx, t, 500, "before any pause")
	pause := func(what string, ps ...*harness.Proc) {
		for _, p := range ps {
			if err := p.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(3 * time.Second)
		for _, p := range ps {
			if err := p.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s paused; publishing again after %v", what, s.progress(ctx, t, 500, what))
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		pause("leader", must[*harness.Proc](t)(c.LeaderOf(ctx, topic)))
		pause("all bookies", c.Bookies...)
		pause("owner", must[*harness.Proc](t)(c.OwnerOf(ctx, topic)))
	}
	s.stop()
	verify(ctx, t, client, s.log)
}
