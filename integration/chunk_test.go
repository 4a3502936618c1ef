package integration

import (
	"bytes"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

// TestChunkPartlyAcknowledged: the first part of a chunked message was acknowledged when consumer and broker end. The rest
// of it is of no use to anybody; what comes behind it is delivered all the same, whole chunked messages included.
func TestChunkPartlyAcknowledged(t *testing.T) {
	const chunk = 1000
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared, pulsar.Failover, pulsar.KeyShared} {
		t.Run(subscriptionName(kind), func(t *testing.T) {
			ctx := deadline(t, time.Minute)
			c := startCluster(t, harness.Options{Bookies: 1, Brokers: 1})
			topic := topicName(t)
			first := newClient(t, c.URLs[0])
			options := pulsar.ConsumerOptions{
				Topic: topic, SubscriptionName: "s", Type: kind, AckWithResponse: true,
				SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
			}
			consumer := must[pulsar.Consumer](t)(first.Subscribe(options))
			send := func(client pulsar.Client, payload []byte) pulsar.MessageID {
				producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{
					Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: chunk,
				}))
				defer producer.Close()
				return must[pulsar.MessageID](t)(producer.Send(ctx, &pulsar.ProducerMessage{Payload: payload, Key: "k"}))
			}
			large := bytes.Repeat([]byte("x"), 3*chunk)
			last := send(first, large)
			if last.EntryID() < 2 {
				t.Fatalf("the message has %d parts", last.EntryID()+1)
			}
			send(first, []byte("behind"))
			part := pulsar.NewMessageID(last.LedgerID(), 0, -1, 0)
			if err := consumer.AckID(part); err != nil {
				t.Fatal(err)
			}
			first.Close()
			c.Brokers[0].Kill()
			restart(ctx, t, c.Brokers[0])

			second := newClient(t, c.URLs[0])
			consumer = must[pulsar.Consumer](t)(second.Subscribe(options))
			defer consumer.Close()
			send(second, bytes.Repeat([]byte("y"), 3*chunk))
			send(second, []byte("end"))
			for _, want := range []string{"behind", "yyy", "end"} {
				m := must[pulsar.Message](t)(consumer.Receive(ctx))
				if !bytes.HasPrefix(m.Payload(), []byte(want)) {
					t.Fatalf("%.20q instead of %q", m.Payload(), want)
				}
				if err := consumer.Ack(m); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func subscriptionName(kind pulsar.SubscriptionType) string {
	return map[pulsar.SubscriptionType]string{
		pulsar.Exclusive: "Exclusive", pulsar.Shared: "Shared", pulsar.Failover: "Failover", pulsar.KeyShared: "Key_Shared",
	}[kind]
}
