package metadata

import (
	"slices"
	"testing"
)

// A group founds itself once: whoever begins it, begins it with the same members for ever, and who left never begins it again.
func TestGroupIsFoundedOnce(t *testing.T) {
	began := GroupInfo{ID: 1, Replicas: []string{"a", "b", "c"}}
	moved := began.Replaced("a", "d")
	if !slices.Equal(moved.Replicas, []string{"d", "b", "c"}) || !slices.Equal(moved.Members(), []string{"d", "b", "c", "a"}) {
		t.Errorf("after a change: %+v", moved)
	}
	settled := moved.Settled()
	back := settled.Replaced("b", "a")
	end := back.Settled()
	for _, c := range []struct {
		name   string
		info   GroupInfo
		founds string
		not    string
	}{
		{"at first", began, "abc", "d"},
		{"while a is on its way out", moved, "abc", "d"},
		{"after it is out", settled, "bc", "da"},
		{"when it is back", back, "bc", "da"},
		{"and another one has left", end, "c", "dab"},
	} {
		for _, id := range c.founds {
			if got := c.info.Founding(string(id)); !slices.Equal(got, began.Replicas) {
				t.Errorf("%s: %c begins the group with %v", c.name, id, got)
			}
		}
		for _, id := range c.not {
			if got := c.info.Founding(string(id)); got != nil {
				t.Errorf("%s: %c begins the group with %v", c.name, id, got)
			}
		}
	}
	if len(end.Former) != 0 || !slices.Equal(began.Replicas, []string{"a", "b", "c"}) {
		t.Errorf("at the end %+v, at the beginning %+v", end, began)
	}
}
