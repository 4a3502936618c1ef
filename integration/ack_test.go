package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

// acking is a topic whose messages are numbers, of which some are acknowledged with receipts before every process is
// killed. Afterwards exactly the others come back.
type acking struct {
	*testing.T
	cluster  *harness.Cluster
	client   pulsar.Client
	topic    string
	messages int
	batch    int                 // messages of a batch; 1: single messages
	keep     func(n uint64) bool // the message is not acknowledged
}

func newAcking(t *testing.T) *acking {
	// A part of the messages stays unacknowledged: more than a consumer may have by default.
	sets := []string{
		"maxUnackedMessagesPerConsumer=0", "maxUnackedMessagesPerSubscription=0",
		"defaultRetentionTimeInMinutes=0", "defaultRetentionSizeInMB=0", "managedLedgerMinLedgerRolloverTimeMinutes=0",
	}
	c := startCluster(t, harness.Options{Bookies: 3, Brokers: 1, BrokerSets: sets})
	return &acking{T: t, cluster: c, client: newClient(t, c.URLs[0]), topic: topicName(t)}
}

// TestAcksSurviveKills acknowledges every odd one of 200,000 messages: 100,000 holes, in receipts for 20 of them each.
func TestAcksSurviveKills(t *testing.T) {
	a := newAcking(t)
	a.messages, a.batch = 200_000, 1
	a.keep = func(n uint64) bool { return n%2 == 0 }
	a.run(20)
}

// TestPartsOfBatchesSurviveKills acknowledges a third of the messages of every batch, one receipt each.
func TestPartsOfBatchesSurviveKills(t *testing.T) {
	a := newAcking(t)
	a.messages, a.batch = 3_000, 10
	a.keep = func(n uint64) bool { return n%3 != 0 }
	a.run(1)
}

func (a *acking) run(perReceipt int) {
	ctx := deadline(a.T, 5*time.Minute)
	const consumers = 4
	var cs []pulsar.Consumer
	for range consumers {
		cs = append(cs, a.subscribe())
	}
	start := time.Now()
	a.publish(ctx)
	a.Logf("published after %v", time.Since(start))
	start = time.Now()
	a.acknowledgeAll(ctx, cs, perReceipt)
	a.Logf("all receipts after %v", time.Since(start))
	a.cluster.Kill()
	start = time.Now()
	if err := a.cluster.Start(ctx); err != nil {
		a.Fatal(err)
	}
	consumer := a.subscribe()
	defer consumer.Close()
	a.Logf("subscribed again after %v", time.Since(start))
	a.expectKept(ctx, consumer)
	a.Logf("read again after %v", time.Since(start))
}

// acknowledgeAll receives every message once, with all consumers at a time, and closes them.
func (a *acking) acknowledgeAll(ctx context.Context, cs []pulsar.Consumer, perReceipt int) {
	a.Helper()
	received, enough := context.WithCancel(ctx)
	defer enough()
	var left atomic.Int64
	left.Store(int64(a.messages))
	var all sync.WaitGroup
	errs := make([]error, len(cs))
	for i, c := range cs {
		all.Go(func() {
			errs[i] = a.acknowledge(received, c, perReceipt, func() {
				if left.Add(-1) == 0 {
					enough()
				}
			})
		})
	}
	all.Wait()
	for _, c := range cs {
		c.Close()
	}
	if err := errors.Join(errs...); err != nil || left.Load() != 0 {
		a.Fatalf("%d messages are missing, %v", left.Load(), err)
	}
}

func (a *acking) subscribe() pulsar.Consumer {
	return must[pulsar.Consumer](a.T)(a.client.Subscribe(pulsar.ConsumerOptions{
		Topic: a.topic, SubscriptionName: "s", Type: pulsar.Shared, AckWithResponse: true, ReceiverQueueSize: 5000,
		EnableBatchIndexAcknowledgment: true,
	}))
}

// publish sends the numbers in order.
func (a *acking) publish(ctx context.Context) {
	producer := must[pulsar.Producer](a.T)(a.client.CreateProducer(pulsar.ProducerOptions{
		Topic: a.topic, DisableBatching: a.batch == 1, BatchingMaxMessages: uint(a.batch), BatchingMaxPublishDelay: time.Second,
	}))
	defer producer.Close()
	var failed atomic.Int64
	for n := range uint64(a.messages) {
		payload := binary.BigEndian.AppendUint64(nil, n)
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: payload}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				failed.Add(1)
			}
		})
	}
	if err := producer.FlushWithCtx(ctx); err != nil || failed.Load() > 0 {
		a.Fatalf("%d sends failed: %v", failed.Load(), err)
	}
}

// acknowledge receives until the context ends, and acknowledges what is not to be kept.
func (a *acking) acknowledge(ctx context.Context, c pulsar.Consumer, perReceipt int, got func()) error {
	var ids []pulsar.MessageID
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return c.AckIDList(ids)
		}
		if !a.keep(binary.BigEndian.Uint64(m.Payload())) {
			ids = append(ids, m.ID())
		}
		if len(ids) == perReceipt {
			if err := c.AckIDList(ids); err != nil {
				return err
			}
			ids = nil
		}
		got()
	}
}

// expectKept receives until nothing comes for five seconds.
func (a *acking) expectKept(ctx context.Context, consumer pulsar.Consumer) {
	a.Helper()
	seen := make(map[uint64]int, a.messages)
	for {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		m, err := consumer.Receive(wait)
		cancel()
		if err != nil {
			break
		}
		seen[binary.BigEndian.Uint64(m.Payload())]++
	}
	acknowledged, twice, missing := 0, 0, 0
	for n := range uint64(a.messages) {
		switch times := seen[n]; {
		case times > 0 && !a.keep(n):
			acknowledged++
		case times > 1:
			twice++
		case times == 0 && a.keep(n):
			missing++
		}
	}
	if acknowledged+twice+missing > 0 {
		a.Errorf("%d messages came back that had been acknowledged, %d came twice, %d did not come", acknowledged, twice, missing)
	}
}
