package bookieclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

var (
	errNoAnswer = errors.New("no answer in time")
	errOpen     = errors.New("a command was left open")
)

type appendStream = grpc.BidiStreamingClient[bookiepb.AppendRequest, bookiepb.AppendResponse]

// session is one gRPC stream of a group.
type session struct {
	address string
	ctx     context.Context
	cancel  context.CancelFunc

	once sync.Once
	err  error // why it ended; read after done
	done chan struct{}
}

// fail ends the session; the first reason counts.
func (se *session) fail(err error) {
	se.once.Do(func() {
		se.err = err
		close(se.done)
		se.cancel()
	})
}

func withGroup(ctx context.Context, group ledger.GroupID) context.Context {
	return metadata.AppendToOutgoingContext(ctx, bookiepb.GroupHeader, strconv.FormatUint(uint64(group), 10))
}

// run serves the stream until the client is closed.
func (s *stream) run() {
	for attempt := 0; ; attempt++ {
		if !s.awaitWork() || !s.client.pause(s.client.ctx, attempt) {
			break
		}
		address := s.client.topology.pick(s.group, attempt)
		progress, err := s.converse(address)
		s.report(address, err, attempt)
		if progress {
			attempt = -1
			if isOverload(err) {
				attempt = 1 // pause all the same
			}
		}
		s.rewind()
	}
	s.finish()
}

// report logs the end of a session: loudly once, when a few in a row have come to nothing.
func (s *stream) report(address string, err error, attempt int) {
	level := slog.LevelDebug
	if attempt == 3 && s.client.ctx.Err() == nil {
		level = slog.LevelWarn
	}
	s.client.log.Log(s.client.ctx, level, "append stream ended", "group", s.group, "bookie", address, "error", err)
}

// awaitWork sleeps until something is queued; false when the client is closed.
func (s *stream) awaitWork() bool {
	for {
		s.mu.Lock()
		has := s.queue.len() > 0
		s.waiting = !has
		s.mu.Unlock()
		if has {
			return s.client.ctx.Err() == nil
		}
		select {
		case <-s.wake:
		case <-s.client.ctx.Done():
			return false
		}
	}
}

// converse opens a session with one bookie and sends until it ends. It reports whether any command was settled.
func (s *stream) converse(address string) (progress bool, err error) {
	se := &session{address: address, done: make(chan struct{})}
	se.ctx, se.cancel = context.WithCancel(withGroup(s.client.ctx, s.group))
	defer se.cancel()
	rpc, err := s.dial(se)
	if err != nil {
		s.sessionEnded(se, err)
		return false, err
	}
	s.client.metrics.opened()
	s.mu.Lock()
	s.session = se
	began := s.heard
	s.mu.Unlock()

	var receiver sync.WaitGroup
	receiver.Go(func() { s.receive(se, rpc) })
	s.send(se, rpc)
	se.fail(errOpen)
	receiver.Wait()
	s.sessionEnded(se, se.err)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard != began, se.err
}

// dial opens the gRPC stream, within ConnectTimeout.
func (s *stream) dial(se *session) (appendStream, error) {
	conn, err := s.client.conns.ready(se.ctx, se.address, appendLane)
	if err != nil {
		return nil, err
	}
	timer := time.AfterFunc(s.client.opts.ConnectTimeout, se.cancel)
	defer timer.Stop()
	return bookiepb.NewBookieClient(conn).Append(se.ctx)
}

// sessionEnded draws the conclusions about who leads.
func (s *stream) sessionEnded(se *session, err error) {
	var left *openError
	if errors.As(err, &left) {
		if left.verdict == notHere {
			s.client.topology.notLeader(s.group, se.address)
			s.client.topology.setLeader(s.group, left.leader)
		}
	} else {
		s.client.topology.notLeader(s.group, se.address)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = nil
	if s.queue.len() > 0 || s.flight.len() > 0 {
		s.broken = time.Now()
	}
}

// send takes batches and sends them until the session ends.
func (s *stream) send(se *session, rpc appendStream) {
	for s.take(se) {
		s.body.Begin(s.batch.inline)
		for _, cmd := range s.batch.commands {
			cmd.encode(&s.body)
		}
		s.unpin()
		s.client.metrics.sent(&s.batch)
		if err := rpc.SendMsg(&s.body); err != nil {
			s.body.Discard() // when gRPC gave up before it marshalled
			s.awaitReason(se)
			return
		}
	}
}

// awaitReason: SendMsg says only that the stream is over; the receiver learns why.
func (s *stream) awaitReason(se *session) {
	timer := time.NewTimer(s.client.opts.ConnectTimeout)
	defer timer.Stop()
	select {
	case <-se.done:
	case <-timer.C:
	}
}

// take fills the batch with what is queued and puts it in flight; it sleeps while there is nothing to send or too much
// unanswered. False: the session is over.
func (s *stream) take(se *session) bool {
	for {
		s.mu.Lock()
		if s.queue.len() > 0 && s.unacked < s.client.opts.MaxMessagesInFlight {
			s.fillLocked()
			s.mu.Unlock()
			return true
		}
		s.waiting = true
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-se.done:
			s.stopWaiting()
			return false
		case <-s.client.ctx.Done():
			s.stopWaiting()
			return false
		}
	}
}

// stopWaiting keeps the wake channel in step with waiting: when somebody has cleared it, a token is in the channel.
func (s *stream) stopWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting {
		select {
		case <-s.wake:
		default:
		}
	}
	s.waiting = false
}

func (s *stream) fillLocked() {
	s.batch.reset()
	now := time.Now()
	limit := s.client.opts.MaxBatchBytes
	if s.careful > 0 {
		s.careful--
		limit = 0
	}
	for s.queue.len() > 0 {
		cmd := s.queue.peek()
		if len(s.batch.commands) > 0 && s.batch.bytes+cmd.size() > limit {
			break
		}
		s.queue.pop()
		s.batch.add(cmd)
		cmd.sent, cmd.pinned, cmd.closes, cmd.alone, cmd.at = true, true, false, false, now
		if cmd.writer.tail == cmd {
			cmd.writer.tail = nil
		}
		s.flight.push(cmd)
	}
	last := s.batch.commands[len(s.batch.commands)-1]
	last.closes, last.alone = true, len(s.batch.commands) == 1
	s.unacked++
}

// unpin ends the encoding: commands that were killed meanwhile give their payloads back now.
func (s *stream) unpin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range s.batch.commands {
		cmd.pinned = false
		if cmd.dead {
			releasePayloads(cmd)
		}
	}
}

// rewind queues what was in flight again, in front. The session is over, so no answer can come.
func (s *stream) rewind() {
	s.mu.Lock()
	var again, spent []*command
	for _, cmd := range s.flight.all() {
		if cmd.dead {
			spent = append(spent, cmd)
		} else {
			again = append(again, cmd)
		}
	}
	if len(again) > 0 {
		s.queue.replace(append(again, s.queue.all()...))
	}
	s.flight.replace(nil)
	s.unacked = 0
	s.batch.reset()
	s.mu.Unlock()
	s.client.recycle(spent)
}

// finish answers everything with ErrShutdown, once per ledger.
func (s *stream) finish() {
	s.rewind()
	s.mu.Lock()
	s.ended = true
	var notices []notice
	for _, cmd := range s.queue.all() {
		if w := cmd.writer; w.pending > 0 {
			w.pending = 0
			notices = append(notices, notice{w.waiter, w.ref, cmd.first - 1, ledger.ErrShutdown})
		}
	}
	spent := append([]*command(nil), s.queue.all()...)
	s.queue.replace(nil)
	clear(s.writers)
	s.mu.Unlock()
	for _, n := range notices {
		n.waiter.Appended(n.ref, n.last, n.err)
	}
	s.client.recycle(spent)
}

func isOverload(err error) bool {
	var left *openError
	return errors.As(err, &left) && left.verdict == notDone
}

// openError ends a session: a command has no final answer yet.
type openError struct {
	verdict verdict
	leader  string
	err     error
}

func (e *openError) Error() string { return fmt.Sprintf("%v: %v", errOpen, e.err) }
func (e *openError) Unwrap() error { return e.err }
