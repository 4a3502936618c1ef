package bookie

import (
	"context"
	"errors"
	"time"
)

// scrubIndexes reads the layers of all groups once, at the rate at which the journal is read.
func (s *scrubber) scrubIndexes(ctx context.Context) {
	for _, g := range s.b.groups.all() {
		if err := g.scrubIndex(ctx, s.b.opts.ScrubBytesPerSecond); err != nil && ctx.Err() == nil {
			s.b.metrics.rotten()
			g.indexDamaged(err)
		}
	}
}

// scrubIndex compares the checksums of a group's layers. What another snapshot has replaced meanwhile is read to the end.
func (g *group) scrubIndex(ctx context.Context, rate int64) error {
	g.fsm.mu.RLock()
	layers := g.fsm.index.layers
	g.fsm.mu.RUnlock()
	var buf []byte
	for _, l := range layers {
		for number := range l.dir {
			b, err := l.read(number, buf)
			if err != nil {
				return err
			}
			buf = b[:0]
			if err := pause(ctx, time.Duration(float64(len(b))/float64(rate)*float64(time.Second))); err != nil {
				return err
			}
		}
	}
	return nil
}

// indexDamaged is called when the index cannot be read. What it says is looked for in the journal, and then with other
// replicas; meanwhile what can be found is served on.
func (g *group) indexDamaged(err error) {
	if !errors.Is(err, ErrDamaged) {
		g.log.Error("the index of a group cannot be read", "group", g.id, "error", err)
		return
	}
	if !g.rotten.Swap(true) {
		g.log.Error("the index of a group is damaged; it is made anew from the journal", "group", g.id, "error", err)
		g.fill.signal()
	}
}
