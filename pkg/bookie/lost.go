package bookie

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"geminga/pkg/ledger"
)

// errAlone: a group has no other replica that could help a damaged one.
var errAlone = errors.New("there is no other replica")

// lostNamed is how many stretches of lost entries are named one by one.
const lostNamed = 8

// lostEntries puts into words which entries are unreadable here, and were not found with any other replica. Nil: there are
// none.
func lostEntries(lacks []lack, unnamed *coverage) *string {
	lost := map[ledger.ID][]stretch{}
	for id, gaps := range unnamed.gaps {
		lost[id] = slices.Clone(gaps)
	}
	for i := range lacks {
		for _, n := range lacks[i].needs {
			lost[n.ledger] = append(lost[n.ledger], stretch{n.run.first, n.run.end()})
		}
	}
	type part struct {
		id ledger.ID
		stretch
	}
	var all []part
	entries := int64(0)
	for id, list := range lost {
		for _, s := range list {
			all = append(all, part{id, s})
			entries += int64(s.last - s.first + 1)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.first, b.first)) })
	var names []string
	for _, p := range all[:min(len(all), lostNamed)] {
		names = append(names, fmt.Sprintf("%d:%d-%d", p.id, p.first, p.last))
	}
	if len(all) > lostNamed {
		names = append(names, "…")
	}
	out := fmt.Sprintf("%d entries cannot be read, and no other replica has them: %s", entries, strings.Join(names, ", "))
	return &out
}

// unreadable says what of a replica cannot be read, as far as it is known and nobody else can help; empty: nothing.
func (g *group) unreadable() string {
	if s := g.fill.lost.Load(); s != nil {
		return *s
	}
	if g.rotten.Load() && len(g.others()) == 0 {
		return "the index is damaged"
	}
	return ""
}

// unreadable returns what cannot be read of the replicas that are here, and nobody else can help with.
func (gs *groups) unreadable() error {
	var errs []error
	for _, g := range gs.all() {
		if s := g.unreadable(); s != "" {
			errs = append(errs, fmt.Errorf("%w: group %d: %s", ledger.ErrUnreadable, g.id, s))
		}
	}
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	for id, err := range gs.broken {
		if errors.Is(err, errAlone) {
			errs = append(errs, fmt.Errorf("%w: group %d cannot be opened: %w", ledger.ErrUnreadable, id, err))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// Unreadable returns nil unless entries of a group are known to be damaged or missing here, and no other replica has them, or
// there is none. Everything else is served meanwhile.
func (b *Bookie) Unreadable() error { return b.groups.unreadable() }

// observeLost makes the metric of it.
func (b *Bookie) observeLost(provider metric.MeterProvider) error {
	_, err := provider.Meter("geminga/bookie").Int64ObservableGauge("geminga.bookie.unreadable.groups",
		metric.WithDescription("ledger groups with entries that cannot be read here, and that no other replica has"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(b.groups.unreadableGroups())
			return nil
		}))
	return err
}

func (gs *groups) unreadableGroups() (n int64) {
	for _, g := range gs.all() {
		if g.unreadable() != "" {
			n++
		}
	}
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	for _, err := range gs.broken {
		if errors.Is(err, errAlone) {
			n++
		}
	}
	return n
}
