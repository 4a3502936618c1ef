package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"geminga/pkg/ledger"
)

// engine is a set of Raft groups of three replicas each that keep ledgers.
type engine interface {
	// attach opens a client of group i. answered is called, in the order of the commands, with how many more of them
	// have succeeded, or once with an error.
	attach(ctx context.Context, i int, answered func(n int, err error)) (client, error)
	// look returns what was written to logs, if that is counted.
	look() written
	close() error
}

// client gives commands to a group. The bytes may be changed once they are answered, not before.
type client interface {
	send(command []byte) error
	close()
}

// shape is a load.
type shape struct {
	size       int // of an entry
	perCommand int // entries
	window     int // commands
}

func (o options) shape(size int) shape {
	s := shape{size: size, perCommand: max(1, o.command/size)}
	s.window = max(4, o.window/(size*s.perCommand))
	return s
}

// result is what a load has reached.
type result struct {
	entries float64
	bytes   float64 // of payload
	elapsed time.Duration
	cpu     time.Duration
	log     written
}

func (r result) rate() float64 { return r.bytes / r.elapsed.Seconds() }

func (r result) cpuPerMillion() float64 { return r.cpu.Seconds() / r.entries * 1e6 }

// batch is how many bytes a write to a log had.
func (r result) batch() int { return int(r.log.bytes / max(1, r.log.writes)) }

// feeder keeps a group busy with one ledger.
type feeder struct {
	client  client
	shape   shape
	id      ledger.ID
	ring    [][]byte // commands, one for each place in the window
	credit  chan struct{}
	entries *atomic.Int64
	failed  chan error
}

// rig is an engine under load.
type rig struct {
	engine
	ids atomic.Uint64 // the last ledger
}

// newFeeder makes a ledger in group i.
func (r *rig) newFeeder(ctx context.Context, i int, s shape) (*feeder, error) {
	f := &feeder{
		shape: s, id: ledger.ID(r.ids.Add(1)), credit: make(chan struct{}, s.window), entries: &atomic.Int64{}, failed: make(chan error, 1),
	}
	var body []byte
	payload := make([]byte, s.size)
	for i := range payload {
		payload[i] = byte(i)
	}
	for range s.perCommand {
		body = ledger.AppendEntry(body, payload)
	}
	for range s.window {
		c := ledger.Command{Op: ledger.OpAppend, Ledger: f.id, Epoch: 1, Count: s.perCommand, Body: body}
		f.ring = append(f.ring, c.AppendTo(nil))
	}
	created := false
	var err error
	f.client, err = r.attach(ctx, i, func(n int, err error) {
		if err != nil {
			select {
			case f.failed <- err:
			default:
			}
			return
		}
		for range n {
			<-f.credit
		}
		if !created {
			created = true
			n--
		}
		f.entries.Add(int64(n * s.perCommand))
	})
	if err != nil {
		return nil, err
	}
	f.credit <- struct{}{}
	create := ledger.Command{Op: ledger.OpCreate, Ledger: f.id, Epoch: 1}
	return f, f.client.send(create.AppendTo(nil))
}

// run sends commands, up to a number of entries, until the context ends.
func (f *feeder) run(ctx context.Context, most int) error {
	for n := 0; n*f.shape.perCommand < most && ctx.Err() == nil; n++ {
		if err := f.sendNth(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// sendNth sends the n-th command when there is room for it, or not when the context has ended.
func (f *feeder) sendNth(ctx context.Context, n int) error {
	s := f.shape
	select {
	case f.credit <- struct{}{}:
	case err := <-f.failed:
		return err
	case <-ctx.Done():
		return nil
	}
	b := f.ring[n%s.window]
	ledger.PutAppendHeader(b[:0], f.id, 1, ledger.EntryID(n*s.perCommand), s.perCommand, len(b)-ledger.AppendHeaderLen)
	return f.client.send(b)
}

// drain waits until everything is answered.
func (f *feeder) drain(ctx context.Context) error {
	for range f.shape.window {
		select {
		case f.credit <- struct{}{}:
		case err := <-f.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("no answers: %w", ctx.Err())
		}
	}
	return nil
}

// load has n groups written to for a time and returns what happened after a fifth of it.
func (r *rig) load(ctx context.Context, n int, s shape, during time.Duration) (result, error) {
	feeders, err := r.feeders(ctx, n, s)
	if err != nil {
		return result{}, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for _, f := range feeders {
		wg.Go(func() {
			defer f.client.close()
			if err := f.run(running, 1<<62); err != nil {
				errs <- err
				return
			}
			errs <- f.drain(ctx)
		})
	}
	time.Sleep(during / 5)
	got := measure(r, feeders, during)
	stop()
	wg.Wait()
	for range feeders {
		if err := <-errs; err != nil {
			return got, err
		}
	}
	return got, nil
}

func (r *rig) feeders(ctx context.Context, n int, s shape) ([]*feeder, error) {
	var out []*feeder
	for i := range n {
		f, err := r.newFeeder(ctx, i, s)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// fill writes a number of entries into a new ledger of group i, and returns its id when they are all there.
func (r *rig) fill(ctx context.Context, i int, s shape, entries int) (ledger.ID, error) {
	f, err := r.newFeeder(ctx, i, s)
	if err != nil {
		return 0, err
	}
	defer f.client.close()
	if err := f.run(ctx, entries); err != nil {
		return 0, err
	}
	return f.id, f.drain(ctx)
}

func measure(e engine, feeders []*feeder, during time.Duration) result {
	entries := func() (n int64) {
		for _, f := range feeders {
			n += f.entries.Load()
		}
		return n
	}
	start, cpu, log, before := time.Now(), cpuTime(), e.look(), entries()
	time.Sleep(during)
	n := float64(entries() - before)
	return result{
		entries: n, bytes: n * float64(feeders[0].shape.size), elapsed: time.Since(start), cpu: cpuTime() - cpu, log: e.look().minus(log),
	}
}

// cpuTime is what this process has used, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
