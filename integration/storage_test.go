package integration

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

var storageMB = flag.Int("storage.mb", 24, "MiB that are written in TestCatchUp while a bookie is away; 2048 for the campaign")

// TestCatchUp takes a bookie away while much more is written than the others keep in their logs. It comes back by
// snapshots, fetches the entries that it missed, and is ready when it has them, while writers go on.
func TestCatchUp(t *testing.T) {
	ctx := deadline(t, 4*time.Minute+time.Duration(*storageMB)*time.Second/4)
	c := startCluster(t, harness.Options{
		Bookies: 3, Brokers: 1, BrokerSets: []string{"brokerDeduplicationEnabled=true"},
		BookieSets: []string{"ledgerGroupSnapshotLogSizeMB=1", "ledgerGroupTrailingLogSizeMB=1", "journalMaxSizeMB=8"},
	})
	client := newClient(t, c.URLs[0])
	topic := topicName(t)
	s := startStream(ctx, t, client, topic, false)
	t.Logf("500 receipts take %v", s.progress(ctx, t, 500, "before anything"))

	leader := must[*harness.Proc](t)(c.LeaderOf(ctx, topic))
	away := c.Bookies[slices.IndexFunc(c.Bookies, func(p *harness.Proc) bool { return p != leader })]
	away.Kill()
	begun := time.Now()
	write(ctx, t, client, topic+"-bulk", *storageMB)
	t.Logf("%s is away; %d MiB written in %v", away.Name, *storageMB, time.Since(begun))

	begun = time.Now()
	if err := away.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("500 receipts take %v while it catches up", s.progress(ctx, t, 500, "catching up"))
	if err := away.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(begun))
	fetched := false
	for line := range strings.Lines(away.Tail(1 << 20)) {
		if strings.Contains(line, "all entries are here again") {
			t.Log(strings.TrimSpace(line))
			fetched = true
		}
	}
	if !fetched {
		t.Error("it has fetched nothing: the logs of the others had it all")
	}
	s.stop()
	verify(ctx, t, client, s.log)
}

// write publishes mb MiB in messages of 64 KiB, and waits for their receipts.
func write(ctx context.Context, t *testing.T, client pulsar.Client, topic string, mb int) {
	t.Helper()
	producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: true, SendTimeout: -1, MaxPendingMessages: 64,
	}))
	defer producer.Close()
	for range mb * 16 {
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: make([]byte, 64<<10)}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil && ctx.Err() == nil {
				t.Errorf("a message of %s: %v", topic, err)
			}
		})
	}
	if err := producer.FlushWithCtx(ctx); err != nil {
		t.Fatal(err)
	}
}
