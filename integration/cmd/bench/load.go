package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"geminga/integration/harness"
	"geminga/pkg/protocol"
	"geminga/rpc/pulsarpb"
)

const benchTopic = "persistent://public/default/bench"

// load publishes the warm-up and then the measured messages. usage is read before and after the latter. procs are the
// daemons, the broker first.
func load(o options, addr string, usage func() (broker, bookies harness.Usage, err error), procs ...*harness.Proc) (result, error) {
	var r result
	producers, err := openProducers(o, addr)
	if err != nil {
		return r, err
	}
	defer closeAll(producers)
	received, stop, err := openConsumers(o, addr)
	if err != nil {
		return r, err
	}
	defer stop()
	if _, err := publish(producers, o.count/10, o.window); err != nil {
		return r, fmt.Errorf("warm-up: %w", err)
	}
	m0, a0 := memory(procs)
	b0, k0, err := usage()
	if err != nil {
		return r, err
	}
	own0, received0 := ownCPU(), received.Load()
	stopProfile := profile(o, procs)
	if r.elapsed, err = publish(producers, o.count, o.window); err != nil {
		return r, err
	}
	stopProfile()
	b1, k1, err := usage()
	if err != nil {
		return r, err
	}
	m1, a1 := memory(procs)
	r.received = received.Load() - received0
	r.broker, r.bookies, r.loadCPU = b1.Minus(b0), k1.Minus(k0), ownCPU()-own0
	r.mallocs, r.allocated = m1-m0, a1-a0
	return r, nil
}

type producer struct {
	c    *conn
	t    template
	sent int
}

func openProducers(o options, addr string) ([]*producer, error) {
	var out []*producer
	for i := range o.producers {
		c, err := dial(addr, benchTopic)
		if err != nil {
			return out, fmt.Errorf("producer %d: %w", i, err)
		}
		err = c.call(&pulsarpb.BaseCommand{
			Type:     pulsarpb.BaseCommand_PRODUCER.Enum(),
			Producer: &pulsarpb.CommandProducer{Topic: proto.String(benchTopic), ProducerId: proto.Uint64(1), RequestId: proto.Uint64(2)},
		}, pulsarpb.BaseCommand_PRODUCER_SUCCESS)
		if err != nil {
			return out, fmt.Errorf("producer %d: %w", i, err)
		}
		t, err := newTemplate(1, o.size)
		if err != nil {
			return out, err
		}
		out = append(out, &producer{c: c, t: t})
	}
	return out, nil
}

func closeAll(ps []*producer) {
	for _, p := range ps {
		p.c.Close()
	}
}

// publish spreads count messages over the producers and waits for all receipts.
func publish(ps []*producer, count, window int) (time.Duration, error) {
	errs := make(chan error, len(ps))
	start := time.Now()
	for i, p := range ps {
		share := count / len(ps)
		if i < count%len(ps) {
			share++
		}
		go func() { errs <- p.publish(share, window) }()
	}
	var err error
	for range ps {
		err = errors.Join(err, <-errs)
	}
	return time.Since(start), err
}

// publish keeps window messages unanswered. Receipts must come in order; frames are written in runs.
func (p *producer) publish(count, window int) error {
	var out []byte
	first, answered := p.sent, 0
	end := first + count
	for answered < count {
		out = out[:0]
		for p.sent < end && p.sent-first-answered < window {
			out = p.t.appendTo(out, p.sent)
			p.sent++
		}
		if _, err := p.c.Write(out); err != nil {
			return err
		}
		for {
			if err := p.receipt(first + answered); err != nil {
				return err
			}
			answered++
			if p.c.r.Buffered() < 4 || answered == count {
				break
			}
		}
	}
	return nil
}

func (p *producer) receipt(n int) error {
	for {
		if err := p.c.next(); err != nil {
			return err
		}
		switch p.c.frame.Type {
		case pulsarpb.BaseCommand_SEND_RECEIPT:
			seq, err := sequenceOf(&p.c.frame)
			if err == nil && seq != uint64(firstSequence+n) {
				err = fmt.Errorf("receipt for %d, expected %d", seq-firstSequence, n)
			}
			return err
		case pulsarpb.BaseCommand_PING:
			if _, err := p.c.Write(protocol.AppendPong(nil)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unexpected %v", p.c.frame.Type)
		}
	}
}

// openConsumers subscribes o.consumers connections to one Shared subscription; they receive and acknowledge until stop.
func openConsumers(o options, addr string) (*atomic.Int64, func(), error) {
	var received atomic.Int64
	var wg sync.WaitGroup
	var conns []*conn
	stop := func() {
		for _, c := range conns {
			c.Close()
		}
		wg.Wait()
	}
	for i := range o.consumers {
		c, err := dial(addr, benchTopic)
		if err != nil {
			return &received, stop, err
		}
		conns = append(conns, c)
		err = c.call(&pulsarpb.BaseCommand{
			Type: pulsarpb.BaseCommand_SUBSCRIBE.Enum(),
			Subscribe: &pulsarpb.CommandSubscribe{
				Topic: proto.String(benchTopic), Subscription: proto.String("bench"), SubType: pulsarpb.CommandSubscribe_Shared.Enum(),
				ConsumerId: proto.Uint64(1), RequestId: proto.Uint64(2), ConsumerName: proto.String(strconv.Itoa(i)),
			},
		}, pulsarpb.BaseCommand_SUCCESS)
		if err != nil {
			return &received, stop, err
		}
		wg.Go(func() { consume(c, &received) })
	}
	return &received, stop, nil
}

const permits = 1000

// consume acknowledges in runs of a hundred, as the official client does, and ends with its connection.
func consume(c *conn, received *atomic.Int64) {
	flow := func(n uint32) error {
		b, err := protocol.AppendCommand(nil, &pulsarpb.BaseCommand{
			Type: pulsarpb.BaseCommand_FLOW.Enum(),
			Flow: &pulsarpb.CommandFlow{ConsumerId: proto.Uint64(1), MessagePermits: &n},
		})
		if err == nil {
			_, err = c.Write(b)
		}
		return err
	}
	if flow(permits) != nil {
		return
	}
	var ids []*pulsarpb.MessageIdData
	spent := 0
	for c.next() == nil {
		if c.frame.Type != pulsarpb.BaseCommand_MESSAGE {
			continue
		}
		id, err := entryOf(&c.frame)
		if err != nil {
			return
		}
		received.Add(1)
		if ids = append(ids, id); len(ids) == 100 {
			b, err := protocol.AppendCommand(nil, &pulsarpb.BaseCommand{
				Type: pulsarpb.BaseCommand_ACK.Enum(),
				Ack:  &pulsarpb.CommandAck{ConsumerId: proto.Uint64(1), AckType: pulsarpb.CommandAck_Individual.Enum(), MessageId: ids},
			})
			if err != nil {
				return
			}
			if _, err = c.Write(b); err != nil {
				return
			}
			ids = nil
		}
		if spent++; spent == permits/2 {
			if flow(permits/2) != nil {
				return
			}
			spent = 0
		}
	}
}

func ownCPU() time.Duration {
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// memory reads the allocation counters of the first daemon, the broker, from its metrics.
func memory(procs []*harness.Proc) (mallocs, bytes float64) {
	if len(procs) == 0 {
		return 0, 0
	}
	resp, err := http.Get("http://" + procs[0].HTTP + "/metrics")
	if err != nil {
		return 0, 0
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "go_memstats_mallocs_total "); ok {
			mallocs, _ = strconv.ParseFloat(v, 64)
		}
		if v, ok := strings.CutPrefix(sc.Text(), "go_memstats_alloc_bytes_total "); ok {
			bytes, _ = strconv.ParseFloat(v, 64)
		}
	}
	return mallocs, bytes
}

// profile fetches CPU profiles of the daemons while the measurement runs; the returned func waits for them.
func profile(o options, procs []*harness.Proc) func() {
	if o.profile == "" {
		return func() {}
	}
	var wg sync.WaitGroup
	for _, p := range procs {
		wg.Go(func() {
			if err := fetchProfile(p, filepath.Join(o.profile, p.Name+".prof")); err != nil {
				fmt.Fprintln(os.Stderr, "profile:", err)
			}
		})
	}
	return wg.Wait
}

func fetchProfile(p *harness.Proc, path string) error {
	resp, err := http.Get("http://" + p.HTTP + "/debug/pprof/profile?seconds=5")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadFrom(resp.Body)
	return err
}
