package integration

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"geminga/integration/ledgers"
)

// report gathers what faults cost, for docs/performance.md.
type report struct {
	rows     map[rowKey][]ledgers.Gaps
	acked    int64
	copies   int64
	ledgers  int
	deleted  int
	clusters int
}

type rowKey struct {
	bookies int
	kind    string
}

func newReport() *report { return &report{rows: map[rowKey][]ledgers.Gaps{}} }

func (r *report) note(bookies int, kind string, g ledgers.Gaps) {
	k := rowKey{bookies, kind}
	r.rows[k] = append(r.rows[k], g)
}

func (r *report) checked(acked int64, f ledgers.Found) {
	r.acked += acked
	r.copies += f.Entries
	r.ledgers += f.Ledgers
	r.deleted += f.Deleted
	r.clusters++
}

// print writes the table, a row for each kind of fault: times without a receipt as median / 99th of a hundred / longest.
func (r *report) print() {
	fmt.Printf("\n%d entries acknowledged in %d clusters, in %d ledgers (and %d that were deleted); every copy read and compared: %d entries\n\n",
		r.acked, r.clusters, r.ledgers, r.deleted, r.copies)
	fmt.Println("| bookies | fault | times | no receipt at all, s: p50 / p99 / max | worst writer that goes on in another group | worst writer that waits for its group |")
	fmt.Println("|---|---|---|---|---|---|")
	keys := make([]rowKey, 0, len(r.rows))
	for k := range r.rows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b rowKey) int { return cmp.Or(a.bookies-b.bookies, cmp.Compare(a.kind, b.kind)) })
	for _, k := range keys {
		rows := r.rows[k]
		fmt.Printf("| %d | %s | %d | %s | %s | %s |\n", k.bookies, k.kind, len(rows),
			spread(rows, func(g ledgers.Gaps) time.Duration { return g.Any }),
			spread(rows, func(g ledgers.Gaps) time.Duration { return g.Moving }),
			spread(rows, func(g ledgers.Gaps) time.Duration { return g.Waiting }))
	}
	fmt.Println()
}

func spread(rows []ledgers.Gaps, of func(ledgers.Gaps) time.Duration) string {
	all := make([]time.Duration, len(rows))
	for i, g := range rows {
		all[i] = of(g)
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(math.Ceil(q*float64(len(all))))-1].Seconds() }
	return fmt.Sprintf("%.2f / %.2f / %.2f", at(0.5), at(0.99), at(1))
}
