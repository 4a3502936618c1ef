package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
)

var full = flag.Bool("full", false, "run the campaigns in the sizes that are promised, not in those of make test")

// sizes returns the size of a campaign.
func sizes(short, long int) int {
	if *full {
		return long
	}
	return short
}

// TestDeduplicationWhileStorageFails kills and stops bookies at random, two at a time now and then, while producers with
// names send numbered messages. When a block of them fails, and now and then when it does not, its producer begins anew
// under the same name and sends the block again from its start. In the end each message is in the topic once, in order.
func TestDeduplicationWhileStorageFails(t *testing.T) {
	rounds := sizes(6, 60)
	ctx := deadline(t, time.Minute+time.Duration(rounds)*20*time.Second)
	c := startCluster(t, harness.Options{
		Bookies: 3, Brokers: 1,
		BrokerSets: []string{"brokerDeduplicationEnabled=true", "brokerDeduplicationEntriesInterval=200"},
	})
	client := newClient(t, c.URLs[0])
	topic := topicName(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	senders := make([]*resender, 4)
	for i := range senders {
		s := &resender{client: client, topic: topic, name: fmt.Sprintf("producer-%d", i), id: uint64(i), rnd: rand.New(rand.NewPCG(uint64(i), 1))}
		senders[i] = s
		wg.Go(func() {
			if err := s.run(ctx, stop); err != nil {
				t.Error(err)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	for range rounds {
		failBookies(ctx, t, c, rnd)
	}
	close(stop)
	wg.Wait()
	want := map[uint64]uint64{}
	for _, s := range senders {
		want[s.id] = s.next
		t.Logf("%s: %d messages, sent %d times more", s.name, s.next, s.again)
		if s.next == 0 || s.again == 0 {
			t.Errorf("%s sent nothing again", s.name)
		}
	}
	expectNumbers(ctx, t, client, topic, want)
}

// failBookies kills or stops one bookie for a while, every third time two: then nothing can be stored.
func failBookies(ctx context.Context, t *testing.T, c *harness.Cluster, rnd *rand.Rand) {
	t.Helper()
	bookies := rnd.Perm(len(c.Bookies))[:1+rnd.IntN(3)/2]
	kill := rnd.IntN(2) == 0
	for _, i := range bookies {
		p := c.Bookies[i]
		if kill {
			p.Kill()
		} else if err := p.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	wait(ctx, time.Duration(500+rnd.IntN(2000))*time.Millisecond)
	for _, i := range bookies {
		p := c.Bookies[i]
		if kill {
			restart(ctx, t, p)
		} else if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	wait(ctx, time.Duration(rnd.IntN(1500))*time.Millisecond)
}

// wait lets time pass: faults last, messages are due.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// resender sends numbered messages in blocks, with the number as sequence id, and blocks again and again until each of
// their messages has a receipt.
type resender struct {
	client pulsar.Client
	topic  string
	name   string
	id     uint64
	rnd    *rand.Rand

	producer pulsar.Producer
	next     uint64 // number of the next block's first message
	again    int    // messages that were sent once more
}

const blockSize = 40

func (s *resender) run(ctx context.Context, stop <-chan struct{}) error {
	defer s.close()
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		sent := false
		for !sent || s.rnd.IntN(4) == 0 { // a block that has all its receipts is sent once more, too
			if err := s.open(ctx); err != nil {
				return err
			}
			before := sent
			if s.block(ctx) == nil {
				sent = true
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s: block at %d: %w", s.name, s.next, ctx.Err())
			}
			if before || !sent {
				s.again += blockSize
				s.close()
			}
		}
		s.next += blockSize
	}
}

func (s *resender) open(ctx context.Context) error {
	for s.producer == nil {
		p, err := s.client.CreateProducer(pulsar.ProducerOptions{
			Topic: s.topic, Name: s.name, DisableBatching: true, SendTimeout: 3 * time.Second,
		})
		if err == nil { // with an error, p is an interface that holds nil
			s.producer = p
			break
		}
		wait(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("%s: producer: %w", s.name, errors.Join(err, ctx.Err()))
		}
	}
	return nil
}

func (s *resender) close() {
	if s.producer != nil {
		s.producer.Close()
		s.producer = nil
	}
}

func (s *resender) block(ctx context.Context) error {
	outcomes := make(chan error, blockSize)
	for i := range uint64(blockSize) {
		sequence := int64(s.next + i)
		m := &pulsar.ProducerMessage{Payload: number(s.id, s.next+i), SequenceID: &sequence}
		s.producer.SendAsync(ctx, m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { outcomes <- err })
	}
	var failed error
	for range blockSize {
		failed = errors.Join(failed, <-outcomes)
	}
	return failed
}

func number(id, n uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id), n)
}

// expectNumbers reads the topic and expects the numbers 0 to want-1 of each id, each once, in order.
func expectNumbers(ctx context.Context, t *testing.T, client pulsar.Client, topic string, want map[uint64]uint64) {
	t.Helper()
	reader := must[pulsar.Reader](t)(client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()}))
	defer reader.Close()
	next := map[uint64]uint64{}
	for reader.HasNext() {
		m := must[pulsar.Message](t)(reader.Next(ctx))
		id, n := binary.BigEndian.Uint64(m.Payload()), binary.BigEndian.Uint64(m.Payload()[8:])
		if n != next[id] {
			t.Fatalf("producer %d: %d at %v, expected %d", id, n, m.ID(), next[id])
		}
		next[id]++
	}
	lost := 0
	for id, n := range want {
		if next[id] != n {
			lost++
			t.Logf("producer %d: %d messages instead of %d", id, next[id], n)
		}
	}
	if lost > 0 || len(next) != len(want) {
		t.Errorf("%d of %d producers, %d with messages lost", len(next), len(want), lost)
	}
}

// TestManyNamedProducers: the broker that serves 10,000 producers with names is killed; all of them go on at the other
// one. Then each name is taken by a new producer, which is told where its sequence ended; it sends a new message,
// and the one before again.
func TestManyNamedProducers(t *testing.T) {
	count, connections := sizes(1000, 10_000), 8
	ctx := deadline(t, time.Minute+time.Duration(count)*60*time.Millisecond)
	c := startCluster(t, harness.Options{Bookies: 1, Brokers: 2, BrokerSets: []string{"brokerDeduplicationEnabled=true"}})
	topic := topicName(t)
	urls := c.URLs[0] + "," + c.URLs[1][len("pulsar://"):]
	var clients []pulsar.Client
	for range connections {
		clients = append(clients, newClient(t, urls))
	}
	start := time.Now()
	producers := make([]pulsar.Producer, count)
	create := func(i int) error {
		p, err := clients[i%connections].CreateProducer(pulsar.ProducerOptions{
			Topic: topic, Name: fmt.Sprintf("producer-%d", i), DisableBatching: true, SendTimeout: -1,
			MaxPendingMessages: 2, PartitionsAutoDiscoveryInterval: time.Hour,
		})
		producers[i] = p
		return err
	}
	send := func(n int64) func(int) error {
		return func(i int) error {
			_, err := producers[i].Send(ctx, &pulsar.ProducerMessage{Payload: number(uint64(i), uint64(n)), SequenceID: &n})
			return err
		}
	}
	inParallel(t, count, create)
	inParallel(t, count, send(0))
	t.Logf("%d producers have sent after %v", count, time.Since(start))
	owner := must[*harness.Proc](t)(c.OwnerOf(ctx, topic))
	start = time.Now()
	var half atomic.Int64
	go func() {
		for half.Load() < int64(count/2) && ctx.Err() == nil {
			wait(ctx, time.Millisecond)
		}
		owner.Kill()
	}()
	inParallel(t, count, func(i int) error {
		half.Add(1)
		return send(1)(i)
	})
	t.Logf("all have sent again after %v, half before the kill", time.Since(start))
	restart(ctx, t, owner)
	inParallel(t, count, func(i int) error {
		producers[i].Close()
		if err := create(i); err != nil {
			return err
		}
		// Without a sequence id of its own, a message gets the one behind the last that the broker knows of.
		if _, err := producers[i].Send(ctx, &pulsar.ProducerMessage{Payload: number(uint64(i), 2)}); err != nil {
			return err
		}
		if last := producers[i].LastSequenceID(); last != 2 {
			return fmt.Errorf("the new message has sequence id %d instead of 2", last)
		}
		return send(1)(i)
	})
	want := map[uint64]uint64{}
	for i := range count {
		want[uint64(i)] = 3
	}
	expectNumbers(ctx, t, clients[0], topic, want)
}

// inParallel calls f for 0 to n-1, some at a time.
func inParallel(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	var next, failed atomic.Int64
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil && failed.Add(1) <= 3 {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		t.Fatalf("%d of %d failed", failed.Load(), n)
	}
}
