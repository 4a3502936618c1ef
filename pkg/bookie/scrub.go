package bookie

import (
	"context"
	"errors"
	"time"

	"geminga/pkg/journal"
	"geminga/pkg/ledger"
)

// scrubPause is between two rounds: a small journal need not be read all the time.
const scrubPause = time.Hour

// scrubber reads the journal round after round at a bounded rate, and says what is damaged, before a reader or a restart
// meets it. Then it reads the ledgers, at the same rate, and compares their entries with the running checksums: bytes that
// are whole may yet be others than those that the group has agreed on. Whether it has agreed, compareStates asks. It stops no
// replica: a damaged one serves what is whole, and answers "unreadable" for the rest, until that is fetched from other
// replicas.
//
// A disk that hangs may hang it for ever. So Close waits for it politeClose long, and nothing else depends on it.
type scrubber struct {
	b    *Bookie
	done chan struct{}
}

// startScrub returns nil when scrubbing is off.
func startScrub(b *Bookie) *scrubber {
	if b.opts.ScrubBytesPerSecond < 0 {
		return nil
	}
	s := &scrubber{b: b, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.run(b.ctx)
	}()
	return s
}

// wait returns when the scrubber has ended, or when it is to be left behind.
func (s *scrubber) wait(ctx context.Context) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, politeClose)
	defer cancel()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
}

func (s *scrubber) run(ctx context.Context) {
	for {
		s.round(ctx)
		if pause(ctx, scrubPause) != nil {
			return
		}
	}
}

// round reads the indexes and the journal once.
func (s *scrubber) round(ctx context.Context) {
	s.scrubIndexes(ctx)
	begun, places := time.Now(), 0
	var check entryCheck
	n, err := s.b.journal.Scrub(ctx, journal.ScrubOptions{
		BytesPerSecond: s.b.opts.ScrubBytesPerSecond,
		Report: func(c *journal.CorruptError) {
			d := Damage{
				File: segmentFile(c.Segment), Group: ledger.GroupID(c.Group), Index: c.Index, Segment: c.Segment, Offset: c.Offset, Reason: c.Reason,
			}
			if s.found(d) {
				places++
			}
		},
		VisitKept: func(group uint32, k *journal.Kept, p journal.Place) error {
			err := check.visitKept(group, k, p)
			s.report(&check, &places)
			return err
		},
		Visit: func(group uint32, rec *journal.Record, p journal.Place) error {
			err := check.visit(group, rec, p)
			s.report(&check, &places)
			return err
		},
	})
	wrong := 0
	for _, g := range s.b.groups.all() {
		wrong += g.verifySums(ctx, s.b.opts.ScrubBytesPerSecond)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && !errors.Is(err, journal.ErrClosed):
		s.b.log.Error("the journal cannot be read in full", "error", err)
	default:
		s.b.metrics.scrubbed()
		s.b.log.Info("scrubbed the journal", "bytes", n, "entries", check.entries, "damaged", places, "wrong", wrong, "took", time.Since(begun))
	}
}

// report takes over what a check has found.
func (s *scrubber) report(check *entryCheck, places *int) {
	for _, d := range check.damage {
		if s.found(d) {
			*places++
		}
	}
	check.damage = check.damage[:0]
}

// found tells of damage, and has it repaired. False: the record was copied or fetched since, and these bytes are waiting
// only for their segment to go.
func (s *scrubber) found(d Damage) bool {
	g := s.b.groups.get(d.Group)
	if g != nil && d.Index > 0 && !g.needs(d) {
		s.b.log.Debug("damage in bytes that nothing needs", "file", d.File, "offset", d.Offset, "group", d.Group, "index", d.Index)
		return false
	}
	s.b.metrics.rotten()
	args := []any{"file", d.File, "offset", d.Offset, "group", d.Group, "index", d.Index, "reason", d.Reason}
	if d.Ledger != nil && d.Entry != nil {
		args = append(args, "ledger", *d.Ledger, "entry", *d.Entry)
	}
	s.b.log.Error("damage in the journal", args...)
	if g != nil && d.Index > 0 {
		g.repair(d.Index)
	}
	return true
}

// needs says whether damage is in the record that is held under its index, or may be.
func (g *group) needs(d Damage) bool {
	p, ok := g.store.group.HeldAt(d.Index)
	if !ok || p.Segment == 0 {
		return ok
	}
	return p.Segment == d.Segment && d.Offset >= p.Offset && d.Offset < p.Offset+int64(p.Length)
}
