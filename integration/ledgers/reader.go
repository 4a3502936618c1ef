package ledgers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"geminga/pkg/bookieclient"
	"geminga/pkg/ledger"
)

// readPause is between two reads of a reader.
const readPause = 30 * time.Millisecond

// read reads runs of acknowledged entries at random until ctx ends. No answer is no fault, a wrong one is.
func (g *Log) read(ctx context.Context, client *bookieclient.Client, rnd *rand.Rand) {
	for ; ctx.Err() == nil; sleep(ctx, readPause) {
		list := g.Writers[rnd.IntN(len(g.Writers))].ledgers()
		if len(list) == 0 {
			continue
		}
		l := list[len(list)-1]
		if rnd.IntN(2) == 0 {
			l = list[rnd.IntN(len(list))]
		}
		last, deleted := l.readable()
		if deleted || last == ledger.NoEntry {
			continue
		}
		first := ledger.EntryID(rnd.Int64N(int64(last) + 1))
		limits := ledger.Limits{Entries: 1 + rnd.IntN(200), Bytes: 1 << 20}
		entries, err := await(func(done func([]ledger.Entry, error)) { client.Read(l.Ref, first, last, limits, done) })
		if err != nil {
			g.unread(l, first, last, err)
			continue
		}
		for i, e := range entries {
			g.fault(l.stamp(first + ledger.EntryID(i)).compare(e.Payload.Data))
		}
		g.Read.Add(int64(len(entries)))
	}
}

func (g *Log) unread(l *Ledger, first, last ledger.EntryID, err error) {
	_, deleted := l.readable()
	switch {
	case deleted, errors.Is(err, ledger.ErrShutdown):
	case isFinal(err):
		g.fault(fmt.Errorf("read of entry %d of %v, acknowledged up to %d: %w", first, l.Ref, last, err))
	default:
		g.Unread.Add(1)
	}
}
