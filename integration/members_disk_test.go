package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

// TestMembersDisksFull fills the disk of the bookie that leads the metadata, to the last byte: the others go on, with messages
// and with new topics. Then it fills the disks of all three: none dies, none takes entries, and the full ones start again when
// they are killed. When there is room everything goes on by itself, and every message with a receipt is read once, in order.
func TestMembersDisksFull(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	dir := workDir(t)
	disk := func(id string) string { return filepath.Join(dir, id) }
	for i := range 3 {
		mountSmall(t, disk(fmt.Sprintf("bookie-%d", i+1)), "512m")
	}
	c := startCluster(t, harness.Options{
		Dir: dir, Bookies: 3, Brokers: 1, BookieSets: []string{"minFreeSpaceMB=32", "journalMaxSizeMB=16"},
		BrokerSets: []string{"brokerDeduplicationEnabled=true"},
	})
	client := newClient(t, c.URLs[0])
	s := startStream(ctx, t, client, topicName(t), false)
	s.progress(ctx, t, 500, "before a disk is full")
	newTopic := func(name string) {
		t.Helper()
		producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{Topic: topicName(t) + name}))
		defer producer.Close()
		must[pulsar.MessageID](t)(producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(name)}))
	}

	lead := must[string](t)(harness.MetadataLeader(ctx, c.Bookies))
	at := slices.IndexFunc(c.Bookies, func(p *harness.Proc) bool { return p.Name == lead })
	filler := func(p *harness.Proc) string { return filepath.Join(disk(p.Name), "somebody-elses") }
	fillDisk(t, filler(c.Bookies[at]))
	refuses(ctx, t, c.Bookies[at])
	t.Logf("the disk of %s, which leads the metadata, is full; publishing after %v", lead, s.progress(ctx, t, 2000, "one disk is full"))
	newTopic("-one")

	for _, p := range c.Bookies {
		if p != c.Bookies[at] {
			fillDisk(t, filler(p))
		}
		refuses(ctx, t, p)
	}
	t.Log("all disks are full; killing the bookies")
	for _, p := range c.Bookies {
		p.Kill()
	}
	for _, p := range c.Bookies {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range c.Bookies {
		if err := p.WaitReady(ctx); err != nil {
			t.Fatalf("%s: %v\n%s", p.Name, err, p.Tail(20))
		}
		refuses(ctx, t, p)
	}
	for _, p := range c.Bookies {
		if err := os.Remove(filler(p)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("publishing again %v after there was room", s.progress(ctx, t, 500, "there is room again"))
	newTopic("-all")
	s.stop()
	verify(ctx, t, client, s.log)
}
