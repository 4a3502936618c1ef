package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
	"geminga/integration/workload"
)

const (
	batchedCount   = 50_000 // per producer, four producers: 200,000 of 1 KiB
	unbatchedCount = 12_500 // per producer, four producers: 50,000 of 128 B
)

func TestVolumeStandalone(t *testing.T) {
	_, url := startStandalone(t)
	volume(t, url)
}

func TestVolumeCluster(t *testing.T) {
	c := startCluster(t, harness.Options{Bookies: 3, Brokers: 2})
	volume(t, c.URLs[0])
}

// volume publishes 200,000 messages of 1 KiB in batches and 50,000 of 128 bytes one by one from four producers each to
// one topic, and has two subscriptions receive all of them.
func volume(t *testing.T, url string) {
	ctx := deadline(t, 8*time.Minute)
	topic := topicName(t)
	client := newClient(t, url)
	exclusive := must[pulsar.Consumer](t)(client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "exclusive", Type: pulsar.Exclusive,
	}))
	var shared []pulsar.Consumer
	for range 4 {
		shared = append(shared, must[pulsar.Consumer](t)(newClient(t, url).Subscribe(pulsar.ConsumerOptions{
			Topic: topic, SubscriptionName: "shared", Type: pulsar.Shared,
		})))
	}
	log := workload.NewLog(topic, 4, 1024)
	log.Add(4, 128)
	want := 4*batchedCount + 4*unbatchedCount

	seenExclusive, seenShared := workload.NewSeen(), workload.NewSeen()
	drained := make(chan error, 1+len(shared))
	drain := func(c pulsar.Consumer, s *workload.Seen) { drained <- workload.Drain(ctx, c, s, want, time.Minute) }
	go drain(exclusive, seenExclusive)
	for _, c := range shared {
		go drain(c, seenShared)
	}
	publishAll(ctx, t, client, log, 0)
	for range cap(drained) {
		if err := <-drained; err != nil {
			t.Error(err)
		}
	}
	if n := log.Acked.Load(); n != int64(want) {
		t.Errorf("%d receipts for %d messages", n, want)
	}
	if err := log.Check(seenExclusive, workload.Rules{Ordered: true}); err != nil {
		t.Error("exclusive:", err)
	}
	if err := log.Check(seenShared, workload.Rules{}); err != nil {
		t.Error("shared:", err)
	}
}

// publishAll lets every producer of the log publish its share, starting at a sequence, and waits for all outcomes.
func publishAll(ctx context.Context, t *testing.T, client pulsar.Client, log *workload.Log, first uint64) {
	t.Helper()
	var wg sync.WaitGroup
	for _, p := range log.Producers {
		batched := p.Size >= 1024
		producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{
			Topic: log.Topic, DisableBatching: !batched, BatchingMaxPublishDelay: time.Millisecond,
			CompressionType: compressionOf(p.ID),
		}))
		wg.Go(func() {
			defer producer.Close()
			p.Publish(ctx, producer, first, countOf(p))
		})
	}
	wg.Wait()
}

// countOf is how many messages a producer has to publish.
func countOf(p *workload.Producer) uint64 {
	if p.Size >= 1024 {
		return batchedCount
	}
	return unbatchedCount
}

// compressionOf gives each producer another codec, so that all of them pass the broker.
func compressionOf(id int) pulsar.CompressionType {
	return []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD}[id%4]
}
