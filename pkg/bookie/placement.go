package bookie

import (
	"cmp"
	"slices"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
)

// plan says which ledger groups are to be created, given the registered bookies and the groups there are. It is pure.
//
// Every bookie is the first replica, and so the preferred leader, of perBookie groups; the others are taken from the
// rest, those that held the fewest replicas before first, else round robin. Nothing is planned before all members of the metadata
// group have registered, so that the first groups get all their replicas.
func plan(bookies []string, members []string, groups []metadata.GroupInfo, perBookie, factor int) []metadata.GroupInfo {
	for _, m := range members {
		if !slices.Contains(bookies, m) {
			return nil
		}
	}
	bookies = slices.Clone(bookies)
	slices.Sort(bookies)
	firsts, load := map[string]int{}, map[string]int{}
	next := ledger.GroupID(1)
	for _, g := range groups {
		next = max(next, g.ID+1)
		for i, r := range g.Replicas {
			load[r]++
			if i == 0 {
				firsts[r]++
			}
		}
	}
	var out []metadata.GroupInfo
	for range perBookie {
		for i, b := range bookies {
			if firsts[b] >= perBookie {
				continue
			}
			g := metadata.GroupInfo{ID: next, Replicas: append([]string{b}, others(bookies, i, load, factor-1)...)}
			next++
			firsts[b]++
			out = append(out, g)
		}
	}
	return out
}

// others picks n bookies beside the i-th: least loaded first, then in ring order after it.
func others(bookies []string, i int, load map[string]int, n int) []string {
	ring := append(slices.Clone(bookies[i+1:]), bookies[:i]...)
	slices.SortStableFunc(ring, func(a, b string) int { return cmp.Compare(load[a], load[b]) })
	return ring[:min(n, len(ring))]
}
