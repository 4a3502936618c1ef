package integration

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"geminga/integration/torture"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

var (
	tortureRounds     = flag.Int("torture.rounds", 1, "how often each torture is done")
	tortureSubscribes = flag.Int("torture.subscribes", 100_000, "SUBSCRIBE commands on one connection")
)

// leftovers is what may be there after a torture that was not before: the runtime's caches and what its collector has not
// given back to the system, and the connection of whoever asks.
var leftovers = torture.Bounds{Goroutines: 8, Descriptors: 4, Heap: 16 << 20, RSS: 192 << 20}

// maxUnsent is the budget for clients that do not read, which the broker is started with, and one read of a message for each.
const maxUnsent = 16<<20 + 40*100<<10

// rack is a broker under torture.
type rack struct {
	*testing.T
	watch torture.Watch
	addr  string
	topic string
}

// TestTorture does to a real broker what bad clients do. After each torture the broker is as it was before, and serves.
func TestTorture(t *testing.T) {
	p, url := startStandalone(t, "pprofEnabled=true", "maxMessageSize=1048576", "maxOutboundBufferSizeInMB=16")
	r := &rack{T: t, addr: strings.TrimPrefix(url, "pulsar://"), topic: topicName(t)}
	r.watch = torture.Watch{PID: p.PID(), HTTP: p.HTTP, Topic: r.topic}
	r.serves()
	r.cutDialogue(17) // warms up
	for _, torment := range []struct {
		name string
		do   func(*rack)
	}{
		{"slow readers", (*rack).slowReaders},
		{"slow writers", (*rack).slowWriters},
		{"half frames", (*rack).halfFrames},
		{"huge sizes", (*rack).hugeSizes},
		{"permits without end", (*rack).endlessPermits},
		{"unknown acknowledgements", (*rack).unknownAcks},
		{"subscribes", (*rack).manySubscribes},
		{"disconnects", func(r *rack) { r.cutDialogue(1) }},
	} {
		t.Run(torment.name, func(t *testing.T) {
			r := &rack{t, r.watch, r.addr, r.topic}
			ctx := deadline(t, 2*time.Minute)
			before := must[torture.State](t)(r.watch.Now(ctx))
			start := time.Now()
			for range *tortureRounds {
				torment.do(r)
			}
			took := time.Since(start)
			after, err := r.watch.Settled(ctx, before, leftovers)
			if err != nil {
				t.Error(err)
			}
			r.serves()
			t.Logf("%v; then %v", took.Round(time.Millisecond), after)
		})
	}
}

func (r *rack) join() *torture.Client {
	r.Helper()
	c := must[*torture.Client](r.T)(torture.Join(r.addr, ""))
	r.Cleanup(func() { _ = c.Close() })
	r.ask(c, torture.Lookup(r.topic), pulsarpb.BaseCommand_LOOKUP_RESPONSE)
	return c
}

func (r *rack) ask(c *torture.Client, frame []byte, want pulsarpb.BaseCommand_Type) *pulsarpb.BaseCommand {
	r.Helper()
	return must[*pulsarpb.BaseCommand](r.T)(c.Ask(frame, want))
}

func (r *rack) write(c io.Writer, b []byte) {
	r.Helper()
	if _, err := c.Write(b); err != nil {
		r.Fatal(err)
	}
}

// publish stores n messages.
func (r *rack) publish(n, size int) {
	r.Helper()
	c := r.join()
	defer c.Close()
	r.ask(c, torture.Producer(r.topic, 1), pulsarpb.BaseCommand_PRODUCER_SUCCESS)
	for i := range n {
		r.ask(c, torture.Send(1, uint64(i), make([]byte, size)), pulsarpb.BaseCommand_SEND_RECEIPT)
	}
}

// serves publishes and receives one message.
func (r *rack) serves() {
	r.Helper()
	c := r.join()
	defer c.Close()
	sub := fmt.Sprint("serves-", time.Now().UnixNano())
	r.ask(c, torture.Producer(r.topic, 1), pulsarpb.BaseCommand_PRODUCER_SUCCESS)
	r.ask(c, torture.Send(1, 0, []byte("x")), pulsarpb.BaseCommand_SEND_RECEIPT)
	r.ask(c, torture.Subscribe(r.topic, sub, 1), pulsarpb.BaseCommand_SUCCESS)
	r.ask(c, torture.Flow(1, 1), pulsarpb.BaseCommand_MESSAGE)
}

// slowReaders ask for everything and read nothing, then go.
func (r *rack) slowReaders() {
	r.publish(50, 100<<10)
	for i := range 40 {
		c := r.join()
		defer c.Close()
		r.ask(c, torture.Subscribe(r.topic, fmt.Sprint("slow-", i), 1), pulsarpb.BaseCommand_SUCCESS)
		r.write(c, torture.Flow(1, math.MaxUint32))
	}
	r.serves()
	metrics := must[map[string]float64](r.T)(r.watch.Metrics(r.Context()))
	if unsent := metrics["geminga_io_unsent_bytes"]; unsent <= 0 || unsent > maxUnsent {
		r.Errorf("%.0f bytes for clients that do not read", unsent)
	}
}

// slowWriters write a byte at a time; each is served as any other.
func (r *rack) slowWriters() {
	errs := make(chan error)
	for range 20 {
		go func() { errs <- r.drip() }()
	}
	for range 20 {
		if err := <-errs; err != nil {
			r.Error(err)
		}
	}
}

func (r *rack) drip() error {
	c, err := torture.Dial(r.addr, "")
	if err != nil {
		return err
	}
	defer c.Close()
	for _, say := range []struct {
		frame []byte
		want  pulsarpb.BaseCommand_Type
	}{
		{torture.Connect(), pulsarpb.BaseCommand_CONNECTED},
		{torture.Producer(r.topic, 1), pulsarpb.BaseCommand_PRODUCER_SUCCESS},
		{torture.Send(1, 1, bytes.Repeat([]byte("slow"), 500)), pulsarpb.BaseCommand_SEND_RECEIPT},
	} {
		for i := range say.frame {
			if _, err := c.Write(say.frame[i : i+1]); err != nil {
				return err
			}
		}
		if _, err := c.Until(say.want); err != nil {
			return err
		}
	}
	return nil
}

// halfFrames leave in the middle of a large message, many at a time.
func (r *rack) halfFrames() {
	frame := torture.Send(1, 1, make([]byte, 900<<10))
	for i := range 100 {
		c := r.join()
		r.ask(c, torture.Producer(r.topic, 1), pulsarpb.BaseCommand_PRODUCER_SUCCESS)
		r.write(c, frame[:len(frame)*i/100])
		defer c.Reset()
	}
}

// hugeSizes announce what they do not send.
func (r *rack) hugeSizes() {
	for _, size := range []uint32{0, 1, 3, 1 << 20, 1<<20 + 5<<10, 1 << 24, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32} {
		for _, inner := range []uint32{0, 1, 100, 1 << 20, math.MaxInt32, math.MaxUint32} {
			for range 5 {
				c := r.join()
				b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, size), inner)
				r.write(c, append(b, make([]byte, 100)...))
				defer c.Close()
			}
		}
	}
	state := must[torture.State](r.T)(r.watch.Now(r.Context()))
	if state.Heap > 256<<20 {
		r.Errorf("announced sizes cost memory: %v", state)
	}
}

// endlessPermits give as many permits as there are numbers, again and again: every message comes once.
func (r *rack) endlessPermits() {
	r.publish(200, 10)
	c := r.join()
	defer c.Close()
	r.ask(c, torture.Subscribe(r.topic, fmt.Sprint("endless-", time.Now().UnixNano()), 1), pulsarpb.BaseCommand_SUCCESS)
	for range 5 {
		r.write(c, torture.Flow(1, math.MaxUint32))
	}
	seen := map[string]bool{}
	for range 200 {
		cmd, err := c.Until(pulsarpb.BaseCommand_MESSAGE)
		if err != nil {
			r.Fatal(err)
		}
		id := cmd.Message.GetMessageId()
		key := fmt.Sprint(id.GetLedgerId(), ":", id.GetEntryId())
		if seen[key] {
			r.Fatalf("%s came twice", key)
		}
		seen[key] = true
	}
}

// unknownAcks acknowledge what was never sent: nothing is lost by it.
func (r *rack) unknownAcks() {
	r.publish(10, 10)
	c := r.join()
	defer c.Close()
	sub := fmt.Sprint("unknown-", time.Now().UnixNano())
	r.ask(c, torture.Subscribe(r.topic, sub, 1), pulsarpb.BaseCommand_SUCCESS)
	odd := []uint64{0, 1, 7, 1 << 31, math.MaxInt64 - 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64}
	for _, ledger := range odd {
		for _, entry := range odd {
			if ledger < 100 && entry < 1<<31 { // these may exist
				continue
			}
			r.write(c, torture.Ack(1, torture.ID(ledger, entry)))
			r.write(c, torture.Ack(99, torture.ID(ledger, entry))) // nor is there such a consumer
		}
	}
	r.write(c, torture.Flow(1, 10))
	for range 10 {
		if _, err := c.Until(pulsarpb.BaseCommand_MESSAGE); err != nil {
			r.Fatal(err)
		}
	}
}

// manySubscribes opens consumers of a hundred subscriptions on one connection for as long as the broker lets it; refusals and the end of the
// connection are fine.
func (r *rack) manySubscribes() {
	c := r.join()
	defer c.Close()
	var wg sync.WaitGroup
	n := *tortureSubscribes
	wg.Go(func() {
		for i := range n {
			_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
			if _, err := c.Write(torture.Subscribe(r.topic, fmt.Sprint("many-", i%100), uint64(i+1))); err != nil {
				return
			}
		}
	})
	yes, no := 0, 0
	for yes+no < n {
		cmd, err := c.Next()
		if err != nil {
			r.Logf("the connection ended: %v", err)
			break
		}
		switch cmd.GetType() {
		case pulsarpb.BaseCommand_SUCCESS:
			yes++
		case pulsarpb.BaseCommand_ERROR:
			no++
		case pulsarpb.BaseCommand_PING:
			r.write(c, protocol.AppendPong(nil))
		}
	}
	_ = c.Close()
	wg.Wait()
	r.Logf("%d subscribed, %d refused", yes, no)
}

// cutDialogue has one client after the other say the first n bytes of what clients say, for every step-th n, and go: by
// a reset, by closing, or by closing its sending half and reading to the end.
func (r *rack) cutDialogue(step int) {
	dialogue := [][]byte{
		torture.Connect(), torture.Lookup(r.topic), torture.Producer(r.topic, 1), torture.Send(1, 1, []byte("body")),
		torture.Subscribe(r.topic, "cut", 2), torture.Flow(2, 5), torture.Ack(2, torture.ID(1, 1)),
		torture.CloseConsumer(2), torture.CloseProducer(1),
	}
	answers := []pulsarpb.BaseCommand_Type{
		pulsarpb.BaseCommand_CONNECTED, pulsarpb.BaseCommand_LOOKUP_RESPONSE, pulsarpb.BaseCommand_PRODUCER_SUCCESS,
		pulsarpb.BaseCommand_SEND_RECEIPT, pulsarpb.BaseCommand_SUCCESS, 0, 0, pulsarpb.BaseCommand_SUCCESS, pulsarpb.BaseCommand_SUCCESS,
	}
	total := len(bytes.Join(dialogue, nil))
	var wg sync.WaitGroup
	defer wg.Wait()
	busy := make(chan struct{}, 20)
	for n := 0; n <= total; n += step {
		busy <- struct{}{}
		wg.Go(func() {
			defer func() { <-busy }()
			if err := r.sayPart(dialogue, answers, n, n%3); err != nil {
				r.Errorf("%d bytes: %v", n, err)
			}
		})
	}
}

func (r *rack) sayPart(dialogue [][]byte, answers []pulsarpb.BaseCommand_Type, n, how int) error {
	c, err := torture.Dial(r.addr, "")
	if err != nil {
		return err
	}
	defer c.Close()
	for i, frame := range dialogue {
		part := frame[:min(n, len(frame))]
		if _, err := c.Write(part); err != nil {
			return err
		}
		if n -= len(part); n == 0 {
			break
		}
		if answers[i] == 0 || n%2 == 0 && i > 3 { // some do not wait
			continue
		}
		if _, err := c.Until(answers[i]); err != nil {
			return err
		}
	}
	switch how {
	case 0:
		c.Reset()
	case 1:
		half, ok := c.Conn.(interface{ CloseWrite() error })
		if !ok || half.CloseWrite() != nil {
			return errors.New("no sending half")
		}
		for err == nil {
			_, err = c.Next()
		}
	}
	return nil
}
