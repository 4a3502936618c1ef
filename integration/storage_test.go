package integration

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"geminga/integration/harness"
	"geminga/integration/torture"
)

var storageMB = flag.Int("storage.mb", 24, "MiB that are written in TestCatchUp while a bookie is away; 2048 for the campaign")

// TestCatchUp takes a bookie away while much more is written than the others keep in their logs. It comes back by
// snapshots, fetches the entries that it missed, and is ready when it has them, while writers go on.
func TestCatchUp(t *testing.T) {
	ctx := deadline(t, 4*time.Minute+time.Duration(*storageMB)*time.Second/4)
	c := startCluster(t, harness.Options{
		Bookies: 3, Brokers: 1, BrokerSets: []string{"brokerDeduplicationEnabled=true"},
		BookieSets: []string{"ledgerGroupSnapshotLogSizeMB=1", "ledgerGroupTrailingLogSizeMB=1", "journalMaxSizeMB=8"},
	})
	client := newClient(t, c.URLs[0])
	topic := topicName(t)
	s := startStream(ctx, t, client, topic, false)
	p := startProbe(ctx, t, client, topic+"-probe")
	t.Logf("500 receipts take %v", s.progress(ctx, t, 500, "before anything"))
	t.Logf("latency of a message at a time: %s", p.summary(ctx, t, 100))

	leader := must[*harness.Proc](t)(c.LeaderOf(ctx, topic))
	away := c.Bookies[slices.IndexFunc(c.Bookies, func(p *harness.Proc) bool { return p != leader })]
	away.Kill()
	begun := time.Now()
	write(ctx, t, client, topic+"-bulk", *storageMB)
	t.Logf("%s is away; %d MiB written in %v; latency meanwhile: %s", away.Name, *storageMB, time.Since(begun), p.summary(ctx, t, 1))
	t.Logf("latency afterwards: %s", p.summary(ctx, t, 100))

	before := usage(t, slices.DeleteFunc(slices.Clone(c.Bookies), func(p *harness.Proc) bool { return p == away }))
	begun = time.Now()
	if err := away.Start(); err != nil {
		t.Fatal(err)
	}
	s.progress(ctx, t, 500, "catching up")
	if err := away.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	moved := must[map[string]float64](t)(torture.Watch{HTTP: away.HTTP}.Metrics(ctx))["geminga_bookie_backfill_bytes_total"]
	t.Logf("ready after %v; %.0f MiB fetched, %.1f MiB/s; latency meanwhile: %s; all bookies used %v CPU",
		took, moved/(1<<20), moved/(1<<20)/took.Seconds(), p.summary(ctx, t, 1), usage(t, c.Bookies)-before)
	if moved == 0 {
		t.Error("it has fetched nothing: the logs of the others had it all")
	}
	p.stop()
	s.stop()
	verify(ctx, t, client, s.log)
}

// usage is the CPU time of processes since they started.
func usage(t *testing.T, procs []*harness.Proc) time.Duration {
	t.Helper()
	total := time.Duration(0)
	for _, p := range procs {
		total += must[harness.Usage](t)(harness.UsageOf(p.PID())).CPU
	}
	return total
}

// probe publishes one message after the other and measures how long each takes.
type probe struct {
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	took   []time.Duration // since the last summary
}

func startProbe(ctx context.Context, t *testing.T, client pulsar.Client, topic string) *probe {
	t.Helper()
	producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, SendTimeout: -1}))
	p := &probe{done: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		defer producer.Close()
		for pace := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-pace.C {
			begun := time.Now()
			if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: make([]byte, 128)}); err != nil {
				if ctx.Err() == nil {
					t.Errorf("a message of %s: %v", topic, err)
				}
				return
			}
			p.mu.Lock()
			p.took = append(p.took, time.Since(begun))
			p.mu.Unlock()
		}
	}()
	t.Cleanup(p.stop)
	return p
}

func (p *probe) stop() {
	p.cancel()
	<-p.done
}

// summary says how long the messages took since the last summary. It waits until there are some.
func (p *probe) summary(ctx context.Context, t *testing.T, least int) string {
	t.Helper()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		p.mu.Lock()
		took := p.took
		if len(took) >= least {
			p.took = nil
		}
		p.mu.Unlock()
		if len(took) >= least {
			slices.Sort(took)
			return fmt.Sprintf("p50 %v, p99 %v of %d messages", took[len(took)/2], took[len(took)*99/100], len(took))
		}
		select {
		case <-tick.C:
		case <-p.done:
			t.Fatal("the probe ended")
		case <-ctx.Done():
			t.Fatal("the probe hangs")
		}
	}
}

// write publishes mb MiB in messages of 64 KiB, and waits for their receipts.
func write(ctx context.Context, t *testing.T, client pulsar.Client, topic string, mb int) {
	t.Helper()
	producer := must[pulsar.Producer](t)(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: true, SendTimeout: -1, MaxPendingMessages: 64,
	}))
	defer producer.Close()
	for range mb * 16 {
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: make([]byte, 64<<10)}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil && ctx.Err() == nil {
				t.Errorf("a message of %s: %v", topic, err)
			}
		})
	}
	if err := producer.FlushWithCtx(ctx); err != nil {
		t.Fatal(err)
	}
}
