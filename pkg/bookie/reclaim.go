package bookie

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
	"geminga/pkg/vfs"
)

const (
	// reclaimShare is the part of a segment that must be live for it to be left alone: copying three bytes gives one back.
	reclaimShare = 0.75
	// hurriedShare is the same while writers wait for space. Ledgers that were written at one time lie side by side in every
	// segment, so what is deleted of them may leave each above the usual share, and the disk full. More would be copying
	// in vain: a batch that does not fit leaves the end of a segment empty.
	hurriedShare = 0.85
	// reclaimBatch is about how many bytes are copied at once, and reclaimPart the part of a segment that it is at most: what
	// does not fit any more leaves the end of a segment empty.
	reclaimBatch, reclaimPart = 1 << 20, 16
	// recordOverhead is what a kept record takes of a segment beside its entries, and pieceOverhead each piece of it, which
	// has the header of its command: see rebuild.
	recordOverhead, pieceOverhead = 48, 8 + ledger.AppendHeaderLen
)

// holder is a group whose records lie in the journal.
type holder struct {
	group  *journal.Group
	view   func() *fsmState   // nil: its ledgers are not known here, so all that it holds is needed
	repair func(index uint64) // a damaged record was met
}

// space gives the segments back that nothing needs.
//
//	mark     kept record, no ledger has entries in it ─▶ released
//	         the rest, by segment ─▶ live bytes
//	sweep    nothing live ─▶ recycled
//	         little live ─▶ copied to the end of the journal, without what no ledger needs, then recycled
//
// A ledger's entries go only because the machine has applied its deletion, which is committed. What is needed of the
// records up to the applied index only ever shrinks, so a state that is a little old keeps too much, never too little.
// A copy is durable before the original goes; a crash in between leaves both.
//
// Log records are needed as a whole, whatever became of their ledgers. Snapshots make kept ones of them: see squeeze.
type space struct {
	journal *journal.Journal
	fs      vfs.FS
	dir     string // of the journal
	rate    int64  // bytes a second that are copied
	share   float64
	batch   int64 // bytes that are copied at once
	log     *slog.Logger
}

// swept is what a round did.
type swept struct {
	released int   // records
	segments int   // recycled
	copied   int64 // bytes
}

// sweep is one round. An error says why not all was done that could be; what was done is done.
func (s *space) sweep(ctx context.Context, holders []holder) (swept, error) {
	var out swept
	live := map[uint64]int64{}
	var errs []error
	for _, h := range holders {
		n, err := h.mark(live)
		out.released += n
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return out, err // what is live is not known
	}
	numbers := s.journal.Segments()
	var sparse []uint64
	share := map[uint64]float64{}
	for _, n := range numbers[:max(len(numbers)-1, 0)] {
		size, err := s.size(n)
		if err != nil {
			return out, err
		}
		if share[n] = float64(live[n]) / float64(size); share[n] < s.share {
			sparse = append(sparse, n)
		}
	}
	slices.SortFunc(sparse, func(a, b uint64) int { return cmp.Compare(share[a], share[b]) })
	for _, n := range sparse {
		if live[n] > 0 {
			copied, err := s.evacuate(ctx, n, holders)
			if out.copied += copied; err != nil {
				return out, err
			}
		}
		switch err := s.journal.Recycle(n); {
		case err == nil:
			out.segments++
		case errors.Is(err, journal.ErrInUse): // what is damaged, or came meanwhile, stays: a later round sees it
		default:
			return out, err
		}
	}
	return out, nil
}

func (s *space) size(segment uint64) (size int64, err error) {
	f, err := s.fs.Open(filepath.Join(s.dir, journal.SegmentName(segment)))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err = f.Size()
	return max(size, 1), err
}

// mark releases what nothing needs and adds up the rest by segment. It returns how many records were released. In memory
// are four bytes for each record.
func (h *holder) mark(live map[uint64]int64) (int, error) {
	applied, needed, err := h.weigh(0)
	if err != nil {
		return 0, err
	}
	var dead []uint64
	h.group.Held(func(r journal.Held) bool {
		switch n := needed.of(r.Index); {
		case r.InLog || r.Index > applied:
			live[r.Place.Segment] += int64(r.Place.Length)
		case n == 0:
			dead = append(dead, r.Index)
		default:
			live[r.Place.Segment] += min(n+recordOverhead, int64(r.Place.Length))
		}
		return true
	})
	h.group.Release(dead)
	return len(dead), nil
}

// weigh adds up what the ledgers need of each record from an index on, up to the one that it returns. Above that all is needed.
func (h *holder) weigh(low uint64) (applied uint64, needed weights, err error) {
	needed = weights{}
	if h.view == nil {
		return 0, needed, nil
	}
	state := h.view()
	err = state.each(low, func(_ ledger.ID, r run) error {
		needed.add(r.index, int64(r.length)+pieceOverhead)
		return nil
	})
	return state.applied, needed, err
}

// neededBytes is what a record takes that has only what is needed.
func neededBytes(needs []need) int64 {
	n := int64(recordOverhead)
	for i := range needs {
		n += int64(needs[i].run.length) + pieceOverhead
	}
	return n
}

// evacuate copies what is live in a segment to the end of the journal.
func (s *space) evacuate(ctx context.Context, segment uint64, holders []holder) (int64, error) {
	total := int64(0)
	for i := range holders {
		moves, prunes, err := holders[i].live(segment)
		if err != nil {
			return total, err
		}
		n, err := s.copy(ctx, &holders[i], moves, prunes)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// live says what is needed in a segment: records as a whole, and pieces of others.
func (h *holder) live(segment uint64) (moves []journal.Held, prunes [][]need, err error) {
	var state *fsmState
	if h.view != nil {
		state = h.view()
	}
	parts := map[uint64]journal.Held{}
	h.group.Held(func(r journal.Held) bool {
		switch {
		case r.Place.Segment != segment:
		case state == nil, r.InLog, r.Index > state.applied:
			moves = append(moves, r)
		default:
			parts[r.Index] = r
		}
		return true
	})
	if len(parts) == 0 {
		return moves, nil, nil
	}
	var needs []need
	err = state.each(slices.Min(slices.Collect(maps.Keys(parts))), func(id ledger.ID, r run) error {
		if _, ok := parts[r.index]; ok {
			needs = append(needs, need{id, r})
		}
		return nil
	})
	for _, l := range lacksOf(needs) {
		if r := parts[l.index]; neededBytes(l.needs) >= int64(r.Place.Length) {
			moves = append(moves, r)
		} else {
			prunes = append(prunes, l.needs)
		}
	}
	return moves, prunes, err
}

// copy writes records again, whole ones and those of which parts are needed.
func (s *space) copy(ctx context.Context, h *holder, moves []journal.Held, prunes [][]need) (int64, error) {
	total := int64(0)
	for len(moves) > 0 {
		n, size := 0, int64(0)
		for n < len(moves) && (n == 0 || size < s.batch) {
			size += int64(moves[n].Place.Length)
			n++
		}
		if err := h.intact(h.group.Move(moves[:n])); err != nil {
			return total, err
		}
		moves = moves[n:]
		if total += size; s.pace(ctx, size) != nil {
			return total, ctx.Err()
		}
	}
	for len(prunes) > 0 {
		var list []journal.Kept
		size := int64(0)
		for len(prunes) > 0 && size < s.batch {
			k, err := h.prune(prunes[0])
			switch {
			case err == nil:
				list = append(list, k)
				size += int64(len(k.Data))
			case !isLost(err):
				return total, err
			}
			prunes = prunes[1:]
		}
		if err := h.group.Keep(list); err != nil {
			return total, err
		}
		if total += size; s.pace(ctx, size) != nil {
			return total, ctx.Err()
		}
	}
	return total, nil
}

func (s *space) pace(ctx context.Context, size int64) error {
	return pause(ctx, time.Duration(float64(size)/float64(s.rate)*float64(time.Second)))
}

// intact passes errors on, but for damage, all of which is reported.
func (h *holder) intact(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, e := range joined.Unwrap() {
			rest = append(rest, h.intact(e))
		}
		return errors.Join(rest...)
	}
	var why *journal.CorruptError
	if !errors.As(err, &why) {
		return err
	}
	if h.repair != nil {
		h.repair(why.Index)
	}
	return nil
}

// prune reads what is needed of a record.
func (h *holder) prune(needs []need) (journal.Kept, error) {
	k := journal.Kept{Index: needs[0].run.index}
	for i := range needs {
		p := needs[i].run.command()
		b, err := h.group.ReadPiece(k.Index, p, nil)
		if errors.Is(err, journal.ErrNotFound) { // it was fetched from another replica, which sends bodies only
			p = needs[i].run.piece()
			b, err = h.group.ReadPiece(k.Index, p, nil)
		}
		if errors.Is(err, journal.ErrCorrupt) && h.repair != nil {
			h.repair(k.Index)
		}
		if err != nil {
			return k, err
		}
		k.Pieces, k.Data = append(k.Pieces, p), append(k.Data, b...)
	}
	return k, nil
}

// hurriedReclaim is how often it is looked for space to give back while writers wait for it.
const hurriedReclaim = time.Second

// reclaim gives space back, round after round, until the bookie closes.
func (b *Bookie) reclaim() {
	seen, thorough, last := uint64(0), false, time.Now()
	for pause(b.ctx, min(b.opts.ReclaimInterval, hurriedReclaim)) == nil {
		full := b.intake.full.Load()
		if !full && time.Since(last) < b.opts.ReclaimInterval {
			continue
		}
		last = time.Now()
		now := b.groups.changes()
		if now == seen && (thorough || !full) {
			continue // nothing was deleted, nothing left a log
		}
		if err := b.reclaimOnce(b.ctx, full); err != nil {
			if b.ctx.Err() == nil {
				b.log.Warn("not all space that is free could be given back; it is tried again", "error", err)
			}
			continue
		}
		seen, thorough = now, full
	}
}

// reclaimOnce is one round. A hurried one copies more for the same space.
func (b *Bookie) reclaimOnce(ctx context.Context, hurried bool) error {
	began := time.Now()
	s := &space{
		journal: b.journal, fs: b.opts.FS, dir: b.opts.Journal.Dir, rate: b.opts.ReclaimBytesPerSecond, log: b.log,
		share: reclaimShare, batch: min(reclaimBatch, b.opts.Journal.SegmentSize/reclaimPart),
	}
	if hurried {
		s.share = hurriedShare
	}
	var holders []holder
	var errs []error
	for _, id := range b.journal.Groups() {
		h := holder{group: b.journal.Group(id)}
		if g := b.groups.get(ledger.GroupID(id)); g != nil {
			h.view, h.repair = g.fsm.view, g.repair
			if err := g.squeeze(ctx); err != nil {
				errs = append(errs, fmt.Errorf("snapshot of group %d: %w", id, err))
			}
		}
		holders = append(holders, h)
	}
	done, err := s.sweep(ctx, holders)
	b.metrics.reclaimed(done)
	if done.segments > 0 {
		b.log.Info("gave space back", "segments", done.segments, "copied", done.copied, "records", done.released, "took", time.Since(began))
	}
	return errors.Join(append(errs, err)...)
}

// squeeze takes snapshots when much of the log is of entries that no ledger has any more, so that it leaves the log.
func (g *group) squeeze(ctx context.Context) error {
	h := holder{group: g.store.group, view: g.fsm.view}
	dead, trailing := int64(0), g.store.trailing(g.opts.TrailingLogBytes)
	first, last := g.store.group.FirstIndex(), g.store.group.LastIndex()
	applied, needed, err := h.weigh(max(first, 1))
	if err != nil {
		g.indexDamaged(err)
		return err
	}
	for i := first; i > 0 && i+trailing <= last && i <= applied; i++ {
		if p, ok := g.store.group.HeldAt(i); ok {
			dead += max(int64(p.Length)-needed.of(i)-recordOverhead, 0)
		}
	}
	if dead <= g.opts.SnapshotLogBytes/2 {
		return nil
	}
	for range snapshotKept {
		if err := g.snapshot(ctx); err != nil {
			return err
		}
	}
	return nil
}

// changes counts what may have left space to be given back.
func (gs *groups) changes() uint64 {
	n := uint64(0)
	for _, g := range gs.all() {
		g.snapshots.mu.Lock()
		n += g.snapshots.made
		g.snapshots.mu.Unlock()
		n += g.fsm.drops.Load() + 1
	}
	return n
}
