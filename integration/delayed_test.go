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

// TestDelayedMessages delays messages over a minute and kills the broker that serves them twice meanwhile. Each is
// delivered, none before its time, and none again whose acknowledgement had its receipt before a kill.
func TestDelayedMessages(t *testing.T) {
	count, span := sizes(10_000, 100_000), time.Duration(sizes(12, 60))*time.Second
	ctx := deadline(t, 3*time.Minute+time.Duration(count)*5*time.Millisecond)
	c := startCluster(t, harness.Options{Bookies: 3, Brokers: 2})
	client := newClient(t, c.URLs[0]+","+c.URLs[1][len("pulsar://"):])
	topic := topicName(t)
	consumer := must[pulsar.Consumer](t)(client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", Type: pulsar.Shared, AckWithResponse: true, ReceiverQueueSize: 2000,
	}))
	defer consumer.Close()
	lead := time.Duration(count) * 300 * time.Microsecond // publishing should end before the first is due
	first := time.Now().Add(lead)
	publishDelayed(ctx, t, client, topic, count, first, span)
	t.Logf("%d messages published, %v before the first is due", count, time.Until(first))

	d := &delayedLog{received: make([]int, count), receipt: make([]time.Time, count)}
	var receiving sync.WaitGroup
	receiving.Go(func() { d.receive(ctx, t, consumer, count) })
	for i := range 2 {
		wait(ctx, time.Until(first.Add(time.Duration(i+1)*span/3)))
		owner := must[*harness.Proc](t)(c.OwnerOf(ctx, topic))
		d.kill(owner)
		t.Logf("killed %s, %v after the first was due: %d acknowledged", owner.Name, time.Since(first), d.acked.Load())
		restart(ctx, t, owner)
	}
	receiving.Wait()
	t.Logf("the last came %v after it was due; %d came again whose receipt was not there, %d acknowledgements have none",
		d.last.Sub(first.Add(span)), d.again, count-int(d.acked.Load()))
	if d.early > 0 || d.broken > 0 || d.distinct != count {
		t.Errorf("%d of %d came, %d early, %d again after a receipt that was there before a kill", d.distinct, count, d.early, d.broken)
	}
}

// publishDelayed spreads the messages over the span, in an order that is not that of their times.
func publishDelayed(ctx context.Context, t *testing.T, client pulsar.Client, topic string, count int, first time.Time, span time.Duration) {
	t.Helper()
	producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: -1}))
	defer producer.Close()
	var failed atomic.Int64
	for i := range count {
		const stride = 7919 // a prime: every place in the span is taken once
		at := first.Add(span * time.Duration(i*stride%count) / time.Duration(count))
		payload := binary.BigEndian.AppendUint64(number(uint64(i), 0), uint64(at.UnixMilli()))
		m := &pulsar.ProducerMessage{Payload: payload, DeliverAt: at}
		producer.SendAsync(ctx, m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				failed.Add(1)
			}
		})
	}
	if err := producer.FlushWithCtx(ctx); err != nil || failed.Load() > 0 {
		t.Fatalf("%d sends failed: %v", failed.Load(), err)
	}
}

// delayedLog is what became of the messages.
type delayedLog struct {
	mu       sync.Mutex
	received []int
	receipt  []time.Time // of the acknowledgement
	kills    []time.Time
	last     time.Time // of an arrival
	distinct int       // messages that came
	early    int
	again    int // that may come again
	broken   int // that may not
	acked    atomic.Int64
}

func (d *delayedLog) kill(p *harness.Proc) {
	d.mu.Lock()
	d.kills = append(d.kills, time.Now())
	d.mu.Unlock()
	p.Kill()
}

// receive takes messages and acknowledges them in lists, each with one receipt, until all have come and none has for five
// seconds. An acknowledgement without a receipt may be in force all the same, or its messages come again.
func (d *delayedLog) receive(ctx context.Context, t *testing.T, consumer pulsar.Consumer, count int) {
	var acks sync.WaitGroup
	defer acks.Wait()
	var list []pulsar.MessageID
	var numbers []int
	began := time.Now()
	for d.distinct < count || time.Since(d.last) < 5*time.Second { // only this goroutine changes them
		rctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		m, err := consumer.Receive(rctx)
		cancel()
		switch {
		case ctx.Err() != nil:
			t.Errorf("%d of %d received: %v", d.distinct, count, ctx.Err())
			return
		case err == nil:
			list, numbers = append(list, m.ID()), append(numbers, d.arrived(m))
		case !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("receive: %v", err)
			return
		}
		if len(list) == 1000 || time.Since(began) > 50*time.Millisecond && len(list) > 0 {
			l, n := list, numbers
			acks.Go(func() { d.answered(n, consumer.AckIDList(l)) })
			list, numbers, began = nil, nil, time.Now()
		}
	}
}

func (d *delayedLog) arrived(m pulsar.Message) int {
	now, b := time.Now(), m.Payload()
	i, at := int(binary.BigEndian.Uint64(b)), time.UnixMilli(int64(binary.BigEndian.Uint64(b[16:])))
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Before(at) {
		d.early++
	}
	d.last = now
	if d.received[i]++; d.received[i] == 1 {
		d.distinct++
	} else {
		d.again++
	}
	for _, kill := range d.kills {
		if !d.receipt[i].IsZero() && d.receipt[i].Before(kill) {
			d.broken++
			break
		}
	}
	return i
}

// answered notes the receipts of a list. After an error nobody knows, and messages may come again.
func (d *delayedLog) answered(numbers []int, err error) {
	if err != nil {
		return // they come again
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range numbers {
		if d.receipt[i].IsZero() {
			d.receipt[i] = time.Now()
			d.acked.Add(1)
		}
	}
}
