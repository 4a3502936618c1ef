package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

// TestClustersStayApart: brokers of two clusters whose gossipJoin names the members of both do not take each other for
// members. Each answers with itself for every topic, and serves. Only one is told its cluster's id; the other learns it.
func TestClustersStayApart(t *testing.T) {
	ctx := deadline(t, time.Minute)
	one := startCluster(t, harness.Options{Bookies: 1, ClusterID: "one"})
	two := startCluster(t, harness.Options{Bookies: 1, ClusterID: "two"})
	start := func(c, other *harness.Cluster, sets ...string) *harness.Proc {
		// The strangers come first, so that they have had their turn once the broker knows its own bookie.
		join := "gossipJoin=" + strings.Join(slices.Concat(other.Gossip(), c.Gossip()), ",")
		p := must[*harness.Proc](t)(c.NewBroker(append(sets, join)...))
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		if err := p.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		waitLog(ctx, t, p, "member=bookie-1")
		return p
	}
	brokers := map[*harness.Proc]*harness.Cluster{start(one, two): one, start(two, one, "bookieClusterId=two"): two}
	for p, c := range brokers {
		for i := range 40 {
			topic := fmt.Sprintf("%s-%d", topicName(t), i)
			if owner := ownerAfter(ctx, t, p, topic); owner != c.URLs[0] {
				t.Fatalf("%s names %s as the owner of %s", c.URLs[0], owner, topic)
			}
		}
		producer := must[pulsar.Producer](t)(newClient(t, c.URLs[0]).CreateProducer(pulsar.ProducerOptions{Topic: topicName(t)}))
		if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("x")}); err != nil {
			t.Errorf("%s: %v", c.URLs[0], err)
		}
	}
}

// waitLog waits until a process has logged some words.
func waitLog(ctx context.Context, t *testing.T, p *harness.Proc, words string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(p.Log); err == nil && strings.Contains(string(b), words) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s does not say %q: %s", p.Name, words, p.Tail(20))
		}
	}
}
