// Package workload publishes numbered messages through the official client and checks afterwards what was promised:
// every message with a receipt is there, once, in the order of its producer; receipts come in the order of the sends.
//
// A send has three outcomes: acknowledged, failed, unknown. Only the first is a promise. Messages of the other two may
// be there or not.
package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const headerSize = 16

// Producer is one numbered stream of messages.
type Producer struct {
	ID   int
	Size int // payload bytes, at least 16

	mu       sync.Mutex
	acked    map[uint64]string // sequence -> message id
	last     int64             // sequence of the last receipt
	disorder int
	failed   int
	pending  sync.WaitGroup
	log      *Log
}

// Log is everything that was sent to one topic.
type Log struct {
	Topic     string
	Producers []*Producer
	Acked     atomic.Int64

	lastAck atomic.Int64 // unix nanoseconds
	gap     atomic.Int64 // longest time between two receipts of any producer, nanoseconds
}

// Gap returns the longest time without a receipt since the last call.
func (l *Log) Gap() time.Duration { return time.Duration(l.gap.Swap(0)) }

func (l *Log) acked() {
	l.Acked.Add(1)
	now := time.Now().UnixNano()
	if last := l.lastAck.Swap(now); last > 0 && now-last > l.gap.Load() {
		l.gap.Store(now - last)
	}
}

// Publish sends count messages and waits until each has an outcome. It may be called again for more.
func (p *Producer) Publish(ctx context.Context, producer pulsar.Producer, first, count uint64) {
	for seq := first; seq < first+count && ctx.Err() == nil; seq++ {
		payload := make([]byte, p.Size)
		binary.BigEndian.PutUint64(payload, uint64(p.ID))
		binary.BigEndian.PutUint64(payload[8:], seq)
		p.pending.Add(1)
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: payload}, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			defer p.pending.Done()
			p.receipt(seq, id, err)
		})
	}
	_ = producer.FlushWithCtx(ctx)
	p.pending.Wait()
}

func (p *Producer) receipt(seq uint64, id pulsar.MessageID, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed++
		return
	}
	if int64(seq) <= p.last {
		p.disorder++
	}
	p.last = int64(seq)
	p.acked[seq] = id.String()
	p.log.acked()
}

// NewLog prepares count producers of messages of a size.
func NewLog(topic string, count, size int) *Log {
	l := &Log{Topic: topic}
	l.Add(count, size)
	return l
}

// Add adds producers of another size.
func (l *Log) Add(count, size int) {
	for range count {
		l.Producers = append(l.Producers, &Producer{
			ID: len(l.Producers), Size: max(size, headerSize), acked: map[uint64]string{}, last: -1, log: l,
		})
	}
}

// Failed counts the sends without a receipt.
func (l *Log) Failed() int {
	n := 0
	for _, p := range l.Producers {
		p.mu.Lock()
		n += p.failed
		p.mu.Unlock()
	}
	return n
}

// Seen collects what one subscription received.
type Seen struct {
	mu        sync.Mutex
	next      map[int]uint64 // per producer, the sequence after the last one seen
	seen      map[int]map[uint64]int
	reordered []string
	invalid   int
	count     int
}

// NewSeen returns an empty collection.
func NewSeen() *Seen { return &Seen{next: map[int]uint64{}, seen: map[int]map[uint64]int{}} }

// Count returns how many messages were received, duplicates included.
func (s *Seen) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Message records one message.
func (s *Seen) Message(m pulsar.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	b := m.Payload()
	if len(b) < headerSize {
		s.invalid++
		return
	}
	id, seq := int(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])
	if s.seen[id] == nil {
		s.seen[id] = map[uint64]int{}
	}
	s.seen[id][seq]++
	if seq < s.next[id] && s.seen[id][seq] == 1 && len(s.reordered) < 20 {
		s.reordered = append(s.reordered, fmt.Sprintf("producer %d: %d after %d at %v", id, seq, s.next[id]-1, m.ID()))
	}
	s.next[id] = max(s.next[id], seq+1)
}

// Rules say what a subscription promises.
type Rules struct {
	Ordered    bool // per producer
	Duplicates bool // allowed
}

// Check compares what was received with what was promised and reports every difference.
func (l *Log) Check(s *Seen, r Rules) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.invalid > 0 {
		errs = append(errs, fmt.Errorf("%d messages that nobody sent", s.invalid))
	}
	if r.Ordered && len(s.reordered) > 0 {
		errs = append(errs, fmt.Errorf("out of order: %v", s.reordered))
	}
	for _, p := range l.Producers {
		errs = append(errs, p.check(s.seen[p.ID], r))
	}
	return errors.Join(errs...)
}

func (p *Producer) check(seen map[uint64]int, r Rules) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	if p.disorder > 0 {
		errs = append(errs, fmt.Errorf("producer %d: %d receipts out of order", p.ID, p.disorder))
	}
	lost, twice := 0, 0
	var example string
	for seq, id := range p.acked {
		if seen[seq] == 0 {
			lost++
			example = fmt.Sprintf("%d (%s)", seq, id)
		}
	}
	for seq, n := range seen {
		if n > 1 {
			twice++
			if lost == 0 {
				example = fmt.Sprintf("%d (%s)", seq, p.acked[seq])
			}
		}
	}
	if lost > 0 {
		errs = append(errs, fmt.Errorf("producer %d: %d of %d acknowledged messages lost, such as %s", p.ID, lost, len(p.acked), example))
	}
	if twice > 0 && !r.Duplicates {
		errs = append(errs, fmt.Errorf("producer %d: %d messages received more than once, such as %s", p.ID, twice, example))
	}
	return errors.Join(errs...)
}

// ReadAll reads the topic from its beginning to its present end.
func ReadAll(ctx context.Context, client pulsar.Client, topic string) (*Seen, error) {
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return nil, fmt.Errorf("reader: %w", err)
	}
	defer reader.Close()
	s := NewSeen()
	for reader.HasNext() {
		m, err := reader.Next(ctx)
		if err != nil {
			return s, fmt.Errorf("after %d messages: %w", s.Count(), err)
		}
		s.Message(m)
	}
	return s, nil
}

// poll is how often Drain looks whether others have received the rest.
const poll = 500 * time.Millisecond

// Drain receives and acknowledges until s, which several consumers may share, has seen want messages. It is an error when
// nobody has seen any for the idle time.
func Drain(ctx context.Context, c pulsar.Consumer, s *Seen, want int, idle time.Duration) error {
	seen, since := 0, time.Now()
	for s.Count() < want {
		rctx, cancel := context.WithTimeout(ctx, poll)
		m, err := c.Receive(rctx)
		cancel()
		if n := s.Count(); n > seen {
			seen, since = n, time.Now()
		}
		switch {
		case err != nil && (ctx.Err() != nil || time.Since(since) > idle):
			return fmt.Errorf("%s: %d of %d messages, then none for %v: %w", c.Subscription(), s.Count(), want, time.Since(since), err)
		case err != nil:
			continue
		}
		s.Message(m)
		if err := c.Ack(m); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	return nil
}
