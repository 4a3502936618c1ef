package topic

import (
	"iter"
	"slices"

	"geminga/pkg/ledger"
)

// pendingSet is what a consumer has not acknowledged. The zero value is empty.
//
// Each message of a shared subscription goes in, is looked up and goes out once, so this is a map of numbers for each
// ledger, of which there are one or two: a map of positions took half as much time again, and half as much memory.
type pendingSet struct {
	n       int
	ledgers map[ledger.ID]pendingEntries
	id      ledger.ID      // of last
	last    pendingEntries // that was used last; nil: none
}

type pendingEntries map[ledger.EntryID]pendingEntry

// pendingEntry is an entry that was delivered and is not acknowledged.
type pendingEntry struct {
	messages int32 // left in it
	hash     keyHash
}

func (s *pendingSet) len() int { return s.n }

func (s *pendingSet) of(id ledger.ID) pendingEntries {
	if s.last == nil || s.id != id {
		s.id, s.last = id, s.ledgers[id]
	}
	return s.last
}

func (s *pendingSet) get(p ledger.Position) (pendingEntry, bool) {
	e, ok := s.of(p.Ledger)[p.Entry]
	return e, ok
}

func (s *pendingSet) set(p ledger.Position, e pendingEntry) {
	m := s.of(p.Ledger)
	if m == nil {
		m = make(pendingEntries)
		if s.ledgers == nil {
			s.ledgers = make(map[ledger.ID]pendingEntries)
		}
		s.ledgers[p.Ledger], s.last = m, m
	}
	was := len(m)
	m[p.Entry] = e
	s.n += len(m) - was
}

func (s *pendingSet) delete(p ledger.Position) {
	m := s.of(p.Ledger)
	was := len(m)
	delete(m, p.Entry)
	s.n += len(m) - was
	if len(m) == 0 && len(s.ledgers) > 1 {
		delete(s.ledgers, p.Ledger)
		s.last = nil
	}
}

func (s *pendingSet) clear() { *s = pendingSet{} }

// all are the entries in any order. The set must not change meanwhile.
func (s *pendingSet) all() iter.Seq2[ledger.Position, pendingEntry] {
	return func(yield func(ledger.Position, pendingEntry) bool) {
		for id, m := range s.ledgers {
			for entry, e := range m {
				if !yield(ledger.Position{Ledger: id, Entry: entry}, e) {
					return
				}
			}
		}
	}
}

// positions are those of all entries, in order.
func (s *pendingSet) positions() []ledger.Position {
	ps := make([]ledger.Position, 0, s.n)
	for p := range s.all() {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, ledger.Position.Compare)
	return ps
}
