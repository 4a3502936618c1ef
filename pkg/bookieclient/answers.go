package bookieclient

import (
	"fmt"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// maxGaps is how many times a NOT_NEXT that names an earlier entry than we expect is tried again on a fresh stream
// before it is believed.
const maxGaps = 3

// receive turns answers into calls of the waiters until the session ends.
func (s *stream) receive(se *session, rpc appendStream) {
	var results bookiepb.AppendResults
	for {
		if err := rpc.RecvMsg(&results); err != nil {
			se.fail(transportError(se.address, err))
			return
		}
		if err := s.answered(results.Results); err != nil {
			se.fail(err)
			return
		}
	}
}

// answered settles the commands that one message answers, then tells the waiters, once per ledger for the good news.
func (s *stream) answered(results []bookiepb.PlainResult) error {
	now := time.Now()
	s.notices, s.spent = s.notices[:0], s.spent[:0]
	var err error
	s.mu.Lock()
	for i := range results {
		if err = s.settleLocked(&results[i], now); err != nil {
			break
		}
	}
	s.wakeIfReadyLocked()
	for i := range s.notices { // gathered acks are filled in now that the message is through
		if n := &s.notices[i]; n.err == nil {
			w := s.writers[n.ref.ID]
			if w == nil || !w.acks {
				continue
			}
			n.last, n.waiter, w.acks = w.acked, w.waiter, false
			s.retireLocked(w)
		}
	}
	s.mu.Unlock()
	for i := range s.notices {
		n := &s.notices[i]
		n.waiter.Appended(n.ref, n.last, n.err)
	}
	s.client.recycle(s.spent)
	clear(s.notices)
	clear(s.spent)
	return err
}

// settleLocked takes the answer to the oldest command in flight. An error ends the session and leaves the command
// where it is.
//
//nolint:revive // the order of the cases is the meaning; apart they would say less
func (s *stream) settleLocked(r *bookiepb.PlainResult, now time.Time) error {
	o := outcomeOf(r.Code)
	if o.verdict == notHere { // may come without a command
		return &openError{o.verdict, r.Leader, describe(*r)}
	}
	if s.flight.len() == 0 {
		return fmt.Errorf("%w: an answer too many, for ledger %d", errProtocol, r.Ledger)
	}
	cmd := s.flight.peek()
	w := cmd.writer
	switch {
	case cmd.pinned:
		return fmt.Errorf("%w: an answer before the question, for ledger %d", errProtocol, r.Ledger)
	case r.Code == bookiepb.Code_BAD_REQUEST && !cmd.alone:
		// Some command of the message is malformed, and the bookie has refused them all. Apart, they show which.
		s.careful = s.flight.len()
		return &openError{maybe, "", describe(*r)}
	case r.Code == bookiepb.Code_BAD_REQUEST && !cmd.dead: // concerns the message, names no ledger
		s.loseLocked(w, cmd, describe(*r))
		return &openError{maybe, "", describe(*r)}
	case r.Ledger != uint64(w.ref.ID):
		return fmt.Errorf("%w: answer for ledger %d, expected %d", errProtocol, r.Ledger, w.ref.ID)
	case cmd.dead:
	case o.verdict != settled, isGap(r, cmd, w):
		return &openError{o.verdict, r.Leader, describe(*r)}
	case o.err != nil:
		s.loseLocked(w, cmd, describe(*r))
		if n := &s.notices[len(s.notices)-1]; r.Code == bookiepb.Code_NOT_NEXT {
			n.last = min(n.last, ledger.EntryID(r.Last)) // a caller that skipped entries learns where it stands
		}
	default:
		w.pending--
		w.gaps = 0
		w.acked = cmd.last()
		if !w.acks {
			w.acks = true
			s.notices = append(s.notices, notice{ref: w.ref})
		}
	}
	s.heard = now
	s.flight.pop()
	s.spent = append(s.spent, cmd)
	if cmd.closes {
		s.unacked--
		s.client.metrics.answered(now.Sub(cmd.at))
	}
	return nil
}

// isGap reports a NOT_NEXT that may be the echo of something lost on the way. One that names a later entry, or keeps
// coming, is the truth.
func isGap(r *bookiepb.PlainResult, cmd *command, w *writer) bool {
	if r.Code != bookiepb.Code_NOT_NEXT || ledger.EntryID(r.Last) >= cmd.first || w.gaps >= maxGaps {
		return false
	}
	w.gaps++
	return true
}

// loseLocked ends a ledger's appends with an error: everything before cmd has been acknowledged. What this message
// acknowledged before it is told first.
func (s *stream) loseLocked(w *writer, cmd *command, err error) {
	if w.acks {
		for i := range s.notices {
			if n := &s.notices[i]; n.err == nil && n.waiter == nil && n.ref == w.ref {
				n.last, n.waiter = w.acked, w.waiter
			}
		}
		w.acks = false
	}
	s.notices = append(s.notices, notice{w.waiter, w.ref, cmd.first - 1, err})
	s.spent = s.killLocked(w, s.spent)
}

// retireLocked takes a writer without commands out of the map, for use by another ledger.
func (s *stream) retireLocked(w *writer) {
	if w.pending > 0 {
		return
	}
	delete(s.writers, w.ref.ID)
	*w = writer{}
	if len(s.spare) < 1024 {
		s.spare = append(s.spare, w)
	}
}
