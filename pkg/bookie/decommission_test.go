package bookie

import (
	"fmt"
	"testing"

	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// A bookie can leave when for each of its groups there is another one that lives, stays, takes entries and is not in it.
func TestSurveyStuck(t *testing.T) {
	bookie := func(id string) metadata.Item {
		return metadata.Item{Key: metadata.BookieKey(id), Value: fmt.Appendf(nil, `{"id":%q,"address":"x:1"}`, id)}
	}
	bookies := []metadata.Item{bookie("a"), bookie("b"), bookie("c"), bookie("d")}
	groups := []metadata.Item{
		{Key: metadata.GroupKey(1), Value: []byte(`{"id":1,"replicas":["a","b","c"]}`)},
		{Key: metadata.GroupKey(2), Value: []byte(`{"id":2,"replicas":["d","b","c"],"former":["a"]}`)},
	}
	mode := func(id, value string) metadata.Item {
		return metadata.Item{Key: metadata.BookieModeKey(id), Value: []byte(value)}
	}
	up := func(id string, readOnly bool) *bookiepb.StatusResponse {
		return &bookiepb.StatusResponse{BookieId: id, ReadOnly: readOnly}
	}
	for _, c := range []struct {
		name    string
		id      string
		modes   []metadata.Item
		answers []*bookiepb.StatusResponse
		want    string
	}{
		{"d takes a's", "a", nil, []*bookiepb.StatusResponse{up("d", false)}, "[]"},
		{"d does not answer", "a", nil, []*bookiepb.StatusResponse{up("b", false), nil}, "[1]"},
		{"d is full", "a", nil, []*bookiepb.StatusResponse{up("d", true)}, "[1]"},
		{"d takes nothing by order", "a", []metadata.Item{mode("d", `{"readOnly":true}`)}, []*bookiepb.StatusResponse{up("d", false)}, "[1]"},
		{"d leaves itself", "a", []metadata.Item{mode("d", `{"decommission":true}`)}, []*bookiepb.StatusResponse{up("d", false)}, "[1]"},
		{"a is on its way out of b's second group", "b", nil, []*bookiepb.StatusResponse{up("a", false), up("d", false)}, "[2]"},
	} {
		s, err := NewSurvey(bookies, c.modes, groups, c.answers)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Stuck(c.id); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v %v, want %s", c.name, got, err, c.want)
		}
	}
	s, err := NewSurvey(bookies, nil, groups, []*bookiepb.StatusResponse{
		{BookieId: "a", Groups: []*bookiepb.GroupStatus{{Group: 2, Applied: 90}}},
		{BookieId: "b", Groups: []*bookiepb.GroupStatus{{Group: 2, Applied: 100}}},
		{BookieId: "c", Groups: []*bookiepb.GroupStatus{{Group: 2, Applied: 99}}},
		{BookieId: "d", Groups: []*bookiepb.GroupStatus{{Group: 2, Applied: 30}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if held := s.Holding("a"); len(held) != 2 || !s.Known("a") || s.Known("e") {
		t.Errorf("a holds %v", held)
	}
	if applied, of := s.Progress(&s.Groups[1]); applied != 30 || of != 100 {
		t.Errorf("progress %d of %d", applied, of)
	}
}
