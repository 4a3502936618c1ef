package integration

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"geminga/integration/ledgers"
)

// report gathers what faults cost, for docs/performance.md.
type report struct {
	rows     map[rowKey][]ledgers.Gaps
	times    map[rowKey][]time.Duration
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

func newReport() *report {
	return &report{rows: map[rowKey][]ledgers.Gaps{}, times: map[rowKey][]time.Duration{}}
}

func (r *report) note(bookies int, kind string, g ledgers.Gaps) {
	k := rowKey{bookies, kind}
	r.rows[k] = append(r.rows[k], g)
}

// took notes how long something took.
func (r *report) took(bookies int, what string, d time.Duration) {
	k := rowKey{bookies, what}
	r.times[k] = append(r.times[k], d)
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
	if len(r.rows) > 0 {
		fmt.Println("| bookies | fault | times | no receipt at all, s: p50 / p99 / max | worst writer that goes on in another group | worst writer that waits for its group |\n|---|---|---|---|---|---|")
	}
	for _, k := range sorted(r.rows) {
		rows := r.rows[k]
		fmt.Printf("| %d | %s | %d | %s | %s | %s |\n", k.bookies, k.kind, len(rows),
			spread(rows, func(g ledgers.Gaps) time.Duration { return g.Any }),
			spread(rows, func(g ledgers.Gaps) time.Duration { return g.Moving }),
			spread(rows, func(g ledgers.Gaps) time.Duration { return g.Waiting }))
	}
	fmt.Println("\n| bookies | what | times | it took, s: p50 / p99 / max |\n|---|---|---|---|")
	for _, k := range sorted(r.times) {
		fmt.Printf("| %d | %s | %d | %s |\n", k.bookies, k.kind, len(r.times[k]), spread(r.times[k], func(d time.Duration) time.Duration { return d }))
	}
	fmt.Println()
}

func sorted[V any](m map[rowKey]V) []rowKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b rowKey) int { return cmp.Or(a.bookies-b.bookies, cmp.Compare(a.kind, b.kind)) })
}

func spread[T any](rows []T, of func(T) time.Duration) string {
	all := make([]time.Duration, len(rows))
	for i, row := range rows {
		all[i] = of(row)
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(math.Ceil(q*float64(len(all))))-1].Seconds() }
	return fmt.Sprintf("%.2f / %.2f / %.2f", at(0.5), at(0.99), at(1))
}
