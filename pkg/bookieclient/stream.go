package bookieclient

import (
	"sync"
	"sync/atomic"
	"time"

	"geminga/pkg/ledger"
	"geminga/rpc/bookiepb"
)

// stream carries the appends of all ledgers of one group to whoever leads it.
//
// Two goroutines: run is the sender and manager, receive lives as long as a session (one gRPC stream). The sender
// takes everything that was queued while the last message was on its way (and not more than MaxMessagesInFlight
// messages are), so batches grow with the load and nobody waits on a timer when there is none.
//
// A session ends with the first answer that leaves a command open, or with the connection. Then everything that is
// unanswered is queued again in front, in order and with the same boundaries, and a new session begins, at another
// replica if need be. That is safe because of the machine's first invariant, also while the old stream's proposals
// still run: per ledger, whichever comes first in the group's log applies, the other is a retry.
//
//	old session          new session         log of the group
//	c1 c2 c3 ┄┄(dies)
//	                     c1 c2 c3
//	c1                                       c1 applies
//	                     c1                  retry
//	                     c2                  c2 applies
//	c2                                       retry
//	c3 lost                                  –
//	                     c3                  c3 applies
//
// Rejected: repairing one ledger inside a living session. It saves re-sending a few commands after rare trouble and
// needs a second order beside the stream's.
type stream struct {
	client *Client
	group  ledger.GroupID

	mu      sync.Mutex
	writers map[ledger.ID]*writer
	queue   fifo[*command] // live, not sent in this session
	flight  fifo[*command] // sent in this session, not answered; dead ones too
	spare   []*writer
	unacked int  // messages in flight
	careful int  // how many more commands go in messages of their own
	waiting bool // the sender sleeps
	ended   bool // after Shutdown
	session *session
	broken  time.Time              // when a session last ended badly with work to do
	heard   time.Time              // when an answer last settled a command
	own     map[ledger.ID]struct{} // ledgers that this client created here and has not closed

	open atomic.Int64  // len(own)
	wake chan struct{} // capacity 1

	// Sender's and receiver's own.
	batch   batch
	body    bookiepb.AppendBody
	notices []notice
	spent   []*command
}

// notice is one call of a Waiter, made outside the lock.
type notice struct {
	waiter ledger.Waiter
	ref    ledger.Ref
	last   ledger.EntryID
	err    error
}

func newStream(c *Client, group ledger.GroupID) *stream {
	return &stream{
		client: c, group: group,
		writers: map[ledger.ID]*writer{}, own: map[ledger.ID]struct{}{},
		wake: make(chan struct{}, 1),
	}
}

// Append queues entries [first, first+len) behind earlier appends to ref, with references of its own to the payloads.
// Appends to one ledger share one waiter: the one given last is told.
func (c *Client) Append(ref ledger.Ref, epoch ledger.Epoch, first ledger.EntryID, entries []ledger.Payload, w ledger.Waiter) {
	if len(entries) == 0 {
		return
	}
	err := ledger.ErrShutdown
	if tooLarge(entries) {
		err = ledger.ErrBadCommand
	} else if s := c.stream(ref.Group); s != nil && s.enqueue(ref, epoch, first, entries, w) {
		return
	}
	c.async(func() { w.Appended(ref, first-1, err) })
}

func tooLarge(entries []ledger.Payload) bool {
	for _, p := range entries {
		if len(p.Data) > maxEntryBytes {
			return true
		}
	}
	return false
}

// enqueue reports false after Shutdown.
func (s *stream) enqueue(ref ledger.Ref, epoch ledger.Epoch, first ledger.EntryID, entries []ledger.Payload, waiter ledger.Waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	w := s.writerLocked(ref)
	w.waiter = waiter
	for i, p := range entries {
		p.Retain()
		next := first + ledger.EntryID(i)
		cmd := w.tail
		if cmd == nil || cmd.epoch != epoch || cmd.last()+1 != next ||
			cmd.framed+len(p.Data) > s.client.opts.MaxBatchBytes {
			cmd = s.newCommandLocked(w, epoch, next)
		}
		cmd.add(p)
	}
	s.wakeIfReadyLocked()
	return true
}

func (s *stream) writerLocked(ref ledger.Ref) *writer {
	if w := s.writers[ref.ID]; w != nil {
		return w
	}
	var w *writer
	if n := len(s.spare); n > 0 {
		w, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		w = &writer{}
	}
	w.ref = ref
	s.writers[ref.ID] = w
	return w
}

func (s *stream) newCommandLocked(w *writer, epoch ledger.Epoch, first ledger.EntryID) *command {
	cmd := s.client.commands.Get().(*command)
	cmd.writer, cmd.epoch, cmd.first = w, epoch, first
	w.pending++
	w.tail = cmd
	s.queue.push(cmd)
	return cmd
}

// wakeIfReadyLocked wakes the sender when it sleeps and could send.
func (s *stream) wakeIfReadyLocked() {
	if s.waiting && s.queue.len() > 0 && s.unacked < s.client.opts.MaxMessagesInFlight {
		s.waiting = false
		s.wake <- struct{}{} // never blocks: waiting is set only with the channel empty
	}
}

// Abandon drops queued and unanswered appends of ref. A call of the waiter that is under way may still arrive. What
// was sent may yet be carried out by the bookies.
func (c *Client) Abandon(ref ledger.Ref) {
	s := c.streams.get(ref.Group)
	if s == nil {
		return
	}
	s.mu.Lock()
	var spent []*command
	if w := s.writers[ref.ID]; w != nil {
		spent = s.killLocked(w, nil)
	}
	s.mu.Unlock()
	s.client.recycle(spent)
}

// killLocked ends a writer: its queued commands go, its commands in flight are dead. It appends to spent what can be
// recycled outside the lock.
func (s *stream) killLocked(w *writer, spent []*command) []*command {
	delete(s.writers, w.ref.ID)
	s.disownLocked(w.ref.ID)
	keep := s.queue.all()[:0]
	for _, cmd := range s.queue.all() {
		if cmd.writer == w {
			spent = append(spent, cmd)
		} else {
			keep = append(keep, cmd)
		}
	}
	clear(s.queue.items[s.queue.head+len(keep):])
	s.queue.items = s.queue.items[:s.queue.head+len(keep)]
	for _, cmd := range s.flight.all() {
		if cmd.writer == w && !cmd.dead {
			cmd.dead = true
			if !cmd.pinned {
				releasePayloads(cmd)
			}
		}
	}
	// w itself is left to the garbage collector: dead commands still point to it.
	return spent
}

// releasePayloads gives the references back and leaves an empty command.
func releasePayloads(cmd *command) {
	for i := range cmd.entries {
		cmd.entries[i].Release()
	}
	clear(cmd.entries)
	cmd.entries = cmd.entries[:0]
}

// recycle gives commands back that nobody refers to any more.
func (c *Client) recycle(spent []*command) {
	for _, cmd := range spent {
		releasePayloads(cmd)
		if cap(cmd.entries) > 4096 {
			continue
		}
		*cmd = command{entries: cmd.entries}
		c.commands.Put(cmd)
	}
}

func (s *stream) opened(id ledger.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[id] = struct{}{}
	s.open.Store(int64(len(s.own)))
}

func (s *stream) closed(id ledger.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disownLocked(id)
}

func (s *stream) disownLocked(id ledger.ID) {
	delete(s.own, id)
	s.open.Store(int64(len(s.own)))
}

// troubled reports whether a new ledger should rather live elsewhere: appends stand still, or the last session broke
// and nobody has since said that the group has a leader.
func (s *stream) troubled(now, ready time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.oldestLocked(now) > s.client.opts.StallTimeout {
		return true
	}
	return !s.broken.IsZero() && s.broken.After(ready) && s.broken.After(s.heard)
}

// oldestLocked is how long nothing has been settled though something was sent, or could have been.
func (s *stream) oldestLocked(now time.Time) time.Duration {
	var since time.Time
	switch {
	case s.flight.len() > 0:
		since = s.flight.peek().at
	case s.queue.len() > 0 && !s.broken.IsZero():
		since = s.broken
	default:
		return 0
	}
	if s.heard.After(since) {
		since = s.heard
	}
	return now.Sub(since)
}

// watchStreams cancels sessions whose oldest command was not answered in time: a half-open connection looks like that,
// long before keepalive finds it, and so does a leader that has lost its quorum.
func (c *Client) watchStreams() {
	ticker := time.NewTicker(min(c.opts.AnswerTimeout/4, 250*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-ticker.C:
			for _, s := range c.streams.list() {
				s.expire(now)
			}
		}
	}
}

func (s *stream) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil && s.flight.len() > 0 && s.oldestLocked(now) > s.client.opts.AnswerTimeout {
		s.session.fail(errNoAnswer)
	}
}
