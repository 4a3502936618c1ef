package integration

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

// ackedMessages is how many messages TestAcksSurviveKills publishes.
const ackedMessages = 10_000

// TestAcksSurviveKills acknowledges every odd message, with receipts, kills every process, and expects exactly the even
// ones afterwards.
func TestAcksSurviveKills(t *testing.T) {
	ctx := deadline(t, 5*time.Minute)
	// Half of the messages stay unacknowledged: more than a consumer may have by default.
	c := startCluster(t, harness.Options{Bookies: 3, Brokers: 1, BrokerSets: []string{"maxUnackedMessagesPerConsumer=0"}})
	client := newClient(t, c.URLs[0])
	topic := topicName(t)
	subscribe := func() pulsar.Consumer {
		return must[pulsar.Consumer](t)(client.Subscribe(pulsar.ConsumerOptions{
			Topic: topic, SubscriptionName: "s", Type: pulsar.Shared, AckWithResponse: true, ReceiverQueueSize: 5000,
			AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 50 * time.Millisecond},
		}))
	}
	consumer := subscribe()
	publishNumbers(ctx, t, client, topic)

	start := time.Now()
	var failed atomic.Int64
	var acks sync.WaitGroup
	for range ackedMessages {
		m := must[pulsar.Message](t)(consumer.Receive(ctx))
		if binary.BigEndian.Uint64(m.Payload())%2 == 1 {
			acks.Go(func() {
				if consumer.Ack(m) != nil {
					failed.Add(1)
				}
			})
		}
	}
	received := time.Since(start)
	acks.Wait()
	t.Logf("received in %v, all receipts after %v", received, time.Since(start))
	consumer.Close()
	if n := failed.Load(); n > 0 {
		t.Fatalf("%d acknowledgements failed", n)
	}
	c.Kill()
	start = time.Now()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	consumer = subscribe()
	t.Logf("subscribed again after %v", time.Since(start))
	expectEven(ctx, t, consumer)
}

func publishNumbers(ctx context.Context, t *testing.T, client pulsar.Client, topic string) {
	t.Helper()
	producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
	defer producer.Close()
	var failed atomic.Int64
	for i := range uint64(ackedMessages) {
		payload := binary.BigEndian.AppendUint64(nil, i)
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: payload}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				failed.Add(1)
			}
		})
	}
	if err := producer.FlushWithCtx(ctx); err != nil || failed.Load() > 0 {
		t.Fatalf("%d sends failed: %v", failed.Load(), err)
	}
}

// expectEven receives until nothing comes for five seconds.
func expectEven(ctx context.Context, t *testing.T, consumer pulsar.Consumer) {
	t.Helper()
	defer consumer.Close()
	seen := map[uint64]int{}
	for {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		m, err := consumer.Receive(wait)
		cancel()
		if err != nil {
			break
		}
		seen[binary.BigEndian.Uint64(m.Payload())]++
	}
	odd, twice := 0, 0
	for n, times := range seen {
		if n%2 == 1 {
			odd++
		}
		if times > 1 {
			twice++
		}
	}
	if odd > 0 || twice > 0 || len(seen) != ackedMessages/2 {
		t.Errorf("%d messages came back, want %d; %d of them had been acknowledged, %d came twice", len(seen), ackedMessages/2, odd, twice)
	}
}
