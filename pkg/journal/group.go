package journal

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
)

// Group is the log and the stable values of one Raft group: a view of the journal.
//
// All methods may be called from any goroutine. Changes of one group take effect in the order in which the calls
// queued; a call that returned is seen by all later ones.
type Group struct {
	j  *Journal
	id uint32

	shadow shadow // the writer's

	mu sync.RWMutex
	table
	stable map[string][]byte // values are never changed in place
	ops    uint64            // records ever written for the group; recovery compares it with heads
	lost   *CorruptError     // records were lost, nobody knows which: only Reset heals
	holes  *CorruptError     // the first entry of the log that cannot be read
}

// shadow is what the log will be when the batch that is being gathered is durable, and what is no more in its place.
type shadow struct {
	batch       uint64
	first, last uint64
	dead        uint64   // what had a place from this index on has not any more
	carried     []uint64 // nor have these indexes
	damage      bool     // no appends
	lost        bool     // nothing but Reset
}

// ID returns the group's id.
func (g *Group) ID() uint32 { return g.id }

// FirstIndex returns the first index, 0 when the log is empty.
func (g *Group) FirstIndex() uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.log.first
}

// LastIndex returns the last index, 0 when the log is empty.
func (g *Group) LastIndex() uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.log.last()
}

// Damaged returns the *CorruptError that stopped the group, nil when it is whole. A damaged group answers Get and
// Append with it. When it is known which entries are bad, truncating or compacting them away heals the group; when
// records were lost altogether, only Reset does, and stable values are not to be trusted either.
func (g *Group) Damaged() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.damageLocked()
}

func (g *Group) damageLocked() error {
	switch {
	case g.lost != nil:
		return g.lost
	case g.holes != nil:
		return g.holes
	}
	return nil
}

// Append adds records right after LastIndex (anywhere when the log is empty). They are durable when it returns nil. If
// it returns an error, all of them or none may be found after a restart. It keeps no reference to recs.
func (g *Group) Append(recs []Record) error {
	if len(recs) == 0 {
		return nil
	}
	if err := checkRecords(recs, g.j.opts.MaxRecordSize); err != nil {
		return err
	}
	r := g.j.reqs.get(g, kindEntry)
	r.recs = recs
	return g.j.submit(r)
}

// TruncateSuffix removes the records with index >= from. Durable when it returns.
func (g *Group) TruncateSuffix(from uint64) error { return g.bound(kindTruncate, from) }

// CompactPrefix takes the records with index <= to out of the log. They stay held, under their index, until they are
// released: compact only what is final, and truncate what a leader may yet replace. Durable when it returns.
func (g *Group) CompactPrefix(to uint64) error { return g.bound(kindCompact, to) }

// Reset forgets the log, the stable values and the damage of the group. Records that are held with index <= keep stay
// held, out of the log; all others are forgotten. Durable when it returns.
func (g *Group) Reset(keep uint64) error { return g.bound(kindReset, keep) }

func (g *Group) bound(kind uint8, index uint64) error {
	r := g.j.reqs.get(g, kind)
	r.index = index
	return g.j.submit(r)
}

// SetStable keeps a value under a key. Durable when it returns.
func (g *Group) SetStable(key, val []byte) error {
	if len(key) > maxStableKey || len(val) > maxStableValue {
		return fmt.Errorf("%w: key of %d bytes, value of %d; the limits are %d and %d",
			ErrTooLarge, len(key), len(val), maxStableKey, maxStableValue)
	}
	r := g.j.reqs.get(g, kindStable)
	r.key, r.val = bytes.Clone(key), bytes.Clone(val)
	return g.j.submit(r)
}

// GetStable returns a copy of the value of a key.
func (g *Group) GetStable(key []byte) ([]byte, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.lost != nil {
		return nil, g.lost
	}
	val, ok := g.stable[string(key)]
	if !ok {
		return nil, ErrNotFound
	}
	return append([]byte{}, val...), nil
}

// Place returns where a record is.
func (g *Group) Place(index uint64) (Place, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	p, ok := g.log.at(index)
	if !ok {
		return Place{}, ErrNotFound
	}
	if !p.whole() {
		return Place{}, g.damageLocked()
	}
	return p.public(), nil
}

// admit decides in the writer whether a request takes effect. False with a nil error: there is nothing to do.
func (g *Group) admit(r *request, batch uint64) (bool, error) {
	s := &g.shadow
	if s.batch != batch {
		*s = shadow{
			batch: batch, first: g.log.first, last: g.log.last(), dead: noIndex, carried: s.carried[:0],
			damage: g.lost != nil || g.holes != nil, lost: g.lost != nil,
		}
	}
	if s.lost && r.kind != kindReset || s.damage && r.kind == kindEntry {
		return false, g.Damaged()
	}
	switch r.kind {
	case kindEntry:
		err := s.append(g.id, r.recs)
		return err == nil, err
	case kindTruncate:
		return s.truncate(r.index), nil
	case kindCompact:
		return s.compact(r.index), nil
	case kindReset:
		*s = shadow{batch: batch, dead: min(s.dead, r.index+1), carried: s.carried}
	case kindKeep:
		return g.admitCopies(r)
	}
	return true, nil
}

func (s *shadow) append(group uint32, recs []Record) error {
	if s.first != 0 && recs[0].Index != s.last+1 {
		return fmt.Errorf("%w: group %d got index %d after %d", ErrNotNext, group, recs[0].Index, s.last)
	}
	if s.first == 0 {
		s.first = recs[0].Index
		s.dead = min(s.dead, s.first)
	}
	s.last = recs[len(recs)-1].Index
	return nil
}

func (s *shadow) truncate(from uint64) bool {
	if s.first == 0 || from > s.last {
		return false
	}
	s.dead = min(s.dead, max(from, s.first))
	if s.last = from - 1; from <= s.first {
		s.first, s.last = 0, 0
	}
	return true
}

func (s *shadow) compact(to uint64) bool {
	if s.first == 0 || to < s.first {
		return false
	}
	if s.first = to + 1; to >= s.last {
		s.first, s.last = 0, 0
	}
	return true
}

// publish shows a durable request to readers.
func (g *Group) publish(r *request, segment uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ops += uint64(r.count())
	switch r.kind {
	case kindEntry:
		at := r.at
		for i := range r.recs {
			p := r.recs[i].place(segment, at)
			g.table.append(r.recs[i].Index, p)
			at += int64(p.length)
		}
	case kindKeep:
		g.publishCopiesLocked(r, segment)
	case kindStable:
		g.stable[string(r.key)] = r.val
	default:
		g.applyLocked(r.kind, r.index, positionOf(segment, r.at))
	}
}

// applyLocked carries out what is not an entry or a value; recovery does the same.
func (g *Group) applyLocked(kind uint8, index uint64, at position) {
	switch kind {
	case kindTruncate:
		g.truncate(index, at)
	case kindCompact:
		g.compact(index)
	case kindReset:
		g.reset(index, at)
		clear(g.stable)
		g.ops, g.lost = 0, nil
	}
	if g.holes != nil {
		g.findHolesLocked(*g.holes)
	}
}

// findHolesLocked sets holes for the first entry that cannot be read; seen says where damage was met.
func (g *Group) findHolesLocked(seen CorruptError) {
	g.holes = nil
	index, p, ok := g.log.hole()
	if !ok {
		return
	}
	seen.Group, seen.Index = g.id, index
	if p.segment != 0 {
		seen.Segment, seen.Offset, seen.Reason = uint64(p.segment), int64(p.offset), "checksum of the record"
	}
	g.holes = &seen
}

func sortedKeys(m map[string][]byte) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
