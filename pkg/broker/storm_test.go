package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

// stormer publishes in order with a window of unanswered sends, and behaves as clients do when its producer is closed or
// its connection breaks: look up, open again, send again what has no receipt.
type stormer struct {
	p       *peer
	s       *Server
	topic   string
	name    string
	next    uint64 // next sequence id to send
	acked   uint64 // sequence ids below it have receipts
	total   uint64
	lastPos [2]uint64
}

func (st *stormer) run() {
	st.reopen()
	for st.acked < st.total {
		for st.next < st.total && st.next < st.acked+10 {
			st.p.write(sendFrame(st.p.t, 1, st.next, fmt.Sprintf("%s/%d", st.name, st.next)))
			st.next++
		}
		st.step()
	}
}

// step handles one frame from the broker.
func (st *stormer) step() {
	t := st.p.t
	cmd, _, err := st.p.frame()
	switch {
	case err != nil:
		t.Errorf("%s: %v", st.name, err)
		st.acked = st.total
	case cmd.GetType() == pulsarpb.BaseCommand_SEND_RECEIPT:
		if got := cmd.SendReceipt.GetSequenceId(); got != st.acked {
			t.Errorf("%s: receipt %d, expected %d", st.name, got, st.acked)
		}
		id := cmd.SendReceipt.GetMessageId()
		pos := [2]uint64{id.GetLedgerId(), id.GetEntryId()}
		if pos[0] < st.lastPos[0] || pos[0] == st.lastPos[0] && pos[1] <= st.lastPos[1] && st.acked > 0 {
			t.Errorf("%s: message %d at %v, after %v", st.name, st.acked, pos, st.lastPos)
		}
		st.acked, st.lastPos = st.acked+1, pos
	case cmd.GetType() == pulsarpb.BaseCommand_CLOSE_PRODUCER:
		st.reopen()
	default:
		t.Errorf("%s: unexpected %v", st.name, cmd)
	}
}

// reopen opens the producer until it succeeds, and goes back to the first message without receipt. Receipts that are
// still on their way come before the close.
func (st *stormer) reopen() {
	for {
		st.p.lookup(st.topic)
		st.p.send(producerCommand(st.topic, 1, *st.p.id(), st.name))
		cmd, _, err := st.p.frame()
		if err != nil {
			st.p.t.Errorf("%s: %v", st.name, err)
			return
		}
		if cmd.GetType() == pulsarpb.BaseCommand_PRODUCER_SUCCESS {
			st.next = st.acked
			return
		}
		if cmd.GetError().GetError() != pulsarpb.ServerError_ServiceNotReady {
			st.p.t.Errorf("%s: %v", st.name, cmd)
		}
	}
}

// Topics are unloaded again and again while producers publish, and ledger groups stop and come back: receipts stay in
// order without gaps, and everything that had a receipt is there afterwards, in order.
func TestUnloadStorm(t *testing.T) {
	const producers, total = 4, 300
	s, cluster := start(t, func(o *Options) {
		o.Ledger.LedgerStallTimeout = 20 * time.Millisecond
		o.Ledger.RetentionTime, o.Ledger.RetentionBytes = -1, -1 // no subscription keeps anything
	})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range producers {
		st := &stormer{p: connect(t, s), s: s, topic: name(i % 2), name: fmt.Sprint("p", i), total: total}
		wg.Go(st.run)
	}
	var unloads sync.WaitGroup
	unloads.Go(func() {
		r := rand.New(rand.NewPCG(5, 6))
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(2+r.IntN(10)) * time.Millisecond):
				if g := ledger.GroupID(1 + n%3); n%4 == 0 {
					cluster.Down(g)
					<-time.After(5 * time.Millisecond)
					cluster.Up(g)
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_ = s.Unload(ctx, name(n%2))
				cancel()
			}
		}
	})
	wg.Wait()
	close(stop)
	unloads.Wait()
	for i := range 2 {
		checkLog(t, s, name(i), map[string]uint64{fmt.Sprint("p", i): total, fmt.Sprint("p", i+2): total})
	}
}

// checkLog reads a topic from the beginning: of every producer all messages are there, in order, when what was sent twice
// is counted once.
func checkLog(t *testing.T, s *Server, topic string, want map[string]uint64) {
	t.Helper()
	p := connect(t, s)
	p.subscribe(subscribing{topic: topic, name: "check", id: 1, transient: true})
	p.flow(1, 1<<20)
	next := map[string]uint64{}
	for len(want) > 0 {
		_, body := p.receive()
		var from string
		var n uint64
		if _, err := fmt.Sscanf(body, "p%1s/%d", &from, &n); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		from = "p" + from
		switch {
		case n > next[from]:
			t.Fatalf("%s of %s: %d is missing before %d", topic, from, next[from], n)
		case n == next[from]:
			next[from]++
		}
		if next[from] == want[from] {
			delete(want, from)
		}
	}
}

// Connections come and go in the middle of everything; nothing of them stays behind, and the broker serves on.
func TestConnectionStorm(t *testing.T) {
	s, _ := start(t)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for range 40 {
				storm(t, s, r)
			}
		})
	}
	wg.Wait()
	for i := range 2 {
		eventually(t, "producers and consumers are gone", func() bool {
			st, err := s.TopicStats(context.Background(), name(i))
			if err != nil {
				return false
			}
			n := len(st.Publishers)
			for _, sub := range st.Subscriptions {
				n += len(sub.Consumers)
			}
			return n == 0
		})
	}
	connect(t, s).publishOne(name(0))
}

// storm is one connection that does a few things at random without waiting for answers, and goes.
func storm(t *testing.T, s *Server, r *rand.Rand) {
	p := connect(t, s)
	topic := name(r.IntN(2))
	p.lookup(topic)
	var out []byte
	add := func(cmd *pulsarpb.BaseCommand) { out, _ = protocol.AppendCommand(out, cmd) }
	for i := range 2 + r.IntN(8) {
		id, request := uint64(1+r.IntN(2)), *p.id()
		switch r.IntN(6) {
		case 0:
			add(producerCommand(topic, id, request, ""))
		case 1:
			add(subscribing{topic: topic, name: fmt.Sprint("s", r.IntN(2)), id: id, kind: pulsarpb.CommandSubscribe_Shared}.command(&request))
		case 2:
			permits := uint32(10)
			add(&pulsarpb.BaseCommand{
				Type: pulsarpb.BaseCommand_FLOW.Enum(), Flow: &pulsarpb.CommandFlow{ConsumerId: &id, MessagePermits: &permits},
			})
		case 3:
			add(&pulsarpb.BaseCommand{
				Type:          pulsarpb.BaseCommand_CLOSE_CONSUMER.Enum(),
				CloseConsumer: &pulsarpb.CommandCloseConsumer{ConsumerId: &id, RequestId: &request},
			})
		case 4:
			add(&pulsarpb.BaseCommand{
				Type:          pulsarpb.BaseCommand_CLOSE_PRODUCER.Enum(),
				CloseProducer: &pulsarpb.CommandCloseProducer{ProducerId: &id, RequestId: &request},
			})
		case 5:
			out = append(out, sendFrame(t, id, uint64(i), "x")...) // often the end of the connection
		}
	}
	_, _ = p.conn.Write(out)
	if r.IntN(2) == 0 {
		_, _, _ = p.frame()
	}
	_ = p.conn.Close()
}
