package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"geminga/pkg/eventloop"
)

// Close shuts the broker down: no new topics and producers, sends in flight are answered, producers and consumers are
// closed, bundles released, connections closed. It gives up what is not done when ctx ends; nothing that was
// acknowledged is lost either way. Bookies that are silent are not waited for, and that is no error: without the metadata
// no topic can be handed over, without a topic's ledgers that topic cannot, and whoever takes it next recovers it, as after
// a crash.
func (s *Server) Close(ctx context.Context) error {
	if s.closing.Swap(true) {
		return nil
	}
	s.publishLimit.close()
	s.pauseReading()
	if err := s.reachable(ctx); err != nil {
		s.log.Warn("Bookies do not answer: topics are not handed over, their next owners recover them", "reason", err)
		return s.closeAll(ctx)
	}
	s.handOver(ctx)
	released := s.owners.releaseAll(ctx)
	return errors.Join(released, s.closeAll(ctx))
}

// silence is how long the metadata may take to answer a broker that shuts down. An election takes less.
const silence = 2 * time.Second

func (s *Server) reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	return s.reach(ctx)
}

// stalled is how long no topic may have closed before those that are left are given up. It is longer than a topic waits
// for its messages in flight, and those that close by then are handed over.
const stalled = 3 * time.Second

// handOver closes the topics, which leaves their next owners nothing to recover, as far as their ledgers answer. Of the
// time that ctx gives, it leaves some for releasing the bundles.
func (s *Server) handOver(ctx context.Context) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-silence))
		defer cancel()
	}
	if left := s.topics.closeAll(ctx); left > 0 {
		s.log.Warn("Ledgers do not answer: topics are not handed over, their next owners recover them", "topics", left)
	}
}

// closeAll closes every topic and returns how many have not closed, or not in order, when ctx ends or none has closed for
// a while.
func (ts *topics) closeAll(ctx context.Context) (left int) {
	all := ts.all(nil)
	done := make(chan error, len(all))
	for _, h := range all {
		ts.unload(h, func(err error) { done <- err })
	}
	patience := time.NewTimer(stalled)
	defer patience.Stop()
	left = len(all)
	for range all {
		select {
		case err := <-done:
			patience.Reset(stalled)
			if err == nil {
				left--
			}
		case <-patience.C:
			return left
		case <-ctx.Done():
			return left
		}
	}
	return left
}

// closeAll ends the goroutines. It also serves an Open that failed half way.
func (s *Server) closeAll(ctx context.Context) error {
	if s.stop != nil {
		s.stop()
	}
	s.sweeping.Wait()
	var err error
	if s.group != nil {
		err = s.group.Close(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.topicPool != nil {
			s.topicPool.Close()
			s.subPool.Close()
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("broker: executors: %w", ctx.Err()))
	}
	s.metrics.close()
	return err
}

// pauseReading stops reading every connection; what was decoded goes on.
func (s *Server) pauseReading() {
	for i, l := range s.group.Loops() {
		st := s.states[i]
		l.Post(eventloop.TaskFunc(func() {
			st.eachConn(func(c *conn) { c.throttle(throttleShutdown) })
			st.flush()
		}))
	}
}
