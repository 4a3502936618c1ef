package managedledger

import (
	"slices"
	"sort"
	"sync/atomic"

	"geminga/pkg/ledger"
)

// view is what readers know of the log: an immutable list of ledgers, of which only the last grows. The topic's
// executor replaces it as a whole when it moves on to another ledger; any goroutine may load it.
//
// LastConfirmed is a pair, yet needs no lock: the ledger is a constant of the view, and only the entry moves.
//
//	topic's executor                      reader, with the old view
//	1 old.confirmed = S (its last)        1 loads S' <= S: a valid, older answer
//	2 stores the new view (before = S)    2 loads the new view: S or later, never less
//
// INVARIANT: ids ascend; every segment but the last has entries.
type view struct {
	segments  []segment
	confirmed *atomic.Int64   // last readable entry of the last segment
	before    ledger.Position // last entry before the last segment; {its id, NoEntry} when there is none
}

type segment struct {
	ref     ledger.Ref
	start   int64 // entries in the segments before it
	entries int64 // of a closed one
	bytes   int64 // of a closed one, as far as known
}

func newView(closed []segment, open ledger.Ref, confirmed *atomic.Int64) *view {
	v := &view{confirmed: confirmed, before: ledger.Position{Ledger: open.ID, Entry: ledger.NoEntry}}
	v.segments = make([]segment, 0, len(closed)+1)
	var start int64
	for _, s := range closed {
		if s.entries == 0 {
			continue
		}
		s.start = start
		start += s.entries
		v.segments = append(v.segments, s)
		v.before = ledger.Position{Ledger: s.ref.ID, Entry: ledger.EntryID(s.entries - 1)}
	}
	v.segments = append(v.segments, segment{ref: open, start: start})
	return v
}

// closed returns the segments with the last one closed as well.
func (v *view) closed(bytes int64) []segment {
	s := append([]segment(nil), v.segments...)
	last := &s[len(s)-1]
	last.entries, last.bytes = v.confirmed.Load()+1, bytes
	return s
}

// without returns a view without some of the closed segments.
func (v *view) without(ids []ledger.ID) *view {
	closed := slices.Clone(v.segments)
	last := closed[len(closed)-1]
	closed = slices.DeleteFunc(closed, func(s segment) bool { return s.ref == last.ref || slices.Contains(ids, s.ref.ID) })
	return newView(closed, last.ref, v.confirmed)
}

func (v *view) lastConfirmed() ledger.Position {
	if e := v.confirmed.Load(); e >= 0 {
		return ledger.Position{Ledger: v.segments[len(v.segments)-1].ref.ID, Entry: ledger.EntryID(e)}
	}
	return v.before
}

// snapshot is a view with one value of confirmed: the log as it was at one moment. All its methods are pure.
type snapshot struct {
	*view
	end ledger.EntryID // confirmed
}

func (v *view) snapshot() snapshot { return snapshot{v, ledger.EntryID(v.confirmed.Load())} }

func (s snapshot) open() *segment { return &s.segments[len(s.segments)-1] }

// size returns the entries of segment i.
func (s snapshot) size(i int) int64 {
	if i == len(s.segments)-1 {
		return int64(s.end) + 1
	}
	return s.segments[i].entries
}

// find returns the index of the first segment whose ledger is id or later.
func (s snapshot) find(id ledger.ID) int {
	if n := len(s.segments); s.segments[n-1].ref.ID <= id { // the usual case: reading at the end
		if s.segments[n-1].ref.ID == id {
			return n - 1
		}
		return n
	}
	return sort.Search(len(s.segments), func(i int) bool { return s.segments[i].ref.ID >= id })
}

// total returns the number of entries.
func (s snapshot) total() int64 { return s.open().start + int64(s.end) + 1 }

// last returns the last entry.
func (s snapshot) last() ledger.Position {
	if s.end >= 0 {
		return ledger.Position{Ledger: s.open().ref.ID, Entry: s.end}
	}
	return s.before
}

// first returns the first entry, or where it will be.
func (s snapshot) first() ledger.Position { return ledger.Position{Ledger: s.segments[0].ref.ID} }

// ceil returns the first entry at p or after it; behind the last entry it returns where the next one will be, unless
// the ledger changes before.
func (s snapshot) ceil(p ledger.Position) ledger.Position {
	i := s.find(p.Ledger)
	if i == len(s.segments) {
		return ledger.Position{Ledger: s.open().ref.ID, Entry: s.end + 1}
	}
	e := max(p.Entry, 0)
	if s.segments[i].ref.ID != p.Ledger {
		e = 0
	}
	if int64(e) >= s.size(i) {
		if i == len(s.segments)-1 {
			return ledger.Position{Ledger: s.segments[i].ref.ID, Entry: s.end + 1}
		}
		i, e = i+1, 0
	}
	return ledger.Position{Ledger: s.segments[i].ref.ID, Entry: e}
}

// next returns ceil of the place behind p.
func (s snapshot) next(p ledger.Position) ledger.Position { return s.ceil(after(p)) }

// rank returns how many entries lie at p or before it.
func (s snapshot) rank(p ledger.Position) int64 {
	i := s.find(p.Ledger)
	if i == len(s.segments) {
		return s.total()
	}
	seg := &s.segments[i]
	if seg.ref.ID != p.Ledger {
		return seg.start
	}
	return seg.start + min(max(int64(p.Entry)+1, 0), s.size(i))
}

// floor returns the last entry at p or before it; {first ledger, NoEntry} when there is none.
func (s snapshot) floor(p ledger.Position) ledger.Position { return s.nth(s.rank(p)) }

// nth returns the entry of which n−1 lie before; {first ledger, NoEntry} for 0.
func (s snapshot) nth(n int64) ledger.Position {
	if n == 0 {
		return before(s.first())
	}
	i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].start >= n }) - 1
	return ledger.Position{Ledger: s.segments[i].ref.ID, Entry: ledger.EntryID(n - 1 - s.segments[i].start)}
}

// exists reports that p is a confirmed entry.
func (s snapshot) exists(p ledger.Position) bool {
	i := s.find(p.Ledger)
	return i < len(s.segments) && s.segments[i].ref.ID == p.Ledger && p.Entry >= 0 && int64(p.Entry) < s.size(i)
}

func after(p ledger.Position) ledger.Position {
	if p == ledger.Latest {
		return p
	}
	return ledger.Position{Ledger: p.Ledger, Entry: p.Entry + 1}
}

func before(p ledger.Position) ledger.Position {
	return ledger.Position{Ledger: p.Ledger, Entry: max(p.Entry-1, ledger.NoEntry)}
}
