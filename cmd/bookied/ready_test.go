package main

import (
	"strings"
	"testing"

	"geminga/rpc/bookiepb"
)

func TestLacks(t *testing.T) {
	three := []string{"a", "b", "c"}
	led := &bookiepb.GroupStatus{LeaderId: "a", Replicas: three}
	for want, st := range map[string]*bookiepb.StatusResponse{
		"metadata group has no leader: a majority of a, b, c": {Metadata: &bookiepb.GroupStatus{Replicas: three}},
		"ledger group 7 has no leader: a majority of a, b, c": {Metadata: led, Groups: []*bookiepb.GroupStatus{led, {Group: 7, Replicas: three}}},
		"to be registered": {},
	} {
		if err := lacks(st); !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
