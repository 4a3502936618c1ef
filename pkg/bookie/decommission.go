package bookie

import (
	"encoding/json"
	"fmt"
	"slices"

	"geminga/pkg/ledger"
	"geminga/pkg/metadata"
	"geminga/rpc/bookiepb"
)

// Survey is a picture of the cluster from outside, for commands of operators. What moves replicas is the metadata leader.
type Survey struct {
	Bookies []metadata.BookieInfo
	Modes   map[string]metadata.Item // by bookie
	Groups  []metadata.GroupInfo
	Status  map[string]*bookiepb.StatusResponse // by bookie; nil for those that do not answer
}

// NewSurvey puts one together from the items below metadata.BookiesPrefix, BookieModesPrefix and GroupsPrefix, and the
// answers of the bookies, in any order and under any keys.
func NewSurvey(bookies, modes, groups []metadata.Item, answers []*bookiepb.StatusResponse) (*Survey, error) {
	s := &Survey{Modes: map[string]metadata.Item{}, Status: map[string]*bookiepb.StatusResponse{}}
	for _, it := range bookies {
		var info metadata.BookieInfo
		if err := json.Unmarshal(it.Value, &info); err != nil {
			return nil, fmt.Errorf("record %s: %w", it.Key, err)
		}
		s.Bookies = append(s.Bookies, info)
	}
	for _, it := range groups {
		g, err := groupRecord(it)
		if err != nil {
			return nil, err
		}
		s.Groups = append(s.Groups, g)
	}
	for _, it := range modes {
		for _, info := range s.Bookies {
			if metadata.BookieModeKey(info.ID) == it.Key {
				s.Modes[info.ID] = it
			}
		}
	}
	for _, status := range answers {
		if status != nil {
			s.Status[status.GetBookieId()] = status
		}
	}
	return s, nil
}

// Known says whether a bookie of this id is registered.
func (s *Survey) Known(id string) bool {
	return slices.ContainsFunc(s.Bookies, func(b metadata.BookieInfo) bool { return b.ID == id })
}

// Mode is what is ordered of a bookie.
func (s *Survey) Mode(id string) (mode metadata.BookieMode, err error) {
	if it, ok := s.Modes[id]; ok {
		err = json.Unmarshal(it.Value, &mode)
	}
	return mode, err
}

// Holding lists the groups that a bookie is a member of.
func (s *Survey) Holding(id string) []metadata.GroupInfo {
	var out []metadata.GroupInfo
	for _, g := range s.Groups {
		if slices.Contains(g.Members(), id) {
			out = append(out, g)
		}
	}
	return out
}

// Stuck lists the groups that have a replica on a bookie and that no other bookie could take: one that answers, takes
// entries, and holds no replica of the group.
func (s *Survey) Stuck(id string) ([]ledger.GroupID, error) {
	hosts := make([]host, len(s.Bookies))
	for i, info := range s.Bookies {
		mode, err := s.Mode(info.ID)
		if err != nil {
			return nil, err
		}
		status := s.Status[info.ID]
		hosts[i] = host{
			id: info.ID, rack: info.Rack, silent: status == nil, leaving: mode.Decommission || info.ID == id,
			full: mode.ReadOnly || status.GetReadOnly(),
		}
	}
	return newBoard(hosts, s.Groups).stuck(id), nil
}

// Progress says how far the replica of a group that is the farthest behind has come, as raft indexes.
func (s *Survey) Progress(g *metadata.GroupInfo) (applied, of uint64) {
	applied = ^uint64(0)
	for _, id := range g.Members() {
		at := groupStatus(s.Status[id], g.ID).GetApplied()
		of = max(of, at)
		if slices.Contains(g.Replicas, id) {
			applied = min(applied, at)
		}
	}
	return applied, of
}
