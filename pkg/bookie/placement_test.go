package bookie

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"geminga/pkg/metadata"
)

func TestPlan(t *testing.T) {
	show := func(gs []metadata.GroupInfo) string {
		var out []string
		for _, g := range gs {
			out = append(out, fmt.Sprintf("%d:%s", g.ID, strings.Join(g.Replicas, "")))
		}
		return strings.Join(out, " ")
	}
	abc := []string{"c", "a", "b"}
	first := plan(abc, abc, nil, 1, 3)
	for _, c := range []struct {
		name    string
		bookies []string
		members []string
		groups  []metadata.GroupInfo
		per, rf int
		want    string
	}{
		{"nobody yet", nil, abc, nil, 1, 3, ""},
		{"a member is missing", []string{"a", "b"}, abc, nil, 1, 3, ""},
		{"three", abc, abc, nil, 1, 3, "1:abc 2:bca 3:cab"},
		{"nothing left to do", abc, abc, first, 1, 3, ""},
		{"two each", abc, abc, nil, 2, 3, "1:abc 2:bca 3:cab 4:abc 5:bca 6:cab"},
		{"one more each", abc, abc, first, 2, 3, "4:abc 5:bca 6:cab"},
		{"alone", []string{"a"}, []string{"a"}, nil, 2, 3, "1:a 2:a"},
		{"a fourth comes", append(slices.Clone(abc), "d"), abc, first, 1, 3, "4:dab"},
		{"five members", []string{"a", "b", "c", "d", "e"}, []string{"a", "b", "c", "d", "e"}, nil, 1, 3,
			"1:abc 2:bcd 3:cde 4:dea 5:eab"},
		{"interrupted", abc, abc, first[:1], 1, 3, "2:bca 3:cab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(plan(c.bookies, c.members, c.groups, c.per, c.rf)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A record that cannot be read does not make its id free.
func TestBadGroupRecordStopsPlacement(t *testing.T) {
	good := metadata.Item{Key: metadata.GroupKey(1), Value: []byte(`{"id":1,"replicas":["a"]}`), Version: 1}
	if got, err := groupRecords(map[string]metadata.Item{good.Key: good}); err != nil || len(got) != 1 || got[0].ID != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, value := range map[string]string{"junk": "junk", "another group's": `{"id":3,"replicas":["a"]}`} {
		bad := metadata.Item{Key: metadata.GroupKey(2), Value: []byte(value), Version: 1}
		_, err := groupRecords(map[string]metadata.Item{good.Key: good, bad.Key: bad})
		if !errors.Is(err, errBadGroupRecord) || !strings.Contains(err.Error(), bad.Key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
