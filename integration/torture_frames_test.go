package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"geminga/integration/harness"
	"geminga/integration/torture"
	"geminga/rpc/pulsarpb"
)

const (
	pinners    = 1000
	pinnedBody = 100
	fillers    = 2 // messages of fillerBody that every connection sends behind the one that storage does not acknowledge
	fillerBody = 60 << 10

	frameLimit  = 16 // MiB, maxMessagePublishBufferSizeInMB
	frameBudget = 24 // MiB, maxDirectMemoryMB
	frameUsage  = "pulsar_broker_publish_in_progress_buffer_memory_usage_bytes"
	frameHeld   = "pulsar_broker_publish_in_progress_buffer_memory_throttled"
	frameSlack  = 48 << 20 // of RSS: clients' state, what the runtime keeps
)

// TestTortureFrames has a thousand connections that each send one small message, which storage does not acknowledge
// because every bookie stands still, and much behind it that is gone at once: so small frames keep large buffers. With
// a limit the sockets are not read any more and memory stays within it; without one it does not, and is seen to. When
// the bookies go on every message is acknowledged and nothing is kept.
func TestTortureFrames(t *testing.T) {
	for _, mode := range []string{"ENABLED", "AUTO", "TRACKING", "DISABLED"} {
		t.Run(mode, func(t *testing.T) {
			ctx := deadline(t, 2*time.Minute)
			c := startCluster(t, harness.Options{Bookies: 1, Brokers: 1, BrokerSets: []string{
				"pprofEnabled=true", "inProgressRequestFrameMemoryLimitEnabled=" + mode,
				fmt.Sprint("maxMessagePublishBufferSizeInMB=", frameLimit), fmt.Sprint("maxDirectMemoryMB=", frameBudget),
			}})
			p := &pinning{T: t, ctx: ctx, addr: strings.TrimPrefix(c.URLs[0], "pulsar://"), topic: topicName(t)}
			p.watch = torture.Watch{PID: c.Brokers[0].PID(), HTTP: c.Brokers[0].HTTP}
			p.open()
			before := must[torture.State](t)(p.watch.Now(ctx))
			if err := c.Bookies[0].Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			p.send()
			p.check(mode, before)
			if err := c.Bookies[0].Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			p.acknowledged()
		})
	}
}

// pinning is the connections of TestTortureFrames.
type pinning struct {
	*testing.T
	ctx     context.Context
	watch   torture.Watch
	addr    string
	topic   string
	conns   []*torture.Client
	writing sync.WaitGroup
}

func (p *pinning) open() {
	filler := strings.Replace(p.topic, "persistent://", "non-persistent://", 1)
	for i := range pinners {
		c := must[*torture.Client](p.T)(torture.Join(p.addr, ""))
		p.Cleanup(func() { _ = c.Close() })
		p.conns = append(p.conns, c)
		for id, topic := range []string{p.topic, filler} {
			if i == 0 {
				_ = must[*pulsarpb.BaseCommand](p.T)(c.Ask(torture.Lookup(topic), pulsarpb.BaseCommand_LOOKUP_RESPONSE))
			}
			_ = must[*pulsarpb.BaseCommand](p.T)(c.Ask(torture.Producer(topic, uint64(id+1)), pulsarpb.BaseCommand_PRODUCER_SUCCESS))
		}
	}
}

// send writes in the background: sockets that are not read take no more.
func (p *pinning) send() {
	b := torture.Send(1, 1, make([]byte, pinnedBody))
	for i := range fillers {
		b = append(b, torture.Send(2, uint64(i+1), make([]byte, fillerBody))...)
	}
	for _, c := range p.conns {
		p.writing.Go(func() {
			_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
			if _, err := c.Write(b); err != nil {
				p.Errorf("write: %v", err)
			}
		})
	}
}

// check waits until the memory in use no longer changes and compares it with what the mode promises.
func (p *pinning) check(mode string, before torture.State) {
	p.Helper()
	limited := mode == "ENABLED" || mode == "AUTO"
	var usage, read float64
	for still := 0; still < 5; {
		select {
		case <-p.ctx.Done():
			p.Fatalf("%.0f bytes kept, %.0f read", usage, read)
		case <-time.After(200 * time.Millisecond):
		}
		m := must[map[string]float64](p.T)(p.watch.Metrics(p.ctx))
		if m["geminga_io_read_bytes_total"] > read {
			read, still = m["geminga_io_read_bytes_total"], 0
			continue
		}
		usage = m[frameUsage]
		still++
		if held := m[frameHeld] == 1; held != limited {
			still = 0
		}
	}
	now := must[torture.State](p.T)(p.watch.Now(p.ctx))
	p.Logf("%s: %.1f MiB kept, %.1f MiB read, RSS %.1f MiB more", mode, usage/(1<<20), read/(1<<20), float64(now.RSS-before.RSS)/(1<<20))
	// Beyond it are the roots that the loops were reading into when it was passed. AUTO begins at one and a half limits.
	most := float64(frameLimit+4) * (1 << 20)
	if mode == "AUTO" {
		most += frameLimit / 2 << 20
	}
	switch {
	case limited && (usage > most || now.RSS-before.RSS > int64(most)+frameSlack):
		p.Errorf("more than the limit of %d MiB", frameLimit)
	case mode == "TRACKING" && usage < 2*most:
		p.Error("the messages keep too little for the test to mean anything")
	case mode == "DISABLED" && usage != 0:
		p.Errorf("counted %.0f bytes", usage)
	}
}

// acknowledged waits for the receipts of all messages; after that not a byte is kept.
func (p *pinning) acknowledged() {
	p.Helper()
	for i, c := range p.conns {
		for n := 0; n < 1; {
			cmd, err := c.Until(pulsarpb.BaseCommand_SEND_RECEIPT)
			if err != nil {
				p.Fatalf("connection %d: %v", i, err)
			}
			if cmd.SendReceipt.GetProducerId() == 1 {
				n++
			}
		}
	}
	p.writing.Wait()
	for {
		m := must[map[string]float64](p.T)(p.watch.Metrics(p.ctx))
		if m[frameUsage] == 0 && m[frameHeld] == 0 {
			return
		}
		select {
		case <-p.ctx.Done():
			p.Fatalf("%.0f bytes kept after the last receipt, held: %.0f", m[frameUsage], m[frameHeld])
		case <-time.After(50 * time.Millisecond):
		}
	}
}
