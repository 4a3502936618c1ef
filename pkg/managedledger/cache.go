package managedledger

import (
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// CacheOptions are the settings of a Cache.
type CacheOptions struct {
	Bytes         int64                // managedLedgerCacheSizeMB; default 64 MiB
	CopyEntries   bool                 // managedLedgerCacheCopyEntries
	TTL           time.Duration        // managedLedgerCacheEvictionTimeThresholdMillis; default 1 s
	Watermark     float64              // managedLedgerCacheEvictionWatermark; default 0.9
	MeterProvider metric.MeterProvider // default: not measured
}

// EnsureDefaults fills what is zero.
func (o *CacheOptions) EnsureDefaults() {
	def(&o.Bytes, 64<<20)
	def(&o.TTL, time.Second)
	def(&o.Watermark, 0.9)
}

// Cache holds recent entries of all managed ledgers of a broker within one budget. Any goroutine may call it.
//
// Entries are kept in blocks of 64 neighbours; blocks are evicted whole, in the order in which they were made: from the
// head while the oldest is past its time, and from the head until the size is below the watermark when the budget is
// exceeded. A block that has got entries lately, or that readers are expected to come to, goes to the tail once more
// instead. A block costs one map lookup per 64 entries and no allocation once blocks come back; a map of entries would
// cost one of each per entry.
//
// A reader that is slower than the producers for a while must not fall out of the cache for that: it would have to read
// everything back from the bookies from then on, which is slower still. So entries that a cursor which reads has not come
// to yet get their time maxExtensions times over, as in Pulsar, as long as half of the budget is free.
//
// References. Every entry is in at most these hands, each with its own reference to the payload:
//
//	the ring       from Add until Listener.Completed has returned
//	the storage    from Bookies.Append until the entry is acknowledged or abandoned
//	a block        from insert until the block is evicted (or a private copy, which nobody counts)
//	a reader       from lookup, or Bookies.Read, until it releases the entry
//
// A lookup retains under the shard's lock. The block's own reference cannot go away meanwhile, because eviction takes
// the block out of the map under the same lock and releases only what it has taken out. So a payload is never retained
// from zero, and what a reader holds stays valid whatever the cache does.
//
// The policy "reference or copy" is one flag here, read at each insert: what is cached already stays as it is.
//
// Locks: one per shard, a leaf. No lock is held while another is taken, nor while payloads are released.
type Cache struct {
	options CacheOptions
	copying atomic.Bool
	bytes   atomic.Int64
	entries atomic.Int64
	counts  cacheCounts
	shards  [cacheShards]shard
	free    sync.Pool   // *block
	epoch   time.Time   // block times count from here
	armed   atomic.Bool // a sweep is scheduled
	metrics metric.Registration
}

type cacheCounts struct{ hits, misses, hitBytes, inserted, evicted atomic.Int64 }

const (
	cacheShards = 32
	blockSize   = 64

	maxExtensions = 5 // managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes of Pulsar
)

type shard struct {
	mu         sync.Mutex // guards all below
	blocks     map[blockKey]*block
	head, tail *block   // in the order of making
	_          [64]byte // own cache line
}

type blockKey struct {
	ledger ledger.ID
	number int64 // entry / blockSize
}

// block holds up to 64 neighbouring entries; payloads[i] is there when bit i of present is set.
type block struct {
	key      blockKey
	next     *block
	made     time.Duration // or put to the tail again
	touched  time.Duration // got its latest entry
	present  uint64
	bytes    int64
	expected int // reads of entries that are still to come
	extended int // how often it went to the tail for them
	payloads [blockSize]ledger.Payload
}

// NewCache returns an empty cache.
func NewCache(o CacheOptions) (*Cache, error) {
	o.EnsureDefaults()
	c := &Cache{options: o, epoch: time.Now()}
	c.copying.Store(o.CopyEntries)
	c.free.New = func() any { return new(block) }
	for i := range c.shards {
		c.shards[i].blocks = make(map[blockKey]*block)
	}
	var err error
	c.metrics, err = c.register(o.MeterProvider)
	return c, err
}

// SetCopyEntries changes what inserts do from now on: keep a copy, or a reference to the memory that the entry came in.
func (c *Cache) SetCopyEntries(copying bool) { c.copying.Store(copying) }

// Bytes returns the payload bytes cached.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// Entries returns the number of entries cached.
func (c *Cache) Entries() int64 { return c.entries.Load() }

// Close evicts everything.
func (c *Cache) Close() {
	for i := range c.shards {
		c.release(c.shards[i].take(func(*block) verdict { return evict }))
	}
	if c.metrics != nil {
		_ = c.metrics.Unregister() // cannot fail but by being unregistered already
	}
}

// Sweep evicts what is past its time. It runs by itself on an executor of those who insert, as long as there is anything.
func (c *Cache) Sweep() {
	now := c.now()
	oldest := now - c.options.TTL
	for i := range c.shards {
		c.release(c.shards[i].take(func(b *block) verdict {
			switch {
			case b.made > oldest:
				return stop
			case b.touched > oldest:
				b.made = now
				return requeue
			case b.expected > 0 && b.extended < maxExtensions && c.bytes.Load() <= c.options.Bytes/2:
				b.made = now
				b.extended++
				return requeue
			}
			return evict
		}))
	}
}

// arm sees to it that a sweep is scheduled while there are entries.
//
//	sweep                          insert
//	1 finds no entries             1 adds an entry
//	2 armed = false                2 sees armed true: leaves it to the sweep
//	3 looks again: arms, if there
func (c *Cache) arm(on *executor.Executor) {
	if !c.armed.Load() && c.armed.CompareAndSwap(false, true) {
		c.schedule(on)
	}
}

func (c *Cache) schedule(on *executor.Executor) {
	on.After(max(c.options.TTL/4, time.Millisecond), executor.Func(func() {
		c.Sweep()
		if c.entries.Load() > 0 {
			c.schedule(on)
			return
		}
		c.armed.Store(false)
		if c.entries.Load() > 0 {
			c.arm(on)
		}
	}))
}

func (c *Cache) shard(id ledger.ID) *shard {
	return &c.shards[uint64(id)*0x9E3779B97F4A7C15>>59] // top 5 bits: 32 shards
}

func (c *Cache) now() time.Duration { return time.Since(c.epoch) }

// recently is the time before which entries are in the cache no more, whoever may still come to them.
func (c *Cache) recently() time.Duration { return c.now() - (maxExtensions+1)*c.options.TTL }

// insert keeps entries first, first+1… of a ledger, each of which so many readers will come to. The caller's executor will
// do the sweeping if nobody does.
func (c *Cache) insert(on *executor.Executor, id ledger.ID, first ledger.EntryID, payloads []ledger.Payload, readers int) {
	if c.copying.Load() {
		payloads = copied(payloads)
	}
	s, now := c.shard(id), c.now()
	var bytes, entries int64
	s.mu.Lock()
	var b *block
	for i, p := range payloads {
		e := int64(first) + int64(i)
		if b == nil || b.key.number != e/blockSize {
			b = s.block(blockKey{id, e / blockSize}, c, now)
		}
		bit := uint64(1) << (e % blockSize)
		if b.present&bit != 0 {
			continue
		}
		p.Retain()
		b.touched = now
		b.payloads[e%blockSize] = p
		b.present |= bit
		b.bytes += int64(len(p.Data))
		b.expected += readers
		bytes += int64(len(p.Data))
		entries++
	}
	s.mu.Unlock()
	c.counts.inserted.Add(entries)
	c.entries.Add(entries)
	if c.bytes.Add(bytes) > c.options.Bytes {
		c.shrink(s)
	}
	c.arm(on)
}

// copied puts copies of all payloads into one piece of collected memory.
func copied(payloads []ledger.Payload) []ledger.Payload {
	size := 0
	for _, p := range payloads {
		size += len(p.Data)
	}
	memory := make([]byte, 0, size)
	out := make([]ledger.Payload, len(payloads))
	for i, p := range payloads {
		at := len(memory)
		memory = append(memory, p.Data...)
		out[i].Data = memory[at:len(memory):len(memory)]
	}
	return out
}

// block returns the block, made if need be. The shard is locked.
func (s *shard) block(key blockKey, c *Cache, now time.Duration) *block {
	if b := s.blocks[key]; b != nil {
		return b
	}
	b := c.free.Get().(*block)
	b.key, b.made = key, now
	s.blocks[key] = b
	s.append(b)
	return b
}

func (s *shard) append(b *block) {
	b.next = nil
	if s.tail == nil {
		s.head = b
	} else {
		s.tail.next = b
	}
	s.tail = b
}

// shrink evicts down to the watermark: from the shard that has just grown, then from the others, since a budget that is
// exceeded by a quiet shard's leftovers must not starve a busy one.
func (c *Cache) shrink(s *shard) {
	target := int64(float64(c.options.Bytes) * c.options.Watermark)
	first := 0
	for i := range c.shards {
		if &c.shards[i] == s {
			first = i
		}
	}
	for i := range c.shards {
		excess := c.bytes.Load() - target
		if excess <= 0 {
			return
		}
		c.release(c.shards[(first+i)%cacheShards].take(func(b *block) verdict {
			if excess <= 0 {
				return stop
			}
			excess -= b.bytes
			return evict
		}))
	}
}

// verdict is what becomes of a block at the head.
type verdict int

const (
	stop verdict = iota
	evict
	requeue
)

// take goes over the blocks from the head until told to stop, and returns the evicted ones as a list.
func (s *shard) take(judge func(*block) verdict) (taken *block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.head != nil {
		b := s.head
		v := judge(b)
		if v == stop {
			break
		}
		if s.head = b.next; s.head == nil {
			s.tail = nil
		}
		if v == requeue {
			s.append(b)
			continue
		}
		delete(s.blocks, b.key)
		b.next, taken = taken, b
	}
	return taken
}

// release gives back the payloads of blocks that were taken out of their shard, and the blocks.
func (c *Cache) release(list *block) {
	var bytes, entries int64
	for b := list; b != nil; {
		next := b.next
		bytes += b.bytes
		for i := range b.payloads {
			if b.present&(1<<i) != 0 {
				b.payloads[i].Release()
				entries++
			}
		}
		*b = block{}
		c.free.Put(b)
		b = next
	}
	c.bytes.Add(-bytes)
	c.entries.Add(-entries)
	c.counts.evicted.Add(entries)
}

// expect says that entries will be read once more.
func (c *Cache) expect(ps []ledger.Position) {
	c.visit(ps, func(b *block, p ledger.Position) bool {
		if b != nil && b.present&(1<<(p.Entry%blockSize)) != 0 {
			b.expected++
		}
		return true
	})
}

// visit calls f with each position's block, nil if there is none, under the lock of its shard, until f returns false. A
// block is looked for once if its positions lie side by side.
func (c *Cache) visit(ps []ledger.Position, f func(*block, ledger.Position) bool) {
	var locked *shard
	var b *block
	for _, p := range ps {
		key := blockKey{p.Ledger, int64(p.Entry) / blockSize}
		if s := c.shard(p.Ledger); s != locked {
			if locked != nil {
				locked.mu.Unlock()
			}
			s.mu.Lock()
			locked, b = s, nil
		}
		if b == nil || b.key != key {
			b = locked.blocks[key]
		}
		if !f(b, p) {
			break
		}
	}
	if locked != nil {
		locked.mu.Unlock()
	}
}

// lookupAt appends the entries at positions up to the first one that is not there, each with a reference for the reader.
func (c *Cache) lookupAt(out []ledger.Entry, ps []ledger.Position) []ledger.Entry {
	was, size := len(out), 0
	c.visit(ps, func(b *block, p ledger.Position) bool {
		at := p.Entry % blockSize
		if b == nil || b.present&(1<<at) == 0 {
			return false
		}
		payload := b.payloads[at]
		size += len(payload.Data)
		b.expected = max(0, b.expected-1)
		payload.Retain()
		out = append(out, ledger.Entry{Position: p, Payload: payload})
		return true
	})
	c.counts.hits.Add(int64(len(out) - was))
	c.counts.hitBytes.Add(int64(size))
	return out
}

// span is a range of entries of one ledger to look up, within limits.
type span struct {
	ledger ledger.ID
	first  ledger.EntryID
	max    ledger.Limits
	whole  bool // the first entry counts against max.Bytes as well
}

// lookup appends the entries that are there side by side from first on, each with a reference for the reader. Unless
// whole is set, the first is given however large it is.
func (c *Cache) lookup(out []ledger.Entry, want span) []ledger.Entry {
	s, was := c.shard(want.ledger), len(out)
	size := 0
	s.mu.Lock()
	var b *block
	for i := range want.max.Entries {
		e := int64(want.first) + int64(i)
		if b == nil || e%blockSize == 0 {
			if b = s.blocks[blockKey{want.ledger, e / blockSize}]; b == nil {
				break
			}
		}
		if b.present&(1<<(e%blockSize)) == 0 {
			break
		}
		p := b.payloads[e%blockSize]
		if size+len(p.Data) > want.max.Bytes && (i > 0 || want.whole) {
			break
		}
		size += len(p.Data)
		b.expected = max(0, b.expected-1)
		p.Retain()
		out = append(out, ledger.Entry{Position: ledger.Position{Ledger: want.ledger, Entry: ledger.EntryID(e)}, Payload: p})
	}
	s.mu.Unlock()
	c.counts.hits.Add(int64(len(out) - was))
	c.counts.hitBytes.Add(int64(size))
	return out
}
