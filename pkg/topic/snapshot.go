package topic

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"geminga/pkg/ledger"
	"geminga/pkg/managedledger"
	"geminga/pkg/metadata"
)

// The deduplication snapshot, the value of metadata.DedupKey:
//
//	version u8 = 1 | ledger uvarint | entry varint | count uvarint | count × producer | crc32c u32 BE of all before
//	producer = len(name) uvarint | name | sequence varint | chunk uvarint | active unix seconds varint
//
// It says what was stored up to and including the position. It may be old: entries behind it are replayed at open.

const (
	snapshotVersion = 1
	snapshotCRC     = 4
	snapshotRetry   = time.Second
	// snapshotMaxBytes keeps a snapshot inside what the metadata takes, whatever the length of names.
	snapshotMaxBytes = metadata.MaxValueSize - 64<<10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshotting is the state of writing snapshots behind the log: one in flight at most.
type snapshotting struct {
	position ledger.Position // of the last entry that the marks cover
	entries  int64           // since the last snapshot
	at       time.Time       // of the last snapshot
	retry    time.Time       // not before, after a failure
	version  int64           // of the metadata key
	writing  bool
	flying   ledger.Position // of the write in flight
	idle     func()          // called when the write in flight has ended
}

func (d *dedup) encode(now time.Time, most int) []byte {
	list := make([]*dedupProducer, 0, len(d.producers))
	for _, p := range d.producers {
		if p.persisted != noMark {
			list = append(list, p)
		}
	}
	if len(list) > most {
		slices.SortFunc(list, func(a, b *dedupProducer) int {
			return cmp.Or(cmp.Compare(min(b.connected, 1), min(a.connected, 1)), b.active.Compare(a.active))
		})
		list = list[:most]
	}
	body := make([]byte, 0, 48*len(list))
	count := 0
	for _, p := range list {
		if len(body)+len(p.name) > snapshotMaxBytes {
			break
		}
		active := p.active
		if p.connected > 0 {
			active = now
		}
		body = binary.AppendUvarint(body, uint64(len(p.name)))
		body = append(body, p.name...)
		body = binary.AppendVarint(body, p.persisted.sequence)
		body = binary.AppendUvarint(body, uint64(p.persisted.chunk))
		body = binary.AppendVarint(body, active.Unix())
		count++
	}
	b := make([]byte, 0, len(body)+40)
	b = append(b, snapshotVersion)
	b = binary.AppendUvarint(b, uint64(d.snapshot.position.Ledger))
	b = binary.AppendVarint(b, int64(d.snapshot.position.Entry))
	b = binary.AppendUvarint(b, uint64(count))
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (d *dedup) decode(b []byte) error {
	if len(b) < 1+snapshotCRC || b[0] != snapshotVersion {
		return fmt.Errorf("%w: %d bytes", ErrBadSnapshot, len(b))
	}
	body, sum := b[:len(b)-snapshotCRC], binary.BigEndian.Uint32(b[len(b)-snapshotCRC:])
	if crc32.Checksum(body, castagnoli) != sum {
		return fmt.Errorf("%w: checksum", ErrBadSnapshot)
	}
	r := varints{b: body[1:]}
	d.snapshot.position = ledger.Position{Ledger: ledger.ID(r.unsigned()), Entry: ledger.EntryID(r.signed())}
	for count := r.unsigned(); count > 0 && !r.bad; count-- {
		name := r.text()
		m := mark{r.signed(), int32(r.unsigned())}
		active := time.Unix(r.signed(), 0)
		if r.bad {
			break
		}
		d.producers[name] = &dedupProducer{name: name, pushed: m, persisted: m, active: active}
	}
	if r.bad || len(r.b) != 0 {
		return fmt.Errorf("%w: %d bytes left", ErrBadSnapshot, len(r.b))
	}
	return nil
}

// varints reads numbers until the input is bad.
type varints struct {
	b   []byte
	bad bool
}

func (r *varints) unsigned() uint64 {
	v, n := binary.Uvarint(r.b)
	return v * uint64(r.skip(n))
}

func (r *varints) signed() int64 {
	v, n := binary.Varint(r.b)
	return v * int64(r.skip(n))
}

// skip moves on by n bytes and returns 1, or marks the input bad and returns 0.
func (r *varints) skip(n int) int {
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return 1
}

func (r *varints) text() string {
	n := r.unsigned()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// recoverDedup loads the snapshot and replays the entries behind it. done on the topic's executor.
func (t *Topic) recoverDedup(done func(error)) {
	if !t.opts.BrokerDeduplicationEnabled {
		done(nil)
		return
	}
	t.dedup = newDedup()
	t.dedup.snapshot.at = time.Now()
	t.env.Ledger.Store.Get(metadata.DedupKey(t.key), func(it metadata.Item, err error) {
		t.exec.PostFunc(func() { t.loadDedup(it, err, done) })
	})
}

func (t *Topic) loadDedup(it metadata.Item, err error, done func(error)) {
	if err != nil {
		done(err)
		return
	}
	d := t.dedup
	d.snapshot.position, d.snapshot.version = ledger.Earliest, it.Version
	if it.Version != 0 {
		if err := d.decode(it.Value); err != nil {
			t.env.Logger.Warn("deduplication snapshot is damaged, reading the whole topic instead", "error", err)
			*d = *newDedup()
			d.snapshot = snapshotting{position: ledger.Earliest, version: it.Version, at: time.Now()}
		}
	}
	t.log.Hold(d.snapshot.position)
	last := t.log.LastConfirmed()
	if last.Entry == ledger.NoEntry || !d.snapshot.position.Less(last) {
		d.snapshot.position = last
		done(nil)
		return
	}
	t.log.OpenCursor(managedledger.CursorOptions{
		Name: dedupCursor, Initial: d.snapshot.position, Executor: t.exec,
	}, func(c *managedledger.Cursor, err error) {
		if err != nil {
			done(err)
			return
		}
		t.replayDedup(c, done)
	})
}

// dedupCursor is the name of the cursor that replays; it lives while the topic opens.
const dedupCursor = "geminga.dedup.replay"

func (t *Topic) replayDedup(c *managedledger.Cursor, done func(error)) {
	if !c.HasMore() {
		t.dedup.snapshot.position = t.log.LastConfirmed()
		c.Close(done)
		return
	}
	c.Read(ledger.Limits{Entries: 1000, Bytes: 4 << 20}, func(entries []ledger.Entry, err error) {
		now := time.Now()
		for i := range entries {
			t.dedup.recovered(entries[i].Payload.Data, now)
			t.dedup.snapshot.entries++
			entries[i].Payload.Release()
		}
		if err != nil {
			c.Close(func(error) { done(err) })
			return
		}
		t.replayDedup(c, done)
	})
}

// snapshotDedup counts entries and starts a snapshot when it is due.
func (t *Topic) snapshotDedup(entries int64, now time.Time) {
	s := &t.dedup.snapshot
	s.position = t.pub.last
	s.entries += entries
	o := t.opts
	if s.entries >= int64(o.BrokerDeduplicationEntriesInterval) || now.Sub(s.at) >= o.BrokerDeduplicationSnapshotInterval {
		t.writeSnapshot(now)
	}
}

func (t *Topic) writeSnapshot(now time.Time) {
	s := &t.dedup.snapshot
	if s.writing || s.entries == 0 || now.Before(s.retry) {
		return
	}
	t.dedup.forget(now.Add(-t.opts.BrokerDeduplicationProducerInactivityTimeout))
	covered := s.entries
	s.flying = s.position
	s.writing, s.entries, s.at = true, 0, now
	key := metadata.DedupKey(t.key)
	value := t.dedup.encode(now, t.opts.BrokerDeduplicationMaxNumberOfProducers)
	txn := metadata.Txn{}.If(key, s.version).Then(metadata.Put(key, value))
	t.commitSnapshot(txn, func(o metadata.Outcome, err error) {
		t.exec.PostFunc(func() { t.snapshotWritten(covered, o, err) })
	})
}

// commitSnapshot commits the transaction that puts a snapshot. One whose outcome nobody knows may still be carried out
// after the topic has been deleted. Versions never repeat, so that only the first snapshot, whose condition is that there is
// none, could then come back and make a new topic drop messages: it also has the condition that the topic's record is as
// this owner left it.
func (t *Topic) commitSnapshot(txn metadata.Txn, done func(metadata.Outcome, error)) {
	store := t.env.Ledger.Store
	if t.dedup.snapshot.version != 0 {
		store.Commit(txn, done)
		return
	}
	store.Get(t.key, func(it metadata.Item, err error) {
		if err == nil {
			err = t.isOurs(it)
		}
		if err != nil {
			done(metadata.Outcome{}, err)
			return
		}
		store.Commit(txn.If(t.key, it.Version), done)
	})
}

// isOurs reports whether a topic's record is of this owner. Any goroutine.
func (t *Topic) isOurs(it metadata.Item) error {
	if it.Version == 0 {
		return managedledger.ErrLost
	}
	info, err := managedledger.DecodeInfo(it.Value)
	if err == nil && info.Epoch != t.env.Ledger.Epoch {
		err = fmt.Errorf("%w: epoch %d", managedledger.ErrLost, info.Epoch)
	}
	return err
}

// snapshotWritten learns the version of the key. If that is not known, it is read: a snapshot of an older owner may
// have arrived late, which does no harm but changes the version.
func (t *Topic) snapshotWritten(covered int64, o metadata.Outcome, err error) {
	s := &t.dedup.snapshot
	if err == nil && o.Err == nil {
		s.version = o.Versions[0]
		t.log.Hold(s.flying) // what lies behind is replayed when the topic is opened again
		t.snapshotIdle()
		return
	}
	s.entries += covered
	s.retry = time.Now().Add(snapshotRetry)
	t.env.Logger.Debug("deduplication snapshot not written", "error", errors.Join(err, o.Err))
	t.env.Ledger.Store.Get(metadata.DedupKey(t.key), func(it metadata.Item, err error) {
		t.exec.PostFunc(func() {
			if err == nil {
				s.version = it.Version
			}
			t.snapshotIdle()
		})
	})
}

func (t *Topic) snapshotIdle() {
	s := &t.dedup.snapshot
	s.writing = false
	if idle := s.idle; idle != nil {
		s.idle = nil
		idle()
	}
}
