package topic

import (
	"errors"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
)

// pumpRounds is how many reads are started in one go before other subscriptions on the executor get their turn.
const pumpRounds = 16

// reading is the state of a subscription's reads: at most one ahead and one of positions to replay. The read ahead may
// wait at the end of the log for ever, so a replay must not wait for it.
//
// generation changes when what was asked for is not wanted any more (another consumer is active, the cursor was
// rewound); entries of an older generation are released unseen.
type reading struct {
	ahead      bool
	replaying  []ledger.Position // of the replay read under way; empty: none
	generation uint64
	aheadOf    uint64 // generation of the read ahead
	replayOf   uint64
	failures   int
	retry      *executor.Timer // not nil: no reads before it fires
	pumping    bool
	pumpAgain  bool
	yielded    bool // a pump is posted
	bytes      average64

	onAhead  func([]ledger.Entry, error)
	onReplay func([]ledger.Entry, error)
	onRetry  executor.Task
	onYield  executor.Task
}

// average64 is a decaying mean of entry sizes, to bound replay reads in bytes.
type average64 struct{ value float64 }

func (a *average64) sample(v float64) {
	if a.value == 0 {
		a.value = v
		return
	}
	a.value = a.value*averageHistory + v*(1-averageHistory)
}

func (r *reading) setUp(s *subscription) {
	r.onAhead, r.onReplay = s.readAhead, s.readReplay
	r.onRetry = executor.Func(func() {
		r.retry = nil
		s.pump()
	})
	r.onYield = executor.Func(func() {
		r.yielded = false
		s.pump()
	})
}

// forget makes reads under way results of the past.
func (r *reading) forget(s *subscription) {
	r.generation++
	r.cancelWaiting(s)
	if r.retry != nil {
		r.retry.Stop()
		r.retry = nil
	}
}

// cancelWaiting withdraws a read ahead that waits for entries.
func (r *reading) cancelWaiting(s *subscription) {
	if r.ahead && s.cursor.CancelRead() {
		r.ahead = false
	}
}

// pump starts the reads for which there is demand. Everything that may create demand (permits, room at a Sink, an
// acknowledgement that unblocks, a consumer, a finished read, a position to replay) ends with a call of it.
//
// A read may complete at once and call pump again, so this is a loop and not a recursion.
func (s *subscription) pump() {
	if s.read.pumping {
		s.read.pumpAgain = true
		return
	}
	s.read.pumping = true
	for round := 0; ; round++ {
		s.read.pumpAgain = false
		if round == pumpRounds {
			s.settleBrokerShare()
			s.yield()
			break
		}
		s.startReads()
		if !s.read.pumpAgain {
			break
		}
	}
	s.read.pumping = false
	s.check()
}

func (s *subscription) yield() {
	if !s.read.yielded {
		s.read.yielded = true
		s.exec.Post(s.read.onYield)
	}
}

func (s *subscription) startReads() {
	s.settleBrokerShare()
	if s.ended || s.read.retry != nil || s.throttled() {
		return
	}
	s.serveDelays()
	if s.again.replay.len() > 0 {
		if len(s.read.replaying) == 0 {
			if want := s.within(s.demand()); want.Entries > 0 {
				s.startReplay(want)
			}
		}
		return
	}
	if s.keys != nil && len(s.read.replaying) == 0 && s.keys.wait.len() > 0 {
		if s.startKeyReplay(); len(s.read.replaying) > 0 {
			return
		}
		if s.keys.full(len(s.consumers)) {
			return
		}
	}
	s.startAhead()
}

// startAhead reads what is new, unless nothing new is wanted or such a read is under way.
func (s *subscription) startAhead() {
	if s.read.ahead || len(s.read.replaying) > 0 || s.full() {
		return
	}
	if want := s.demand(); want.Entries > 0 {
		want.Entries = s.delays.more(want.Entries, s.opts.DispatcherMaxReadBatchSize)
		s.read.ahead, s.read.aheadOf = true, s.read.generation
		s.cursor.Read(s.within(want), s.read.onAhead)
	}
}

func (s *subscription) startReplay(want ledger.Limits) {
	s.read.replaying = s.again.replay.take(s.read.replaying[:0], min(want.Entries, s.replayLimit(want.Bytes)))
	s.read.replayOf = s.read.generation
	s.cursor.ReadAt(s.read.replaying, s.read.onReplay)
}

// startKeyReplay reads entries of hashes whose owners can take them.
func (s *subscription) startKeyReplay() {
	want := s.within(ledger.Limits{Entries: s.opts.DispatcherMaxReadBatchSize, Bytes: s.opts.DispatcherMaxReadSizeBytes})
	s.read.replaying = s.keys.take(s.read.replaying[:0], s.consumers, min(want.Entries, s.replayLimit(want.Bytes)))
	if len(s.read.replaying) > 0 {
		s.read.replayOf = s.read.generation
		s.cursor.ReadAt(s.read.replaying, s.read.onReplay)
	}
}

// replayLimit bounds the bytes of a replay read by its number of entries.
func (s *subscription) replayLimit(bytes int) int {
	if s.read.bytes.value == 0 {
		return s.opts.DispatcherMaxReadBatchSize
	}
	return max(1, int(float64(bytes)/s.read.bytes.value))
}

// demand is what consumers can take now: permits count messages, reads count entries. No entries: there is none.
func (s *subscription) demand() ledger.Limits {
	var entries, bytes int64
	add := func(c *Consumer) {
		if budget := c.budget(); budget > 0 {
			if room := c.room(); room > 0 {
				entries += c.average.entries(budget)
				bytes += int64(room)
			}
		}
	}
	most := int64(s.opts.DispatcherMaxReadBatchSize)
	if s.single() {
		if c := s.taker(); c != nil {
			add(c)
		}
	} else {
		for _, c := range s.consumers {
			if add(c); entries >= most {
				break
			}
		}
	}
	return ledger.Limits{Entries: int(min(entries, most)), Bytes: int(min(bytes, int64(s.opts.DispatcherMaxReadSizeBytes)))}
}

// readAhead takes the result of a read at the read position.
func (s *subscription) readAhead(entries []ledger.Entry, err error) {
	s.exec.AssertCurrent()
	s.read.ahead = false
	if s.read.aheadOf != s.read.generation || s.ended {
		release(entries)
		if !s.ended {
			s.cursor.Rewind() // what was released is to be read again
		}
		s.pump()
		return
	}
	s.dispatch(entries, false, nil)
	s.readEnded(err)
}

// readReplay takes the result of a read of given positions. A read that fails on its way gives what it has got and no
// error. So a position that is missing is deleted or gone for ever only if a later one was given, or if there was nothing
// to give at all; else it is asked for again.
func (s *subscription) readReplay(entries []ledger.Entry, err error) {
	s.exec.AssertCurrent()
	asked := s.read.replaying
	s.read.replaying = s.read.replaying[:0]
	if s.read.replayOf != s.read.generation || s.ended {
		release(entries)
		s.pump()
		return
	}
	if s.keys != nil {
		s.keys.returned()
	}
	got := 0
	for i, p := range asked {
		if got < len(entries) && entries[got].Position == p {
			got++
			continue
		}
		if failed := err != nil || got > 0 && got == len(entries); failed && !s.cursor.IsDeleted(p) {
			s.putBack(p, s.asked(i))
		} else {
			s.settle(p)
		}
	}
	if s.keys == nil {
		s.dispatch(entries, true, nil)
	} else {
		s.dispatch(entries, true, s.keys.taken)
		s.keys.taken = s.keys.taken[:0]
	}
	s.readEnded(err)
}

// asked is what is known of the i-th entry of the replay read that has ended.
func (s *subscription) asked(i int) waitingItem {
	if s.keys != nil {
		return s.keys.taken[i].waitingItem
	}
	return waitingItem{}
}

func (s *subscription) readEnded(err error) {
	if err == nil {
		s.read.failures = 0
		s.pump()
		return
	}
	if errors.Is(err, managedledger.ErrClosed) || errors.Is(err, ledger.ErrShutdown) {
		s.log.Debug("reads have ended", "error", err)
		s.read.retry = s.exec.After(s.opts.ReadRetryMax, s.read.onRetry)
		return
	}
	s.log.Warn("read failed, will be tried again", "error", err, "after", s.retryAfter())
	if s.read.retry == nil {
		s.read.retry = s.exec.After(s.retryAfter(), s.read.onRetry)
	}
	s.read.failures++
}

func release(entries []ledger.Entry) {
	for i := range entries {
		entries[i].Payload.Release()
	}
}
