package managedledger

import (
	"time"

	"go.opentelemetry.io/otel/metric"

	"geminga/pkg/executor"
	"geminga/pkg/ledger"
)

// ManagedLedger is one endless log out of many ledgers. All methods on the topic's executor unless said.
type ManagedLedger struct{}

// Open recovers or creates the managed ledger kept under the metadata key; done comes on env.Executor, never inline.
// An error that is ErrLost says that a newer owner exists; after any other Open may be tried again.
func Open(env Env, key string, opts Options, done func(*ManagedLedger, error)) {}

// Name returns the metadata key. Any goroutine.
func (m *ManagedLedger) Name() string { return "" }

// Add appends ops in order. It retains the payloads itself; the slice is the caller's again.
func (m *ManagedLedger) Add(ops []Op) {}

// Pending returns the number of ops not completed.
func (m *ManagedLedger) Pending() int { return 0 }

// LastConfirmed returns the position of the last readable entry; Entry is ledger.NoEntry when the topic is empty. Any goroutine.
func (m *ManagedLedger) LastConfirmed() ledger.Position { return ledger.Position{} }

// First returns the position of the first entry that exists, or will exist. Any goroutine.
func (m *ManagedLedger) First() ledger.Position { return ledger.Position{} }

// Next returns the first valid position after p. Any goroutine.
func (m *ManagedLedger) Next(p ledger.Position) ledger.Position { return ledger.Position{} }

// CursorOptions describe a cursor to open.
type CursorOptions struct {
	Name      string
	Durable   bool
	Initial   ledger.Position // for a new cursor: ledger.Earliest, ledger.Latest or explicit
	Inclusive bool            // of an explicit Initial: the first entry to read, not the last one to skip
	Executor  *executor.Executor
}

// OpenCursor opens, recovers or creates a cursor. done comes on the cursor's executor, never inline.
func (m *ManagedLedger) OpenCursor(o CursorOptions, done func(*Cursor, error)) {}

// DeleteCursor removes a durable cursor for good, open or not. done on the topic's executor.
func (m *ManagedLedger) DeleteCursor(name string, done func(error)) {}

// Cursors returns the names of the durable cursors.
func (m *ManagedLedger) Cursors() []string { return nil }

// Close finishes pending ops (bounded by CloseTimeout), closes the ledger and answers. Close cursors before.
func (m *ManagedLedger) Close(done func(error)) {}

// Delete removes the topic's ledgers, cursors and records. Close cursors before.
func (m *ManagedLedger) Delete(done func(error)) {}

// Stats describe a managed ledger.
type Stats struct {
	Ledgers       int
	Entries       int64
	Bytes         int64 // as far as known
	LastConfirmed ledger.Position
	Pending       int
	Current       ledger.Ref
	Rollovers     int // on trouble
}

// Stats returns figures.
func (m *ManagedLedger) Stats() Stats { return Stats{} }

// Cursor is a reader's place. All methods on its executor, which may differ from the topic's.
type Cursor struct{}

// Name, Durable, Executor: any goroutine.
func (c *Cursor) Name() string  { return "" }
func (c *Cursor) Durable() bool { return false }

// Read reads on from the read position, skipping deleted entries, at most max, never beyond LastConfirmed. With nothing
// there it waits until there is. One at a time. done may be called before Read returns (when the cache has the entries);
// a Read called inside done starts when done has returned, so there is no recursion. The slice is valid during done;
// every entry carries one reference for the receiver.
func (c *Cursor) Read(max ledger.Limits, done func([]ledger.Entry, error)) {}

// CancelRead withdraws a Read that waits for entries; true means done will not be called. A read under way is not
// cancelled: its done comes.
func (c *Cursor) CancelRead() bool { return false }

// Reading reports that done of a Read is outstanding.
func (c *Cursor) Reading() bool { return false }

// ReadAt reads the entries at positions (ascending), without those deleted or gone. It may return fewer than there are
// after a failure: ask again for what is missing. Never inline? may be inline; several may be under way.
func (c *Cursor) ReadAt(positions []ledger.Position, done func([]ledger.Entry, error)) {}

// MarkDelete deletes everything up to and including p. done (nil allowed) comes when that is durable, on the cursor's executor.
func (c *Cursor) MarkDelete(p ledger.Position, done func(error)) {}

// Delete deletes single entries. done as in MarkDelete.
func (c *Cursor) Delete(ps []ledger.Position, done func(error)) {}

// MarkDeleted returns the position up to which everything is deleted.
func (c *Cursor) MarkDeleted() ledger.Position { return ledger.Position{} }

// ReadPosition returns the next position to read.
func (c *Cursor) ReadPosition() ledger.Position { return ledger.Position{} }

// IsDeleted reports whether the entry is deleted.
func (c *Cursor) IsDeleted(p ledger.Position) bool { return false }

// Rewind sets the read position behind the mark-delete position.
func (c *Cursor) Rewind() {}

// Seek makes p the next position to read and forgets all later deletions. done when durable.
func (c *Cursor) Seek(p ledger.Position, done func(error)) {}

// Backlog returns the entries that are confirmed and not deleted.
func (c *Cursor) Backlog() int64 { return 0 }

// HasMore reports that a Read would return entries at once.
func (c *Cursor) HasMore() bool { return false }

// Close stores the state and ends the cursor; a waiting Read is dropped without done.
func (c *Cursor) Close(done func(error)) {}

// Cache holds recent entries of all topics of a broker.
type Cache struct{}

// CacheOptions of a Cache.
type CacheOptions struct {
	Bytes         int64         // managedLedgerCacheSizeMB; default 64 MiB
	CopyEntries   bool          // managedLedgerCacheCopyEntries; SetCopyEntries changes it
	TTL           time.Duration // managedLedgerCacheEvictionTimeThresholdMillis; default 1 s
	Watermark     float64       // managedLedgerCacheEvictionWatermark; default 0.9
	MeterProvider metric.MeterProvider
}

// NewCache returns an empty cache.
func NewCache(o CacheOptions) *Cache { return &Cache{} }

// SetCopyEntries changes the policy for future inserts. Any goroutine.
func (c *Cache) SetCopyEntries(bool) {}

// Bytes returns the size of what is cached. Any goroutine.
func (c *Cache) Bytes() int64 { return 0 }

// Metrics are the instruments of all managed ledgers of a broker.
type Metrics struct{}

// NewMetrics makes them.
func NewMetrics(p metric.MeterProvider) (*Metrics, error) { return &Metrics{}, nil }
