package ledgers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"

	"geminga/pkg/bookieclient"
	"geminga/pkg/ledger"
)

// Options say who writes where.
type Options struct {
	Bookies   []string // addresses
	ClusterID string
	Writers   int // half of them wait for a silent group
	Seed      uint64
	Logger    *slog.Logger // of the clients
}

// clients is how many owners there are to take writers over.
const clients = 2

// Session is writers and readers at work.
type Session struct {
	*Log
	clients []*bookieclient.Client
	stop    context.CancelFunc
	work    sync.WaitGroup // writers and readers
	calls   sync.WaitGroup // closes and deletes

	mu     sync.Mutex
	ctx    context.Context // of writers and readers
	owners []int           // which client owns each writer
}

// Start begins to write and to read. It does not wait for anything to be acknowledged.
func Start(ctx context.Context, o Options) (*Session, error) {
	s := &Session{Log: &Log{seed: o.Seed}}
	s.ctx, s.stop = context.WithCancel(ctx)
	for range clients {
		c, err := bookieclient.Open(bookieclient.Options{Bookies: o.Bookies, ClusterID: o.ClusterID, Logger: o.Logger})
		if err != nil {
			s.Shutdown()
			return nil, err
		}
		s.clients = append(s.clients, c)
	}
	for i := range o.Writers {
		s.Writers = append(s.Writers, &Writer{id: i, waits: i%2 == 1, log: s.Log})
		s.owners = append(s.owners, i/2%clients)
	}
	s.Mark()
	for i, w := range s.Writers {
		r := w.own(s.clients[s.owners[i]], &s.calls)
		s.work.Go(func() { r.run(s.ctx) })
	}
	for i, c := range s.clients {
		rnd := rand.New(rand.NewPCG(o.Seed, 1<<63|uint64(i)))
		s.work.Go(func() { s.read(s.ctx, c, rnd) })
	}
	return s, nil
}

// TakeOver makes the other client the owner of a writer, while the one before goes on.
func (s *Session) TakeOver(writer int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[writer] = (s.owners[writer] + 1) % clients
	r := s.Writers[writer].own(s.clients[s.owners[writer]], &s.calls)
	s.work.Go(func() { r.run(s.ctx) })
}

// Finish stops the writers, takes all of them over for the last time, which closes what they had open, and waits until
// everything that was ordered is done, or ctx ends.
func (s *Session) Finish(ctx context.Context) error {
	s.stop()
	s.work.Wait()
	var last sync.WaitGroup
	for i, w := range s.Writers {
		r := w.own(s.clients[(s.owners[i]+1)%clients], &s.calls)
		last.Go(func() { r.recover(ctx) })
	}
	last.Wait()
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("closing and deleting ledgers: %w", ctx.Err())
	}
	for _, l := range s.Ledgers() {
		if l.mu.Lock(); !l.ended {
			s.fault(fmt.Errorf("%v cannot be fenced", l.Ref))
		}
		l.mu.Unlock()
	}
	return nil
}

// Bulk makes the entries of new ledgers larger, and keeps all ledgers until DeleteHalf.
func (s *Session) Bulk(more int) {
	s.bulk.Store(int64(more))
	s.keep.Store(true)
}

// DeleteHalf deletes half of the ledgers that are closed, with half of their bytes at least, and waits until that is done.
func (s *Session) DeleteHalf() (deleted int, err error) {
	var closed []*Ledger
	for _, l := range s.Ledgers() {
		l.mu.Lock()
		if l.closed && !l.deleted {
			closed = append(closed, l)
		}
		l.mu.Unlock()
	}
	slices.SortStableFunc(closed, func(a, b *Ledger) int { return cmp.Compare(b.bytes(), a.bytes()) })
	for i, l := range closed {
		if i%2 == 1 {
			continue
		}
		l.mu.Lock()
		again := l.deleted // by its writer
		l.deleted = true
		l.mu.Unlock()
		if again {
			continue
		}
		_, err := await(func(done func(struct{}, error)) {
			s.clients[0].Delete(l.Ref, func(err error) { done(struct{}{}, err) })
		})
		if err != nil {
			return deleted, fmt.Errorf("delete of %v: %w", l.Ref, err)
		}
		deleted++
	}
	return deleted, nil
}

// Probe asks for a new ledger and deletes it again. It returns why there is none.
func (s *Session) Probe() error {
	ref, err := await(func(done func(ledger.Ref, error)) { s.clients[0].Create(1, 0, done) })
	if err == nil {
		s.clients[0].Delete(ref, func(error) {})
	}
	return err
}

// Shutdown ends everything at once.
func (s *Session) Shutdown() {
	s.stop()
	s.work.Wait()
	for _, c := range s.clients {
		c.Shutdown()
	}
}
