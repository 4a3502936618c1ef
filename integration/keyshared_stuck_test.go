package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// TestKeySharedStuckKey: a consumer keeps one message unacknowledged whose key is another's by now. That key waits, since
// its order would break; the keys that have moved with it do not. Then consumers reconnect, under load, and are served.
func TestKeySharedStuckKey(t *testing.T) {
	const keys = 100
	_, url := startStandalone(t)
	ctx := deadline(t, time.Minute)
	topic := topicName(t)
	subscribe := func() pulsar.Consumer {
		return must[pulsar.Consumer](t)(newClient(t, url).Subscribe(pulsar.ConsumerOptions{
			Topic: topic, SubscriptionName: "keys", Type: pulsar.KeyShared, AckWithResponse: true,
		}))
	}
	old := subscribe()
	producer := must[pulsar.Producer](t)(newClient(t, url).CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
	send := func() {
		for i := range keys {
			m := &pulsar.ProducerMessage{Key: fmt.Sprint("key-", i), Payload: []byte("x")}
			producer.SendAsync(ctx, m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := producer.FlushWithCtx(ctx); err != nil {
			t.Error(err)
		}
	}
	send()
	held := receiveKeys(ctx, old, keys)
	if len(held) != keys {
		t.Fatalf("%d of %d keys", len(held), keys)
	}
	other := subscribe()
	send()
	stayed := receiveKeys(ctx, old, keys)
	if n := len(stayed); n == 0 || n == keys {
		t.Fatalf("%d of %d keys stayed where they were", n, keys)
	}
	if got := receiveKeys(ctx, other, 1); len(got) != 0 {
		t.Fatalf("%d keys moved with messages unacknowledged", len(got))
	}
	stuck := ""
	for key, m := range held {
		if _, ok := stayed[key]; !ok && stuck == "" {
			stuck = key
			continue
		}
		ack(t, old, m)
	}
	moved := receiveKeys(ctx, other, keys-len(stayed))
	if _, ok := moved[stuck]; ok || len(moved) != keys-len(stayed)-1 {
		t.Errorf("%d of %d keys that moved are served beside the stuck one; the stuck one: %t", len(moved), keys-len(stayed)-1, ok)
	}
	ack(t, old, held[stuck])
	if got := receiveKeys(ctx, other, 1); got[stuck] == nil {
		t.Errorf("the key is stuck still: %v", got)
	}
	for _, m := range moved {
		ack(t, other, m)
	}
	reconnect(ctx, t, []pulsar.Consumer{old, other}, subscribe, send)
}

// reconnect has one of two consumers, which acknowledge all that they get, leave and come back while messages flow.
func reconnect(ctx context.Context, t *testing.T, consumers []pulsar.Consumer, subscribe func() pulsar.Consumer, send func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	load.Go(func() {
		for ctx.Err() == nil {
			send()
			wait(ctx, 10*time.Millisecond)
		}
	})
	load.Go(func() {
		for {
			m, err := consumers[0].Receive(ctx)
			if err != nil {
				return
			}
			if err := consumers[0].Ack(m); err != nil {
				t.Error(err)
			}
		}
	})
	other := consumers[1]
	for range 5 {
		other.Close()
		start := time.Now()
		other = subscribe()
		for range 50 {
			m, err := other.Receive(ctx)
			if err != nil {
				t.Fatalf("after reconnecting: %v", err)
			}
			if !start.IsZero() {
				t.Logf("first message %v after reconnecting", time.Since(start))
				start = time.Time{}
			}
			ack(t, other, m)
		}
	}
	other.Close()
}

func ack(t *testing.T, c pulsar.Consumer, m pulsar.Message) {
	t.Helper()
	if err := c.Ack(m); err != nil {
		t.Fatal(err)
	}
}

// receiveKeys receives until it has the number of messages, or none for two seconds. It returns the last one of each key.
func receiveKeys(ctx context.Context, c pulsar.Consumer, most int) map[string]pulsar.Message {
	got := map[string]pulsar.Message{}
	for range most {
		quiet, cancel := context.WithTimeout(ctx, 2*time.Second)
		m, err := c.Receive(quiet)
		cancel()
		if err != nil {
			break
		}
		got[m.Key()] = m
	}
	return got
}
