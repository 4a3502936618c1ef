package topic

import (
	"math/bits"

	"geminga/pkg/ledger"
)

// Every message of a Key_Shared subscription looks up its hash several times, and its position when it has to wait. Maps of
// both were a quarter of the cost of such a subscription: tens of thousands of elements, each look-up a miss of the CPU's
// caches. Hashes are few and positions lie near each other, so both are kept in pages.

// keyState is what is known of one hash. The zero value: nothing.
type keyState struct {
	holding
	queue *keyQueue
}

// holding is who has unacknowledged entries of a hash, and how many; 0: nobody.
type holding struct {
	by *Consumer
	n  int32
}

const keysInPage = 256

// keyStates has the states of all hashes, in pages that are made when something is known of a hash in them, and kept.
type keyStates struct {
	pages [keyHashes / keysInPage]*keyPage
}

type keyPage struct {
	states [keysInPage]keyState
	known  int // states that are not zero
}

func (t *keyStates) get(h keyHash) keyState {
	if page := t.pages[h/keysInPage]; page != nil {
		return page.states[h%keysInPage]
	}
	return keyState{}
}

func (t *keyStates) set(h keyHash, s keyState) {
	at := &t.pages[h/keysInPage]
	if *at == nil {
		*at = new(keyPage)
	}
	page, old := *at, &(*at).states[h%keysInPage]
	if *old == (keyState{}) {
		page.known++
	}
	if s == (keyState{}) {
		page.known--
	}
	*old = s
}

// each calls f for all hashes of which something is known. f may set the state of the hash that it is called for.
func (t *keyStates) each(f func(h keyHash, s keyState)) {
	for i, page := range t.pages {
		if page == nil || page.known == 0 {
			continue
		}
		for j, s := range page.states {
			if s != (keyState{}) {
				f(keyHash(i*keysInPage+j), s)
			}
		}
	}
}

// waitPage is small: a key that is held up may leave one position in each page.
const waitPage = 64

// waitingSet is a set of positions, each with its hash. The zero value is empty.
type waitingSet struct {
	n     int
	pages map[waitKey]*waitingPage
	last  *waitingPage // that was used last; nil: none
	spare []*waitingPage
}

type waitKey struct {
	ledger ledger.ID
	page   int64 // entry / waitPage
}

// waitingPage is neighbouring positions; bit i of present: position i is there.
type waitingPage struct {
	key     waitKey
	n       int
	present [waitPage / 64]uint64
	items   [waitPage]waitingItem
}

// waitingItem is what is known of an entry that waits.
type waitingItem struct {
	hash     keyHash
	messages int32 // 0: to be found out
}

func (w *waitingSet) len() int { return w.n }

// find returns the page of a position and its place there; nil: there is no such page.
func (w *waitingSet) find(p ledger.Position) (page *waitingPage, at int64) {
	key := waitKey{p.Ledger, int64(p.Entry) / waitPage}
	if w.last == nil || w.last.key != key {
		found := w.pages[key]
		if found == nil {
			return nil, 0
		}
		w.last = found
	}
	return w.last, int64(p.Entry) % waitPage
}

// get returns what is known of a position that is in the set.
func (w *waitingSet) get(p ledger.Position) (it waitingItem, ok bool) {
	if page, i := w.find(p); page != nil && page.present[i/64]&(1<<(i%64)) != 0 {
		return page.items[i], true
	}
	return waitingItem{}, false
}

// add reports whether the position is new. If not, it keeps what is known of it.
func (w *waitingSet) add(p ledger.Position, it waitingItem) bool {
	page, i := w.find(p)
	if page == nil {
		page, i = w.open(p)
	}
	word, bit := &page.present[i/64], uint64(1)<<(i%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	page.items[i] = it
	page.n++
	w.n++
	return true
}

func (w *waitingSet) open(p ledger.Position) (*waitingPage, int64) {
	var page *waitingPage
	if n := len(w.spare); n > 0 {
		page, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		page = new(waitingPage)
	}
	page.key = waitKey{p.Ledger, int64(p.Entry) / waitPage}
	if w.pages == nil {
		w.pages = make(map[waitKey]*waitingPage)
	}
	w.pages[page.key], w.last = page, page
	return page, int64(p.Entry) % waitPage
}

// remove returns what was known of a position that was in the set.
func (w *waitingSet) remove(p ledger.Position) (it waitingItem, ok bool) {
	page, i := w.find(p)
	if page == nil || page.present[i/64]&(1<<(i%64)) == 0 {
		return waitingItem{}, false
	}
	page.present[i/64] &^= 1 << (i % 64)
	page.n--
	w.n--
	if page.n == 0 {
		delete(w.pages, page.key)
		w.last = nil
		if len(w.spare) < 64 {
			w.spare = append(w.spare, page)
		}
	}
	return page.items[i], true
}

func (w *waitingSet) clear() { *w = waitingSet{} }

// check reports whether the counts are right; for invariants builds.
func (w *waitingSet) check() bool {
	all := 0
	for key, page := range w.pages {
		n := 0
		for _, word := range page.present {
			n += bits.OnesCount64(word)
		}
		if n != page.n || n == 0 || page.key != key {
			return false
		}
		all += n
	}
	return all == w.n
}
