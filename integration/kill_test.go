package integration

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
	"geminga/integration/workload"
)

var chaosRounds = flag.Int("chaos.rounds", 0, "rounds of TestChaos; 0 skips it")

// stream publishes from eight producers, four of them in batches, until stop is called; it never gives up on a send.
type stream struct {
	log    *workload.Log
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startStream returns after the producers were created. When the stream is stopped each producer that has published
// less than the volume test does goes on until it has published as much, if full is set.
func startStream(ctx context.Context, t *testing.T, client pulsar.Client, topic string, full bool) *stream {
	t.Helper()
	s := &stream{log: workload.NewLog(topic, 4, 1024)}
	s.log.Add(4, 128)
	ctx, s.cancel = context.WithCancel(ctx)
	for _, p := range s.log.Producers {
		producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{
			Topic: topic, DisableBatching: p.Size < 1024, BatchingMaxPublishDelay: 5 * time.Millisecond,
			SendTimeout: -1, MaxPendingMessages: 200,
		}))
		s.wg.Go(func() {
			defer producer.Close()
			s.publish(ctx, p, producer, full)
		})
	}
	return s
}

func (s *stream) publish(ctx context.Context, p *workload.Producer, producer pulsar.Producer, full bool) {
	const turn = 50
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	seq, quota := uint64(0), uint64(0)
	if full {
		quota = countOf(p)
	}
	for ctx.Err() == nil {
		p.Publish(context.WithoutCancel(ctx), producer, seq, turn)
		seq += turn
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
	}
	if seq < quota {
		p.Publish(context.WithoutCancel(ctx), producer, seq, quota-seq)
	}
}

// stop lets the sends under way finish.
func (s *stream) stop() {
	s.cancel()
	s.wg.Wait()
}

// progress waits until n more messages were acknowledged.
func (s *stream) progress(ctx context.Context, t *testing.T, n int64, what string) time.Duration {
	t.Helper()
	start, from := time.Now(), s.log.Acked.Load()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.log.Acked.Load() < from+n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: no progress: %d of %d receipts in %v", what, s.log.Acked.Load()-from, n, time.Since(start))
		}
	}
	return time.Since(start)
}

// TestKills kills the bookie that leads the topic's group, then the broker that owns the topic, then everything at
// once, while the messages of the volume test are published. Afterwards every message with a receipt is read once, in order.
func TestKills(t *testing.T) {
	ctx := deadline(t, 6*time.Minute)
	c := startCluster(t, harness.Options{Bookies: 3, Brokers: 2, BrokerSets: []string{"brokerDeduplicationEnabled=true"}})
	topic := topicName(t)
	client := newClient(t, c.URLs[0]+","+c.URLs[1][len("pulsar://"):])
	s := startStream(ctx, t, client, topic, true)
	s.progress(ctx, t, 1000, "before any kill")

	leader := must[*harness.Proc](t)(c.LeaderOf(ctx, topic))
	t.Logf("killing %s, which leads the topic's group", leader.Name)
	leader.Kill()
	t.Logf("publishing again after %v", s.progress(ctx, t, 500, "bookie down"))
	restart(ctx, t, leader)
	s.progress(ctx, t, 500, "bookie back")

	owner := must[*harness.Proc](t)(c.OwnerOf(ctx, topic))
	t.Logf("killing %s, which owns the topic", owner.Name)
	owner.Kill()
	t.Logf("publishing again after %v", s.progress(ctx, t, 500, "broker down"))
	restart(ctx, t, owner)
	s.progress(ctx, t, 500, "broker back")

	t.Log("killing all five")
	c.Kill()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("publishing again after %v", s.progress(ctx, t, 500, "all restarted"))
	s.stop()
	verify(ctx, t, client, s.log)
}

func restart(ctx context.Context, t *testing.T, p *harness.Proc) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func verify(ctx context.Context, t *testing.T, client pulsar.Client, log *workload.Log) {
	t.Helper()
	seen, err := workload.ReadAll(ctx, client, log.Topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d receipts, %d sends without, %d messages read", log.Acked.Load(), log.Failed(), seen.Count())
	if err := log.Check(seen, workload.Rules{Ordered: true}); err != nil {
		t.Error(err)
	}
}

// TestChaos kills random processes for -chaos.rounds rounds; every tenth round kills all.
func TestChaos(t *testing.T) {
	if *chaosRounds == 0 {
		t.Skip("needs -chaos.rounds (make chaos)")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	ctx := deadline(t, time.Duration(*chaosRounds)*90*time.Second+2*time.Minute)
	c := startCluster(t, harness.Options{Bookies: 3, Brokers: 2, BrokerSets: []string{"brokerDeduplicationEnabled=true"}})
	client := newClient(t, c.URLs[0]+","+c.URLs[1][len("pulsar://"):])
	s := startStream(ctx, t, client, topicName(t), false)
	gaps := map[string][]time.Duration{}
	note := func(round int, what string) {
		gap := s.log.Gap()
		kind, _, _ := strings.Cut(what, "-")
		gaps[kind] = append(gaps[kind], gap)
		t.Logf("round %d: %s killed, no receipt for %v", round, what, gap.Round(time.Millisecond))
	}
	for round := 1; round <= *chaosRounds; round++ {
		s.progress(ctx, t, int64(100+rnd.IntN(400)), "before the round")
		s.log.Gap()
		if round%10 == 0 {
			c.Kill()
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			s.progress(ctx, t, 100, "all")
			note(round, "all")
			continue
		}
		p := c.All()[rnd.IntN(len(c.All()))]
		p.Kill()
		s.progress(ctx, t, 100, p.Name)
		restart(ctx, t, p)
		s.progress(ctx, t, 100, p.Name)
		note(round, p.Name)
	}
	s.stop()
	for kind, all := range gaps {
		slices.Sort(all)
		t.Logf("time without a receipt, %s killed, %d rounds: median %v, longest %v", kind, len(all),
			all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	verify(ctx, t, client, s.log)
}
