package bookie

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// submission is a run of encoded commands of one stream that is proposed in one piece.
type submission struct {
	data  []byte // commands, checked; not changed any more, and owned by the log once proposed
	count int    // number of commands
	// done is called exactly once after submit returned nil, in the order of the submits of a group. results has count
	// elements when err is nil. It must not block.
	done func(results []ledger.Result, err error)
}

// proposal is what raft gets.
type proposal struct {
	parts  []*submission
	size   int
	began  time.Time
	answer chan applied // holds one
}

// applied is how a proposal ended.
type applied struct {
	results []ledger.Result
	err     error
}

// proposer turns the appends of all streams of a group into Raft proposals.
//
//	stream ─┐ submit                 gather              completer
//	stream ─┼──▶ queue ──▶ wait for a free slot, ──▶ raft.Apply ──▶ in the order of the log:
//	stream ─┘            then take all there is                    results ──▶ done
//
// A proposal takes what has gathered when a slot gets free, up to MaxProposalBytes: when idle, one append goes at once
// and alone; under load, a proposal is as large as what came in during the ones before it. There is no timer.
//
// Raft takes a proposal from Apply only between two fsyncs, so the slots in use are proposals in front of the main
// loop, which it stores together with one fsync, and proposals under way to the followers.
type proposer struct {
	apply    func(cmd []byte, timeout time.Duration) raft.ApplyFuture
	leads    func() bool
	refuses  func() bool // nothing that takes lasting space may be proposed; asked again for what has waited in the queue
	opts     *Options
	metrics  *metrics
	slots    chan struct{}
	inflight chan *proposal // to the completer, in order
	proposed atomic.Uint64  // bytes in all

	mu      sync.Mutex
	queue   []*submission
	bytes   int // in queue
	flying  int // submissions proposed and not answered
	stopped bool
	wake    chan struct{} // holds one: there is something in the queue
	room    chan struct{} // closed and made anew when the queue gets shorter
	stop    chan struct{}
	wg      sync.WaitGroup
}

func newProposer(o *Options, m *metrics) *proposer {
	return &proposer{
		opts: o, metrics: m, refuses: func() bool { return false },
		slots: make(chan struct{}, o.MaxInFlight), inflight: make(chan *proposal, o.MaxInFlight),
		wake: make(chan struct{}, 1), room: make(chan struct{}), stop: make(chan struct{}),
	}
}

func (p *proposer) start(apply func([]byte, time.Duration) raft.ApplyFuture, leads func() bool) {
	p.apply, p.leads = apply, leads
	p.wg.Go(p.run)
	p.wg.Go(p.complete)
}

// submit queues a submission. While the queue is full it waits, which holds back one stream and no other; after
// QueueTimeout it gives up. An error means that nothing was queued.
func (p *proposer) submit(ctx context.Context, s *submission) error {
	var timer *time.Timer
	for {
		if !p.leads() {
			return ledger.ErrNotLeader
		}
		p.mu.Lock()
		if p.stopped {
			p.mu.Unlock()
			return ledger.ErrShutdown
		}
		if p.bytes == 0 || p.bytes+len(s.data) <= p.opts.MaxQueueBytes {
			p.queue = append(p.queue, s)
			p.bytes += len(s.data)
			p.mu.Unlock()
			p.metrics.queued(len(s.data))
			select {
			case p.wake <- struct{}{}:
			default:
			}
			return nil
		}
		room := p.room
		p.mu.Unlock()
		if timer == nil {
			timer = time.NewTimer(p.opts.QueueTimeout)
			defer timer.Stop()
		}
		select {
		case <-room:
		case <-timer.C:
			return ledger.ErrOverloaded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run proposes until stop.
func (p *proposer) run() {
	defer close(p.inflight)
	for {
		select {
		case <-p.wake:
		case <-p.stop:
			return
		}
		for {
			select {
			case p.slots <- struct{}{}:
			case <-p.stop:
				return
			}
			pr := p.take()
			if pr == nil {
				<-p.slots
				break
			}
			if p.refuses() && grows(pr.parts) {
				p.decline(pr)
			} else {
				p.propose(pr)
			}
		}
	}
}

// take gathers one proposal out of the queue.
func (p *proposer) take() *proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil
	}
	size, n := 0, 0
	for n < len(p.queue) && (n == 0 || size+len(p.queue[n].data) <= p.opts.MaxProposalBytes) {
		size += len(p.queue[n].data)
		n++
	}
	pr := &proposal{parts: p.queue[:n:n], size: size, began: time.Now(), answer: make(chan applied, 1)}
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	p.bytes -= size
	p.flying += n
	close(p.room)
	p.room = make(chan struct{})
	return pr
}

// decline refuses a proposal, in its turn. What was in the queue when a disk got full would otherwise fill the rest of it.
func (p *proposer) decline(pr *proposal) {
	p.metrics.queued(-pr.size)
	pr.answer <- applied{err: ledger.ErrReadOnly}
	p.inflight <- pr
	<-p.slots
}

// grows says whether any command takes lasting space. Deletes and closes go on when the disk is full.
func grows(parts []*submission) bool {
	for _, s := range parts {
		for data := s.data; len(data) > 0; {
			c, rest, err := ledger.NextCommand(data)
			if err != nil || c.Op == ledger.OpAppend || c.Op == ledger.OpCreate {
				return true
			}
			data = rest
		}
	}
	return false
}

// propose hands a proposal to raft. The goroutine that waits for the outcome is not waited for by anybody: raft may
// drop a future when it stops.
func (p *proposer) propose(pr *proposal) {
	p.proposed.Add(uint64(pr.size))
	p.metrics.proposed(pr)
	data := pr.parts[0].data
	if len(pr.parts) > 1 {
		data = make([]byte, 0, pr.size)
		for _, s := range pr.parts {
			data = append(data, s.data...)
		}
	}
	future := p.apply(data, p.opts.ApplyTimeout)
	p.inflight <- pr // has room, or gets it: the completer waits for nobody for long
	go func() {
		err := future.Error()
		results, _ := future.Response().([]ledger.Result)
		pr.answer <- applied{results, err}
		<-p.slots
	}()
}

// complete answers the proposals in order.
func (p *proposer) complete() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for pr := range p.inflight {
		timer.Reset(time.Until(pr.began.Add(p.opts.ApplyTimeout)))
		p.finish(pr, p.await(pr, timer))
	}
	p.mu.Lock()
	rest := p.queue
	p.queue, p.bytes = nil, 0
	p.mu.Unlock()
	for _, s := range rest {
		p.metrics.queued(-len(s.data))
		s.done(nil, ledger.ErrShutdown) // never proposed
	}
}

// await waits for the outcome of a proposal until its deadline. Once the proposer stops, what raft has not answered
// will not be answered.
func (p *proposer) await(pr *proposal, timer *time.Timer) applied {
	select {
	case a := <-pr.answer:
		return a
	case <-timer.C:
		return applied{err: ledger.ErrUnknown}
	case <-p.stop:
	}
	select {
	case a := <-pr.answer:
		return a
	case <-time.After(100 * time.Millisecond):
		return applied{err: ledger.ErrUnknown}
	}
}

func (p *proposer) finish(pr *proposal, a applied) {
	err := outcome(a.err)
	p.metrics.answered(pr, err)
	results := a.results
	for _, s := range pr.parts {
		switch {
		case err != nil:
			s.done(nil, err)
		case len(results) < s.count: // the replica failed while it applied
			s.done(nil, ledger.ErrUnknown)
		default:
			s.done(results[:s.count:s.count], nil)
			results = results[s.count:]
		}
	}
	p.mu.Lock()
	p.flying -= len(pr.parts)
	p.mu.Unlock()
}

// outcome says what raft's error means for the commands: only what surely was not proposed is refused, all else is
// unknown.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ledger.ErrNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ledger.ErrOverloaded
	case errors.Is(err, ledger.ErrReadOnly), // declined
		errors.Is(err, journal.ErrNoSpace): // a leader stores first, and sends what it has stored: it has done neither
		return ledger.ErrReadOnly
	}
	return ledger.ErrUnknown
}

// hold waits until no proposal is under way and lets none begin until resume is called. Submissions queue up meanwhile. One
// goroutine at a time may do so.
func (p *proposer) hold(ctx context.Context) (resume func(), err error) {
	taken := 0
	resume = func() {
		for ; taken > 0; taken-- {
			<-p.slots
		}
	}
	for taken < cap(p.slots) {
		select {
		case p.slots <- struct{}{}:
			taken++
		case <-ctx.Done():
			resume()
			return nil, ctx.Err()
		case <-p.stop:
			resume()
			return nil, errStopped
		}
	}
	return resume, nil
}

// pending counts the submissions without an answer.
func (p *proposer) pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) + p.flying
}

// refuse takes no more submissions.
func (p *proposer) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// close answers everything that is still there and ends. Raft may be stopped before or after.
func (p *proposer) close() {
	p.refuse()
	close(p.stop)
	p.wg.Wait()
}
