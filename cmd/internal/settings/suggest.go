package settings

import (
	"maps"
	"slices"
	"strings"
)

// meant returns the name that somebody who wrote another one probably meant: the same in another case, or with at most two
// letters changed, missing, too many or swapped; "" if there is none, or more than one that are as near. Ours come first.
func (s *Set) meant(name string) string {
	names := slices.Clone(s.order)
	if s.foreign != nil {
		names = append(names, slices.Sorted(maps.Keys(s.foreign.byName))...)
	}
	best, least, same := "", 3, false
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		switch d := distance(n, name); {
		case d < least:
			best, least, same = n, d, false
		case d == least && n != best:
			same = true
		}
	}
	if same {
		return ""
	}
	return best
}

// distance is how many letters must be changed, added, dropped or swapped with the next to make b of a.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1])
			if a[i-1] != b[j-1] {
				row[j] = min(last[j], row[j-1], last[j-1]) + 1
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
