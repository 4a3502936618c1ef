package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	keySharedMessages  = 20_000
	keySharedKeys      = 200
	keySharedConsumers = 4
)

// TestKeyShared has four Key_Shared consumers come and go while 20,000 messages with 200 keys flow, in batches by key and
// one by one. Each key has to be received in order, and all of it: whoever is given a key next goes on behind the last
// acknowledgement, or at the start of the batch that it is in.
func TestKeyShared(t *testing.T) {
	for _, hashing := range []bool{true, false} {
		t.Run(fmt.Sprintf("consistentHashing=%t", hashing), func(t *testing.T) {
			_, url := startStandalone(t, fmt.Sprintf("subscriptionKeySharedUseConsistentHashing=%t", hashing))
			keyShared(t, url)
		})
	}
}

func keyShared(t *testing.T, url string) {
	ctx, cancel := context.WithCancel(deadline(t, 3*time.Minute))
	defer cancel()
	topic := topicName(t)
	keys := &keyLog{next: map[string]uint64{}, cancel: cancel}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range keySharedConsumers {
		client := newClient(t, url)
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 5))
			for ctx.Err() == nil {
				if err := keys.consume(ctx, client, topic, rnd); err != nil && ctx.Err() == nil {
					t.Error(err)
					cancel()
				}
			}
		})
	}
	producers := newClient(t, url)
	for i := range 2 {
		wg.Go(func() {
			if err := publishKeys(ctx, producers, topic, i == 0); err != nil && ctx.Err() == nil {
				t.Error(err)
				cancel()
			}
		})
	}
	wg.Wait()
	keys.mu.Lock()
	defer keys.mu.Unlock()
	if keys.acked != keySharedMessages {
		t.Errorf("%d messages of %d acknowledged in order", keys.acked, keySharedMessages)
	}
	for _, fault := range keys.faults {
		t.Error(fault)
	}
	t.Logf("%d consumers came and went, %d messages came again", keys.sessions, keys.again)
}

// publishKeys sends half of the messages: each key has one producer, and counts up.
func publishKeys(ctx context.Context, client pulsar.Client, topic string, batched bool) error {
	p, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: !batched, BatcherBuilderType: pulsar.KeyBasedBatchBuilder,
		BatchingMaxPublishDelay: 5 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	errs := make(chan error, 1)
	for i := range keySharedMessages / 2 {
		key := fmt.Sprintf("%t-%d", batched, i%(keySharedKeys/2))
		m := &pulsar.ProducerMessage{Key: key, Payload: binary.BigEndian.AppendUint64(nil, uint64(i/(keySharedKeys/2)))}
		p.SendAsync(ctx, m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	if err := p.FlushWithCtx(ctx); err != nil {
		return err
	}
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// keyLog is what the consumers have acknowledged, together.
type keyLog struct {
	mu       sync.Mutex
	next     map[string]uint64 // per key, the number behind the last one acknowledged
	acked    int
	again    int
	sessions int
	faults   []string
	cancel   func()
}

// consume receives and acknowledges some messages, then leaves with what it has prefetched.
func (k *keyLog) consume(ctx context.Context, client pulsar.Client, topic string, rnd *rand.Rand) error {
	c, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "keys", Type: pulsar.KeyShared, ReceiverQueueSize: 1 + rnd.IntN(100),
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer c.Close()
	k.mu.Lock()
	k.sessions++
	k.mu.Unlock()
	for range 50 + rnd.IntN(1000) {
		rctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		m, err := c.Receive(rctx)
		cancel()
		if err != nil {
			return nil // nothing for this consumer: others may have all keys
		}
		if err := k.take(c, m); err != nil {
			return err
		}
	}
	return nil
}

// take checks and acknowledges a message. The lock spans both: a key that another consumer is given after this
// acknowledgement finds it noted.
func (k *keyLog) take(c pulsar.Consumer, m pulsar.Message) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, want := binary.BigEndian.Uint64(m.Payload()), k.next[m.Key()]
	switch {
	case n < want:
		k.again++ // of a batch that its consumer left before the end
	case n > want:
		k.faults = append(k.faults, fmt.Sprintf("key %s: %d at %v, expected %d", m.Key(), n, m.ID(), want))
		k.cancel()
		return nil
	default:
		k.next[m.Key()]++
		k.acked++
	}
	if err := c.Ack(m); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	if k.acked == keySharedMessages {
		k.cancel()
	}
	return nil
}
