package journal

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"geminga/pkg/vfs"
)

// TestRandom lets a journal and a model do the same random calls. Calls queue in bursts, so that several of one group
// come into one batch; power is lost at any operation, also during recovery, and the unsynced rest is kept, lost or torn
// as the seed says; segments are recycled, summaries vanish. Every state that is found must be one that the order of the
// calls allows, and at least what was answered. In the end some journals are damaged: then groups may say so.
func TestRandom(t *testing.T) {
	t.Parallel()
	var sum randomCounts
	seeds := []uint64{2491} // which meets a segment without a head behind a gap, when the preparer is slow
	for seed := range uint64(150 * *sweeps) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := &random{t: t, rng: rand.New(rand.NewPCG(seed, 0x6a6f75726e616c)), mem: vfs.NewMem(), groups: models{}}
			for id := range uint32(3) {
				w.groups[id+1] = newModel()
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("calls:\n%s", strings.Join(w.trace, "\n"))
				}
			})
			w.run()
			sum.add(&w.count)
		})
	}
	all := sum.runs == len(seeds) // and not one that was named
	if all && (sum.crashes < 100 || sum.recycled < 100 || sum.back < 100 || sum.gone < 20 || sum.pending == 0) {
		t.Errorf("seldom met: %+v", sum)
	}
}

// randomCounts tell whether the runs met what they are for.
type randomCounts struct {
	runs     int
	crashes  int
	pending  int // crashes after which a call without an answer had taken effect
	recycled int
	back     int // released records that were there again after a restart
	gone     int // or were not
}

func (c *randomCounts) add(d *randomCounts) {
	c.runs++
	c.crashes += d.crashes
	c.pending += d.pending
	c.recycled += d.recycled
	c.back += d.back
	c.gone += d.gone
}

type models map[uint32]*model

func (m models) clone() models {
	c := models{}
	for id, g := range m {
		c[id] = g.clone()
	}
	return c
}

// random is one run.
type random struct {
	t        *testing.T
	rng      *rand.Rand
	mem      *vfs.Mem
	j        *Journal
	groups   models
	gen      uint64
	recycled bool // since the journal was opened
	trace    []string
	count    randomCounts
}

func (w *random) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// one reports true once in n times.
func (w *random) one(n int) bool { return w.rng.IntN(n) == 0 }

// between draws from [from, to].
func (w *random) between(from, to uint64) uint64 { return from + w.rng.Uint64N(to-from+1) }

func (w *random) run() {
	w.j = mustOpen(w.t, testOptions(w.mem))
	for range 50 {
		if w.one(4) {
			w.mem.PowerOffAfter(w.rng.Int64N([]int64{4, 40}[w.rng.IntN(2)]))
		}
		ok := true
		switch w.rng.IntN(12) {
		case 0:
			ok = w.close()
		case 1, 2:
			ok = w.recycle()
		case 3:
			w.release()
		case 4:
			w.crash([]models{w.groups})
		default:
			ok = w.burst()
		}
		if !ok {
			w.crash([]models{w.groups})
		}
		if w.one(6) && w.j.Err() == nil && !w.matches(w.groups) {
			w.crash([]models{w.groups})
		}
	}
	w.mem.PowerOffAfter(1 << 40)
	if w.j.Err() != nil || !w.close() {
		w.crash([]models{w.groups})
	}
	mustClose(w.t, w.j)
	w.damage()
}

// close closes and opens again. False: power was lost meanwhile.
func (w *random) close() bool {
	if w.j.Close() != nil {
		return false
	}
	w.note("close")
	if w.one(3) {
		if names, err := w.mem.List(testDir); err == nil {
			for _, name := range names {
				if strings.HasSuffix(name, summarySuffix) && w.one(2) && w.mem.Remove(filepath.Join(testDir, name)) != nil {
					return false
				}
			}
		}
	}
	j, err := Open(testOptions(w.mem))
	if err != nil {
		return false
	}
	w.j = j
	return w.found([]models{w.groups})
}

// crash loses power, perhaps once more during recovery, and finds one of the states.
func (w *random) crash(states []models) {
	w.note("crash, %d states are possible", len(states))
	w.count.crashes++
	after := w.mem.Crash(w.rng.Uint64())
	_ = w.j.Close() // of the past
	for w.one(3) {
		after.PowerOffAfter(w.rng.Int64N(30))
		if j, err := Open(testOptions(after)); err == nil {
			_ = j.Close()
		}
		after = after.Crash(w.rng.Uint64())
	}
	w.mem = after
	w.j = mustOpen(w.t, testOptions(w.mem))
	if !w.found(states) {
		w.t.Fatal("no power")
	}
}

// found looks for the state that a restart brought, and settles which of the released records are held again. False:
// power was lost meanwhile.
func (w *random) found(states []models) bool {
	var errs []error
	for i, s := range states {
		err := w.differs(s, false)
		if err == nil {
			if w.groups = s; i > 0 {
				w.count.pending++
			}
			return w.settle()
		}
		if errors.Is(err, vfs.ErrPowerOff) {
			return false
		}
		errs = append(errs, fmt.Errorf("state %d: %w", i, err))
	}
	w.t.Fatalf("none of %d states: %v", len(states), errors.Join(errs...))
	return false
}

func (w *random) settle() bool {
	for id, m := range w.groups {
		held := heldBy(w.j.Group(id))
		for index, gen := range m.released {
			h, back := held[index]
			switch {
			case back:
				m.kept[index] = keptModel{gen, h.Pruned}
				w.count.back++
			case w.recycled:
				w.count.gone++
			default:
				w.t.Fatalf("group %d index %d was released, no segment recycled, and it is gone", id, index)
			}
		}
		clear(m.released)
	}
	w.recycled = false
	return w.matches(w.groups)
}

// matches fails the test if the journal, which was open all the time, is not in a state. False: power was lost.
func (w *random) matches(s models) bool {
	w.t.Helper()
	err := w.differs(s, true)
	if err != nil && !errors.Is(err, vfs.ErrPowerOff) {
		w.t.Fatal(err)
	}
	return err == nil
}

// differs says how the journal differs from a state. Strict: what was released is not held.
func (w *random) differs(s models, strict bool) error {
	for id, m := range s {
		if strict && len(m.released) > 0 {
			m = m.clone()
			clear(m.released)
		}
		g := w.j.Group(id)
		err := matches(g, m)
		if err == nil {
			err = matchesHeld(g, m)
		}
		if err == nil {
			err = checkUses(g)
		}
		if err != nil {
			return fmt.Errorf("group %d: %w", id, err)
		}
	}
	return nil
}

func heldBy(g *Group) map[uint64]Held {
	all := map[uint64]Held{}
	g.Held(func(h Held) bool {
		all[h.Index] = h
		return true
	})
	return all
}

// matchesHeld says how the list of what a group holds differs from a model.
func matchesHeld(g *Group, m *model) error {
	all := heldBy(g)
	for index := range m.gens {
		if h, ok := all[index]; !ok || !h.InLog || h.Damaged || h.Pruned {
			return fmt.Errorf("index %d is in the log, held %t as %+v", index, ok, h)
		}
		delete(all, index)
	}
	for index, k := range m.kept {
		if h, ok := all[index]; !ok || h.InLog || h.Damaged || h.Pruned != k.pruned {
			return fmt.Errorf("index %d is kept as %+v, held %t as %+v", index, k, ok, h)
		}
		delete(all, index)
	}
	for index, h := range all {
		if _, may := m.released[index]; !may || h.InLog || h.Damaged {
			return fmt.Errorf("index %d is held as %+v", index, h)
		}
	}
	return nil
}

// checkUses counts once more what Recycle asks for.
func checkUses(g *Group) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	want := map[uint32]uint32{}
	for _, h := range g.appendTo(nil, 0, 1<<30) {
		want[h.place.segment]++
	}
	got := map[uint32]uint32{}
	for _, u := range g.uses {
		got[u.segment] = u.n
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("counts %v by segment, want %v", got, want)
	}
	return nil
}

// recycle gives up some of the segments: exactly those go in which nobody holds anything.
func (w *random) recycle() bool {
	numbers := w.j.Segments()
	needed := map[uint64]bool{numbers[len(numbers)-1]: true}
	for id := range w.groups {
		for _, h := range heldBy(w.j.Group(id)) {
			needed[h.Place.Segment] = true
		}
	}
	for _, n := range numbers {
		if w.one(3) {
			continue
		}
		w.recycled = w.recycled || !needed[n]
		err := w.j.Recycle(n)
		w.note("recycle %d: %v", n, err)
		switch {
		case err == nil && !needed[n]:
			w.count.recycled++
		case errors.Is(err, ErrInUse) && needed[n]:
		case errors.Is(err, vfs.ErrPowerOff) || errors.Is(err, ErrPoisoned):
			return false
		default:
			w.t.Fatalf("segment %d, needed %t: %v", n, needed[n], err)
		}
	}
	return true
}

// release releases some of what a group keeps.
func (w *random) release() {
	id := w.group()
	list := w.some(w.groups[id])
	w.note("release %d: %v", id, list)
	w.j.Group(id).Release(list)
	w.groups[id].letGo(list)
}

func (w *random) group() uint32 { return uint32(w.rng.IntN(len(w.groups))) + 1 }

// some draws some of the indexes that are kept; mostly many, so that segments become free.
func (w *random) some(m *model) (list []uint64) {
	n := 1 + w.rng.IntN(6)
	for _, index := range slices.Sorted(maps.Keys(m.kept)) {
		if w.rng.IntN(6) < n {
			list = append(list, index)
		}
	}
	return list
}

func (m *model) letGo(list []uint64) {
	for _, index := range list {
		if k, ok := m.kept[index]; ok {
			m.released[index] = k.gen
			delete(m.kept, index)
		}
	}
}

// call is one that is queued, with the answer that it must get.
type call struct {
	r    *request
	want error
}

// burst queues some calls at once. False: power was lost, and the state is that of before.
func (w *random) burst() bool {
	states := []models{w.groups}
	var calls []call
	quiet := map[uint32]bool{}
	for id := range w.groups {
		quiet[id] = true
	}
	for range 1 + w.rng.IntN(6) {
		next := states[len(states)-1].clone()
		id := w.group()
		c := w.draw(id, next[id])
		quiet[id] = quiet[id] && (c.r.kind == kindStable || c.r.kind == kindKeep && len(c.r.copies) > 0 && c.r.copies[0].from != Place{})
		calls, states = append(calls, c), append(states, next)
	}
	queued := w.queue(calls)
	if id := w.group(); quiet[id] && w.one(2) { // whatever is moved just now
		list := w.some(states[0][id])
		w.note("meanwhile release %d: %v", id, list)
		w.j.Group(id).Release(list)
		for _, s := range states {
			s[id].letGo(list)
		}
	}
	if !queued {
		return false
	}
	acked, lost := 0, false
	for i, c := range calls {
		err := <-c.r.done
		switch {
		case errors.Is(err, ErrPoisoned):
			lost = true
		case !errors.Is(err, c.want) || c.want == nil && err != nil:
			w.t.Fatalf("call %d: %v, want %v", i, err, c.want)
		case err == nil:
			acked = i + 1
		}
	}
	if lost {
		w.note("%d of them answered", acked)
		w.crash(states[acked:])
		return true
	}
	w.groups = states[len(states)-1]
	return true
}

// queue does what submit does, for all calls at once.
func (w *random) queue(calls []call) bool {
	w.j.mu.Lock()
	defer w.j.mu.Unlock()
	if w.j.err != nil {
		return false
	}
	for _, c := range calls {
		c.r.measure()
		w.j.queue = append(w.j.queue, c.r)
		w.j.queued += c.r.size
	}
	w.j.wake.Signal()
	return true
}

// draw makes up a call of a group, and does to the model what it must do.
func (w *random) draw(id uint32, m *model) call {
	g := w.j.Group(id)
	switch w.rng.IntN(16) {
	case 0, 1:
		r := w.j.reqs.get(g, kindTruncate)
		r.index = w.between(max(m.first, 2)-2, m.last+2)
		m.randomTruncate(r.index)
		w.note("truncate %d: %d", id, r.index)
		return call{r: r}
	case 2, 3, 4:
		r := w.j.reqs.get(g, kindCompact)
		r.index = w.between(max(m.first, 2)-2, m.last+1)
		m.randomCompact(r.index)
		w.note("compact %d: %d", id, r.index)
		return call{r: r}
	case 5:
		if !w.one(3) {
			break
		}
		r := w.j.reqs.get(g, kindReset)
		r.index = w.between(0, m.last+3)
		m.reset(r.index)
		w.note("reset %d: keep %d", id, r.index)
		return call{r: r}
	case 6, 7:
		return w.drawKeep(g, m)
	case 8, 9, 10:
		return w.drawMove(g)
	case 11:
		r := w.j.reqs.get(g, kindStable)
		w.gen++
		key := []string{"vote", "term"}[w.rng.IntN(2)]
		r.key, r.val = []byte(key), []byte(fmt.Sprint(w.gen))
		m.stable[key] = fmt.Sprint(w.gen)
		w.note("stable %d: %s = %d", id, key, w.gen)
		return call{r: r}
	}
	return w.drawAppend(g, m)
}

// drawAppend appends where the log ends, or anywhere if it is empty, and sometimes where it must not.
func (w *random) drawAppend(g *Group, m *model) call {
	r := w.j.reqs.get(g, kindEntry)
	w.gen++
	n := 1 + w.rng.IntN(5)
	if m.first != 0 && w.one(12) {
		wrong := m.clone()
		wrong.last += 1 + w.rng.Uint64N(2)
		r.recs = wrong.append(g.id, w.gen, n)
		w.note("append %d: %d, which is not next", g.id, r.recs[0].Index)
		return call{r, ErrNotNext}
	}
	if m.first == 0 {
		from := m.last + 1
		if w.one(2) {
			from = w.between(max(m.last, 8)-7, m.last+4)
		}
		m.cut(from)
		m.last = from - 1
	}
	r.recs = m.append(g.id, w.gen, n)
	w.note("append %d: %d to %d, generation %d", g.id, r.recs[0].Index, m.last, w.gen)
	return call{r: r}
}

// drawKeep keeps something under indexes that are kept, were released, or are not known; sometimes one in the log.
func (w *random) drawKeep(g *Group, m *model) call {
	r := w.j.reqs.get(g, kindKeep)
	top := m.last + 3
	if m.first != 0 && !w.one(8) {
		top = m.first - 1
	}
	var want error
	next := m.clone()
	for index := w.between(0, top) + 1; index <= top && len(r.copies) < 4; index += w.between(1, 3) {
		if m.first != 0 && index >= m.first {
			want = ErrInLog
		}
		k, kept := m.kept[index]
		gen, released := m.released[index]
		switch {
		case kept:
			gen = k.gen
		case !released:
			w.gen++
			gen = w.gen
		}
		rec := Kept{Index: index, Term: gen, Data: crashPayload(g.id, index, gen)}
		pruned := w.one(2)
		if pruned {
			rec = prunedTo(rec, testPieces())
		}
		c, err := rec.carry(1 << 20)
		must(w.t, err)
		r.copies = append(r.copies, c)
		next.kept[index] = keptModel{gen, pruned}
		delete(next.released, index)
		w.note("keep %d: %d, generation %d, pruned %t, want %v", g.id, index, gen, pruned, want)
	}
	if want == nil {
		*m = *next
	}
	return call{r, want}
}

func prunedTo(k Kept, pieces []Piece) Kept {
	var data []byte
	for _, p := range pieces {
		data = append(data, k.Data[p.Offset:p.end()]...)
	}
	return Kept{k.Index, k.Term, pieces, data}
}

// drawMove copies what is held now, wherever it will be when the call comes to it. It changes no model.
func (w *random) drawMove(g *Group) call {
	r := w.j.reqs.get(g, kindKeep)
	numbers := w.j.Segments()
	from := numbers[w.rng.IntN(min(2, len(numbers)))]
	g.Held(func(h Held) bool {
		if h.Place.Segment == from && !w.one(4) {
			c, err := g.pick(h.Index, h.Place)
			if errors.Is(err, vfs.ErrPowerOff) {
				return false
			}
			must(w.t, err)
			w.note("move %d: %d from %+v", g.id, h.Index, h.Place)
			r.copies = append(r.copies, c)
		}
		return len(r.copies) < 12
	})
	return call{r: r}
}

func (m *model) randomTruncate(from uint64) {
	if m.first == 0 || from > m.last {
		return
	}
	m.truncate(max(from, m.first))
	if m.last < m.first {
		m.first = 0
	}
}

func (m *model) randomCompact(to uint64) {
	if m.first == 0 || to < m.first {
		return
	}
	if m.compact(min(to, m.last)); m.first > m.last {
		m.first = 0
	}
}

// cut forgets what is held under the indexes from … for good.
func (m *model) cut(from uint64) {
	maps.DeleteFunc(m.released, func(index, _ uint64) bool { return index >= from })
	maps.DeleteFunc(m.kept, func(index uint64, _ keptModel) bool { return index >= from })
}

// damage flips a bit. What is read then is right, or said to be damaged; what is not held is not readable.
func (w *random) damage() {
	all := regions(w.t, w.mem)
	r := all[w.rng.IntN(len(all))]
	off := r.from + w.rng.Int64N(r.to-r.from)
	summaries := w.one(2)
	if !summaries {
		removeSummaries(w.t, w.mem)
	}
	flip(w.t, w.mem, r.path, off, 1<<w.rng.IntN(8))
	w.note("flip %s at %d", r.path, off)
	j, err := Open(testOptions(w.mem))
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			w.t.Fatal(err)
		}
		return
	}
	defer mustClose(w.t, j)
	for id, m := range w.groups {
		if err := matchesHurt(j.Group(id), m, summaries); err != nil {
			w.t.Fatalf("group %d: %v", id, err)
		}
	}
}
